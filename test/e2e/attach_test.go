package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
)

// atTerminal starts the command line at a terminal.
func atTerminal(t *testing.T, l *testlab.Lab, args ...string) *testlab.Terminal {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testlab.Binary(t), args...)
	cmd.Env = append(os.Environ(), "PANDO_URL="+l.URL, "PANDO_API_KEY="+l.Key)
	term := testlab.NewTerminal(t)
	term.Run(cmd)
	return term
}

// detached starts a command and returns its id.
func detached(t *testing.T, l *testlab.Lab, vm string, args ...string) string {
	t.Helper()
	out, problems, code := cli(t, l, "", append([]string{"vm", "exec", vm, "--detach"}, args...)...)
	if code != 0 || problems != "" {
		t.Fatalf("detach: code %d, %q", code, problems)
	}
	return strings.TrimSpace(out)
}

// trapped says when it is ready, and ends at the second interrupt.
const trapped = `n=0; trap 'n=$((n+1)); echo interrupt $n.' INT; echo ready; while [ $n -lt 2 ]; do sleep 0.2; done; exit 5`

// What is typed at a terminal reaches the command: interrupts, and lines after
// attach.
func TestCommandAtTerminal(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	for name, args := range map[string][]string{
		"exec":   {"vm", "exec", v.ID, trapped},
		"attach": {"vm", "attach", v.ID, detached(t, l, v.ID, trapped)},
		"logs":   {"vm", "logs", "-f", v.ID, detached(t, l, v.ID, trapped)},
	} {
		t.Run(name, func(t *testing.T) {
			term := atTerminal(t, l, args...)
			term.Sees("ready")
			term.Types("\x03")
			term.Sees("interrupt 1.")
			term.Types("\x03")
			term.Sees("interrupt 2.")
			term.Ends(5)
		})
	}

	id := detached(t, l, v.ID, "--open-stdin", "while read x; do echo got $x.; done; exit 6")
	term := atTerminal(t, l, "vm", "attach", v.ID, id)
	term.Types("one\n")
	term.Sees("got one.")
	term.Types("two\n\x04")
	term.Sees("got two.")
	term.Ends(6)
}

// A command that ignores interrupts can be left, and goes on.
func TestLeaveCommand(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	id := detached(t, l, v.ID, `trap 'echo no $((n=n+1)).' INT; echo ready; while [ ! -e /tmp/stop ]; do sleep 0.2; done; exit 7`)
	term := atTerminal(t, l, "vm", "attach", v.ID, id)
	term.Sees("ready")
	for _, answer := range []string{"no 1.", "no 2."} {
		term.Types("\x03")
		term.Sees(answer)
	}
	term.Types("\x03")
	term.Sees("pando vm attach " + v.ID + " " + id)
	term.Ends(130)
	l.Run(v.ID, "touch /tmp/stop")
	out, problems, code := cli(t, l, "", "vm", "attach", v.ID, id)
	if code != 7 || out != "ready\nno 1.\nno 2.\n" {
		t.Errorf("attach: code %d, %q, %q", code, out, problems)
	}
}

// Commands that were started apart are listed, shown, followed and fed.
func TestCommandLineOfDetached(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	id := detached(t, l, v.ID, "--user", "root", "--open-stdin", "echo err >&2; cat; exit 3")
	listed, _, _ := cli(t, l, "", "vm", "logs", v.ID)
	if !strings.Contains(listed, id) || !strings.Contains(listed, "running") {
		t.Errorf("vm logs: %s", listed)
	}
	ps, _, _ := cli(t, l, "", "vm", "ps", v.ID)
	if !strings.Contains(ps, id[:len("exec-")+8]) || !strings.Contains(ps, "pando-agent") {
		t.Errorf("vm ps: %s", ps)
	}
	for range 2 { // the second one attaches to what has ended
		out, problems, code := cli(t, l, "input", "vm", "attach", v.ID, id)
		if out != "input" || problems != "err\n" || code != 3 {
			t.Errorf("vm attach: %q, %q, code %d", out, problems, code)
		}
	}
	out, problems, code := cli(t, l, "", "vm", "logs", v.ID, id, "-f")
	if out != "input" || problems != "err\n" || code != 3 {
		t.Errorf("vm logs -f: %q, %q, code %d", out, problems, code)
	}
	out, problems, code = cli(t, l, "", "vm", "logs", v.ID, id, "--json")
	var e struct {
		api.Exec
		Stdout, Stderr string
	}
	if err := json.Unmarshal([]byte(out), &e); err != nil || code != 0 {
		t.Fatalf("vm logs --json: %v, code %d, %s%s", err, code, out, problems)
	}
	if e.Stdout != "input" || e.Stderr != "err\n" || e.StatusCode == nil || *e.StatusCode != 3 || e.LinuxUser != "root" || e.StdinBytes != 5 {
		t.Errorf("vm logs --json: %+v", e)
	}
}
