package e2e

import (
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
	pando "github.com/pandovm/pando/sdk"
)

// A command goes on through a restart of the daemon, a pause and a fork, and
// whoever follows it misses nothing.
func TestCommandOutlivesDaemonPauseAndFork(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	ctx := t.Context()
	cmd := l.Client.VMs.Shell(v.ID, "i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo $i; sleep 0.2; done; exit 6")
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(ctx); err != nil {
		t.Fatal(err)
	}
	l.Restart(syscall.SIGKILL)
	if _, err := l.Client.VMs.Pause(ctx, v.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Client.VMs.Start(ctx, v.ID); err != nil {
		t.Fatal(err)
	}
	child := l.Fork(v.ID, 1)[0]
	l.Run(v.ID, "touch /tmp/stop")
	if err := cmd.Wait(); err == nil || err.Error() != "exit status 6" {
		t.Errorf("the command ended with %v", err)
	}
	for i, line := range strings.Fields(out.String()) {
		if line != fmt.Sprint(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
	copied, err := l.Client.VMs.GetExec(ctx, child.ID, cmd.ID())
	if err != nil || copied.State != api.ExecRunning {
		t.Errorf("the child's command: %+v, %v", copied, err)
	}
	l.Run(child.ID, "touch /tmp/stop")
	if err := l.Client.VMs.Attach(child.ID, cmd.ID()).Run(ctx); err == nil || err.Error() != "exit status 6" {
		t.Errorf("the child's command ended with %v", err)
	}
}

func TestCommandInput(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	data := strings.Repeat("0123456789abcdef", 1<<20)
	cmd := l.Client.VMs.Command(v.ID, "sha256sum")
	cmd.Stdin = strings.NewReader(data)
	out, err := cmd.Output(t.Context())
	if want := fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(data))); err != nil || string(out) != want {
		t.Errorf("got %s, %v; want %s", out, err, want)
	}
}

func TestLongCommand(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	if got := l.Run(v.ID, "cat <<END | wc -c\n"+strings.Repeat("x", 1<<20-24)+"\nEND\n"); got != fmt.Sprintln(1<<20-23) {
		t.Errorf("got %q", got)
	}
}

// What a command started under another user, by sudo, is killed with it: by its
// timeout, by the signal KILL, and when it is forgotten.
func TestKillReachesOtherUsers(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Debian)
	ctx := t.Context()
	// The shell that sudo runs ignores what can be ignored, and names itself once
	// it does.
	text := func(seconds int) string {
		return fmt.Sprintf(`sudo -n sh -c 'trap "" TERM HUP INT; echo begun by $(id -u); sleep %d; sleep %d'; true`, seconds, seconds)
	}
	gone := func(t *testing.T, how string, seconds int) {
		t.Helper()
		left := l.Run(v.ID, fmt.Sprintf(`for i in $(seq 50); do left=$(pgrep -ax sleep | grep -w %d) || exit 0; sleep 0.2; done; echo "$left"`, seconds))
		if left != "" {
			t.Errorf("%s: processes are left: %s", how, left)
		}
	}
	patience := int64(10_000)
	res, err := l.Client.VMs.Exec(ctx, v.ID, api.ExecRequest{Command: text(4251), TimeoutMs: &patience})
	if err != nil || !res.TimedOut || res.Stdout != "begun by 0\n" {
		t.Fatalf("got %+v, %v", res, err)
	}
	gone(t, "timeout", 4251)
	for seconds, end := range map[int]func(*pando.Cmd) error{
		4252: func(c *pando.Cmd) error { return c.Kill(ctx) },
		4253: func(c *pando.Cmd) error { return l.Client.VMs.DeleteExec(ctx, v.ID, c.ID()) },
	} {
		cmd := l.Client.VMs.Shell(v.ID, text(seconds))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, len("begun by 0\n"))); err != nil {
			t.Fatal(err)
		}
		if err := end(cmd); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(out); len(rest) > 0 {
			t.Errorf("%d: it went on with %q, %v", seconds, rest, err)
		}
		if err := cmd.Wait(); err == nil {
			t.Errorf("%d: it ended with success", seconds)
		}
		gone(t, "kill", seconds)
	}
}
