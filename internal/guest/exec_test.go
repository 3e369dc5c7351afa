package guest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/guest/guesttest"
)

// accounts are those of a guest with a root whose shell is known, a default
// user, and one whose shell and home are missing.
const (
	passwd = `# comment
root:x:0:0:root:/root:/bin/sh
broken line
agent:x:1000:1000:Agent,,,:/tmp:/bin/bash
homeless:x:1001:1001::/nonexistent:
shut:x:1002:1002::/root:/bin/sh
shellless:x:1003:1003::/:/bin/nosuchshell
`
	group = `root:x:0:
agent:x:1000:
extra:x:2000:other,agent
more:x:2001:agent
other:x:2002:other
`
)

func start3(t *testing.T) *guest.Link {
	t.Helper()
	return start(t, guesttest.WithAccounts(t, passwd, group))
}

func TestExecOutcomes(t *testing.T) {
	t.Parallel()
	l := start3(t)
	for name, c := range map[string]struct {
		order          guest.ExecOrder
		stdout, stderr string
		code           int
	}{
		"success":           {order: guest.ExecOrder{Command: "echo hi"}, stdout: "hi\n"},
		"no output":         {order: guest.ExecOrder{Command: "true"}},
		"empty command":     {order: guest.ExecOrder{Command: ""}},
		"exit status":       {order: guest.ExecOrder{Command: "exit 7"}, code: 7},
		"streams apart":     {order: guest.ExecOrder{Command: "echo o; echo e >&2"}, stdout: "o\n", stderr: "e\n"},
		"set -e":            {order: guest.ExecOrder{Command: "set -e; false; echo not reached"}, code: 1},
		"exec":              {order: guest.ExecOrder{Command: "exec echo replaced"}, stdout: "replaced\n"},
		"here document":     {order: guest.ExecOrder{Command: "cat <<X\none\ntwo\nX"}, stdout: "one\ntwo\n"},
		"trap":              {order: guest.ExecOrder{Command: "trap 'echo bye' EXIT; exit 3"}, stdout: "bye\n", code: 3},
		"killed":            {order: guest.ExecOrder{Command: "kill -9 $$"}, code: 137},
		"not found":         {order: guest.ExecOrder{Command: "exec nosuchprogram 2>/dev/null"}, code: 127},
		"stdin is closed":   {order: guest.ExecOrder{Command: "cat; echo end"}, stdout: "end\n"},
		"stdin":             {order: guest.ExecOrder{Command: "cat", Stdin: []byte("a\x00b")}, stdout: "a\x00b"},
		"not UTF-8":         {order: guest.ExecOrder{Command: "printf '\\377\\376'"}, stdout: "\xff\xfe"},
		"environment":       {order: guest.ExecOrder{Command: "echo $A-$LANG", Env: map[string]string{"A": "x y", "LANG": "C"}}, stdout: "x y-C\n"},
		"default user":      {order: guest.ExecOrder{Command: "id -u; id -g; id -G; echo $USER $LOGNAME $HOME $SHELL; pwd"}, stdout: "1000\n1000\n1000 2000 2001\nagent agent /tmp /bin/bash\n/tmp\n"},
		"other user":        {order: guest.ExecOrder{Command: "id -u; echo $HOME; pwd", User: "root"}, stdout: "0\n/root\n/root\n"},
		"no home, no shell": {order: guest.ExecOrder{Command: "id -u; pwd; echo $SHELL", User: "homeless"}, stdout: "1001\n/\n/bin/sh\n"},
		"home is shut":      {order: guest.ExecOrder{Command: "pwd", User: "shut"}, stdout: "/\n"},
		"path":              {order: guest.ExecOrder{Command: "echo $PATH"}, stdout: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"},
		"nothing inherited": {order: guest.ExecOrder{Command: "env | cut -d= -f1 | grep -v -e '^_$' -e PWD -e SHLVL | sort | tr '\\n' ' '"}, stdout: "HOME LANG LOGNAME PATH SHELL USER "},
		"own session":       {order: guest.ExecOrder{Command: `test "$(cut -d' ' -f5-6 /proc/$$/stat)" = "$$ $$" && echo yes`}, stdout: "yes\n"},
		"descriptors":       {order: guest.ExecOrder{Command: "ls /proc/$$/fd | tr '\\n' ' '", User: "root"}, stdout: "0 1 2 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := mustExec(t, l, c.order)
			if string(r.Stdout) != c.stdout || string(r.Stderr) != c.stderr {
				t.Errorf("printed %q and %q, want %q and %q", r.Stdout, r.Stderr, c.stdout, c.stderr)
			}
			if r.ExitCode == nil || *r.ExitCode != c.code || r.TimedOut {
				t.Errorf("outcome %v, timed out %v, want %d", r.ExitCode, r.TimedOut, c.code)
			}
			if r.StdoutBytes != int64(len(c.stdout)) || r.StderrBytes != int64(len(c.stderr)) {
				t.Errorf("lengths %d and %d", r.StdoutBytes, r.StderrBytes)
			}
		})
	}
}

