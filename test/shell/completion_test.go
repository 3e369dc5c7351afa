package shell

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
)

// daemon answers as one with a VM, a snapshot and an image.
func daemon(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(path string, v any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			if err := json.NewEncoder(w).Encode(v); err != nil {
				t.Error(err)
			}
		})
	}
	answer("/v5/vms", api.VMList{VMs: []api.VM{{ID: "vm-1", Slug: new("workbench"), State: api.StateRunning}}})
	answer("/v5/snapshots", api.SnapshotList{Snapshots: []api.Snapshot{{ID: "sh-1", Slug: new("prepared-one")}}})
	answer("/v5/images", api.ImageList{Images: []api.Image{{Name: "pando/debian"}}})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// Each shell is told to load the script, as docs/guide-cli.md says, and then to
// print a prompt that nobody types.
func TestCompletionInShells(t *testing.T) {
	t.Parallel()
	shells := map[string]struct {
		args  []string
		setUp string
	}{
		"bash": {
			[]string{"--norc", "--noprofile", "-i"},
			". /usr/share/bash-completion/bash_completion; source <(pando completion bash)",
		},
		"zsh":  {[]string{"-f", "-i"}, "autoload -Uz compinit; compinit -u -D; source <(pando completion zsh)"},
		"fish": {[]string{"--no-config", "-i"}, "pando completion fish | source"},
	}
	for name, shell := range shells {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program, err := exec.LookPath(name)
			if err != nil {
				t.Fatalf("%s is missing; run make test-tools: %v", name, err)
			}
			term := testlab.NewTerminal(t)
			cmd := exec.CommandContext(t.Context(), program, shell.args...)
			home := t.TempDir()
			cmd.Dir = home
			cmd.Env = []string{
				"PATH=" + filepath.Dir(testlab.Binary(t)) + ":" + os.Getenv("PATH"), "HOME=" + home, "TERM=xterm", "LC_ALL=C.UTF-8",
				"XDG_CONFIG_HOME=" + home, "XDG_DATA_HOME=" + home, "XDG_CACHE_HOME=" + home,
				"PANDO_URL=" + daemon(t), "PANDO_API_KEY=x",
			}
			term.Run(cmd)
			term.Types(shell.setUp + "\n")
			term.Types("echo set'-'up\n")
			term.Sees("set-up")
			for line, want := range map[string]string{
				"pando vm get wo\t":       "workbench",
				"pando snapshot rm pre\t": "prepared-one",
				"pando image show pan\t":  "pando/debian",
				"pando vm sna\t":          "pando vm snapshot",
			} {
				term.Types(line)
				term.Sees(want)
				term.Types("\x15") // take the line back
			}
			term.Types("exit\n")
			term.Ends(0)
		})
	}
}
