package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
)

// cli runs the command line against a lab and returns its output and exit code.
func cli(t *testing.T, l *testlab.Lab, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testlab.Binary(t), args...)
	cmd.Env = append(os.Environ(), "PANDO_URL="+l.URL, "PANDO_API_KEY="+l.Key)
	cmd.Stdin = strings.NewReader(stdin)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), problems.String(), cmd.ProcessState.ExitCode()
}

// The life of a VM from the command line.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	run := func(want string, args ...string) {
		t.Helper()
		out, problems, code := cli(t, l, "", args...)
		if code != 0 || !strings.Contains(out, want) {
			t.Fatalf("pando %s: code %d, want 0 and %q\n%s%s", strings.Join(args, " "), code, want, out, problems)
		}
	}
	run("box is running", "vm", "create", testlab.Busybox, "--slug", "box", "--metadata", "task=7")
	run("box", "vm", "ls")
	run("try-3", "vm", "fork", "box", "-n", "3", "--slug", "try")
	run("try-2", "vm", "exec", "try-2", "hostname")
	run("paused", "vm", "pause", "try-1")
	run("running", "vm", "start", "try-1")
	run("", "vm", "snapshot", "box", "--slug", "ready")
	run("ready", "snapshot", "ls")
	run("copy is running", "vm", "create", "ready", "--slug", "copy")
	run("stopped", "vm", "stop", "copy")
	run("", "snapshot", "rm", "ready")
	run("try-3", "vm", "rm", "try-1", "try-2", "try-3")
	out, problems, code := cli(t, l, "", "vm", "get", "box", "--json")
	var v api.VM
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 || v.Metadata["task"] != "7" {
		t.Errorf("vm get --json: %v, code %d\n%s%s", err, code, out, problems)
	}
}

func TestCommandLineExec(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	for name, c := range map[string]struct {
		stdin          string
		args           []string
		stdout, stderr string
		code           int
	}{
		"exit code":      {"", []string{v.ID, "echo out; echo err >&2; exit 7"}, "out\n", "err\n", 7},
		"shell text":     {"", []string{v.ID, "echo $((1+1))"}, "2\n", "", 0},
		"literal words":  {"", []string{v.ID, "--", "echo", "$HOME", "a  b"}, "$HOME a  b\n", "", 0},
		"standard input": {"hello", []string{v.ID, "--", "wc", "-c"}, "5\n", "", 0},
		"user":           {"", []string{v.ID, "--user", "root", "--", "id", "-u"}, "0\n", "", 0},
		"environment":    {"", []string{v.ID, "--env", "A=1 2", `echo "$A"`}, "1 2\n", "", 0},
	} {
		out, problems, code := cli(t, l, c.stdin, append([]string{"vm", "exec"}, c.args...)...)
		if out != c.stdout || problems != c.stderr || code != c.code {
			t.Errorf("%s: %q, %q, code %d; want %q, %q, code %d", name, out, problems, code, c.stdout, c.stderr, c.code)
		}
	}
	_, problems, code := cli(t, l, "", "vm", "exec", v.ID, "--timeout", "300ms", "sleep 100")
	if code != 124 || problems == "" {
		t.Errorf("a command that timed out: code %d, %q", code, problems)
	}
	_, problems, code = cli(t, l, "", "vm", "exec", "nobody", "true")
	if code != 1 || !strings.Contains(problems, "fix:") || !strings.Contains(problems, "request id:") {
		t.Errorf("exec in no vm: code %d, %q", code, problems)
	}
}

// The doctor proves that VMs run here by running one.
func TestDoctor(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	out, problems, code := cli(t, l, "", "doctor", "--json")
	var report struct {
		OK     bool `json:"ok"`
		Checks []struct {
			Name, Status, Detail, Fix string
		} `json:"checks"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v\n%s%s", err, out, problems)
	}
	if code != 0 || !report.OK || len(report.Checks) < 10 {
		t.Errorf("code %d, %+v\n%s", code, report, problems)
	}
	last := report.Checks[len(report.Checks)-1]
	if last.Name != "guest" || last.Status != "ok" || !strings.Contains(last.Detail, "Linux") {
		t.Errorf("the last check is %+v", last)
	}
	for _, c := range report.Checks {
		if c.Status != "ok" && c.Fix == "" {
			t.Errorf("check %+v names no fix", c)
		}
	}
}