func TestExecSyntaxErrorIsTheCommandsOwn(t *testing.T) {
	t.Parallel()
	r := mustExec(t, start3(t), guest.ExecOrder{Command: "echo 'unbalanced"})
	if *r.ExitCode == 0 || len(r.Stderr) == 0 {
		t.Errorf("exit status %d, stderr %q", *r.ExitCode, r.Stderr)
	}
}

func TestExecRefusals(t *testing.T) {
	t.Parallel()
	l := start3(t)
	for name, c := range map[string]struct {
		order guest.ExecOrder
		field string
	}{
		"unknown user":      {guest.ExecOrder{Command: "true", User: "nobody-here"}, "linuxUser"},
		"user with a colon": {guest.ExecOrder{Command: "true", User: "root:x"}, "linuxUser"},
		"NUL in command":    {guest.ExecOrder{Command: "echo a\x00b"}, "command"},
		"3 MB command":      {guest.ExecOrder{Command: strings.Repeat("x", 3<<20)}, "command"},
		"NUL in value":      {guest.ExecOrder{Command: "true", Env: map[string]string{"A": "\x00"}}, "env"},
		"empty name":        {guest.ExecOrder{Command: "true", Env: map[string]string{"": "x"}}, "env"},
		"huge value":        {guest.ExecOrder{Command: "true", Env: map[string]string{"A": strings.Repeat("x", 128<<10)}}, "env"},
	} {
		_, err := l.Exec(t.Context(), c.order)
		if f := fault.As(err); f == nil || f.Code != api.CodeBadRequest || f.Field != c.field {
			t.Errorf("%s: %v (%+v), want BAD_REQUEST of %s", name, err, f, c.field)
		}
	}
	if _, err := l.Exec(t.Context(), guest.ExecOrder{Command: "true", User: "shellless"}); err == nil || fault.As(err) != nil {
		t.Errorf("missing shell: %v, want an error of no user's making", err)
	}
}

func TestExecCutsOutput(t *testing.T) {
	t.Parallel()
	l := start3(t)
	r := mustExec(t, l, guest.ExecOrder{Command: "head -c 5000000 /dev/zero; head -c 70000 /dev/zero >&2; exit 4", MaxOutput: 100001})
	if len(r.Stdout) != 100001 || r.StdoutBytes != 5000000 || len(r.Stderr) != 70000 || r.StderrBytes != 70000 || *r.ExitCode != 4 {
		t.Errorf("got %d of %d and %d of %d bytes, status %d", len(r.Stdout), r.StdoutBytes, len(r.Stderr), r.StderrBytes, *r.ExitCode)
	}
	r = mustExec(t, l, guest.ExecOrder{Command: "head -c 3000000 /dev/zero"})
	if len(r.Stdout) != guest.DefaultMaxOutput || r.StdoutBytes != 3000000 {
		t.Errorf("by default, got %d of %d bytes", len(r.Stdout), r.StdoutBytes)
	}
}

func TestExecStdin(t *testing.T) {
	t.Parallel()
	l := start3(t)
	in := bytes.Repeat([]byte("0123456789abcdef"), 1<<20/16)
	sum := sha256.Sum256(in)
	r := mustExec(t, l, guest.ExecOrder{Command: "sha256sum", Stdin: in})
	if want := hex.EncodeToString(sum[:]); !strings.HasPrefix(string(r.Stdout), want) {
		t.Errorf("1 MiB arrived as %s, want %s", r.Stdout, want)
	}
	for _, command := range []string{"exit 5", "head -c 10 >/dev/null; exit 5", "exec <&-; exit 5"} {
		if r := mustExec(t, l, guest.ExecOrder{Command: command, Stdin: in}); *r.ExitCode != 5 {
			t.Errorf("%q, which does not read its input: status %d", command, *r.ExitCode)
		}
	}
	_, err := l.Exec(t.Context(), guest.ExecOrder{Command: "cat", Stdin: make([]byte, 17<<20)})
	if err == nil {
		t.Error("17 MiB of input were accepted")
	}
}

func TestExecConcurrently(t *testing.T) {
	t.Parallel()
	l := start3(t)
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			r, err := l.Exec(t.Context(), guest.ExecOrder{
				Command: fmt.Sprintf("cat; echo %d >&2; exit %d", i, i), Stdin: []byte(strconv.Itoa(i)), Timeout: time.Minute,
			})
			if err != nil {
				t.Error(err)
				return
			}
			if string(r.Stdout) != strconv.Itoa(i) || string(r.Stderr) != strconv.Itoa(i)+"\n" || *r.ExitCode != i {
				t.Errorf("command %d: %q, %q, %d", i, r.Stdout, r.Stderr, *r.ExitCode)
			}
		})
	}
	all.Wait()
}

// A command that leaves a process behind is over when it is over itself; the
// process goes on and may write as much as it likes.
func TestExecLeavesBackgroundProcessesAlone(t *testing.T) {
	t.Parallel()
	l := start3(t)
	dir := sharedDir(t)
	mustFifo(t, filepath.Join(dir, "go"))
	r := mustExec(t, l, guest.ExecOrder{Command: fmt.Sprintf(
		"cd %s; { read _ < go; head -c 1000000 /dev/zero; echo $? > after; } & echo begun", dir)})
	if string(r.Stdout) != "begun\n" || r.StdoutBytes != 6 {
		t.Errorf("printed %q, %d bytes", r.Stdout, r.StdoutBytes)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	if got := eventually(t, filepath.Join(dir, "after")); got != "0\n" {
		t.Errorf("the process that was left behind could not write: %s", got)
	}
}

// Everything that was written before the end arrives, whoever wrote it.
func TestExecLosesNoOutput(t *testing.T) {
	t.Parallel()
	l := start3(t)
	for range 20 {
		r := mustExec(t, l, guest.ExecOrder{Command: "yes & head -c 60000 /dev/zero | tr '\\0' x >&2; kill $!"})
		if strings.Count(string(r.Stderr), "x") != 60000 {
			t.Fatalf("%d bytes of 60000", len(r.Stderr))
		}
	}
}

func TestExecTimeoutKillsTheGroup(t *testing.T) {
	t.Parallel()
	l := start3(t)
	for name, command := range map[string]string{
		"polite":            "echo $$; sleep 1000",
		"stubborn":          "trap '' TERM; echo $$; while :; do sleep 1000; done",
		"children":          "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1000; done' & wait",
		"stubborn children": "trap '' TERM; sh -c 'echo $$; while :; do sleep 1000; done'; :",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := mustExec(t, l, guest.ExecOrder{Command: command, Timeout: 300 * time.Millisecond})
			if !r.TimedOut || r.ExitCode != nil {
				t.Errorf("timed out %v, status %v", r.TimedOut, r.ExitCode)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(r.Stdout)))
			if err != nil {
				t.Fatalf("no pid in %q: %v", r.Stdout, err)
			}
			if state := processState(pid); state != "" && state != "Z" {
				t.Errorf("process %d is still there: %s", pid, state)
			}
		})
	}
}

// A command that uses its grace to clean up is not cut short.
func TestExecTimeoutIsPoliteFirst(t *testing.T) {
	t.Parallel()
	r := mustExec(t, start3(t), guest.ExecOrder{
		Command: "trap 'echo cleaned; exit 0' TERM; echo ready; while :; do sleep 0.05; done", Timeout: 300 * time.Millisecond,
	})
	if !strings.HasSuffix(string(r.Stdout), "cleaned\n") || !r.TimedOut || r.ExitCode != nil {
		t.Errorf("printed %q, timed out %v, status %v", r.Stdout, r.TimedOut, r.ExitCode)
	}
}

func TestExecEndsWithItsContextAndTheCommandGoesOn(t *testing.T) {
	t.Parallel()
	l := start3(t)
	dir := sharedDir(t)
	for _, name := range []string{"begun", "go"} {
		mustFifo(t, filepath.Join(dir, name))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := l.Exec(ctx, guest.ExecOrder{Command: "cd " + dir + "; echo x > begun; read _ < go; echo output; echo $? > after"})
		ended <- err
	}()
	if _, err := os.ReadFile(filepath.Join(dir, "begun")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || fault.As(err) != nil {
		t.Errorf("exec ended with %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	if got := eventually(t, filepath.Join(dir, "after")); got != "0\n" {
		t.Errorf("the command could not write: %s", got)
	}
}

// sharedDir returns a folder that every user may write to.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "exec")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustFifo(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
}

// eventually returns the content of a file once it has one.
func eventually(t *testing.T, path string) string {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(path); err == nil && len(b) > 0 {
			return string(b)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s: never written", path)
		case <-tick.C:
		}
	}
}

// processState returns the state letter of a process, or "" if there is none.
func processState(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(b), ") ")
	return after[:1]
}
