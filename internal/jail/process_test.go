package jail_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/jail"
)

// sleeper starts a process that ends only by force.
func sleeper(t *testing.T) jail.Process {
	t.Helper()
	p, err := newJail(t).Start(t.Context(), jail.Spec{Argv: []string{"/bin/busybox", "sleep", "1000"}, UID: testUID, GID: testGID})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill(); _ = p.Wait(context.WithoutCancel(t.Context())) })
	return p
}

func TestKillAndWait(t *testing.T) {
	t.Parallel()
	p := sleeper(t)
	if !p.Alive() {
		t.Fatal("not alive after Start")
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	exit, err := p.WaitExit(t.Context())
	if want := (jail.Exit{Known: true, Signal: unix.SIGKILL}); err != nil || exit != want {
		t.Errorf("exit = %+v, %v", exit, err)
	}
	if p.Alive() {
		t.Error("alive after Wait")
	}
	if _, err := os.Stat("/proc/" + strconv.Itoa(p.PID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("not reaped: %v", err)
	}
	if err := errors.Join(p.Kill(), p.Wait(t.Context())); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

func TestEndedButUnreapedIsNotAlive(t *testing.T) {
	t.Parallel()
	p := sleeper(t)
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	// Waits without reaping, as a daemon would see it that has not got to it.
	if err := unix.Waitid(unix.P_PID, p.PID, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if p.Alive() {
		t.Error("a zombie is alive")
	}
	if err := p.Kill(); err != nil {
		t.Errorf("kill of a zombie: %v", err)
	}
}

func TestSeveralWaiters(t *testing.T) {
	t.Parallel()
	p := sleeper(t)
	var waiters sync.WaitGroup
	exits := make(chan jail.Exit, 4)
	for range cap(exits) {
		waiters.Go(func() {
			exit, err := p.WaitExit(t.Context())
			if err != nil {
				t.Error(err)
			}
			exits <- exit
		})
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	waiters.Wait()
	close(exits)
	n := 0
	for exit := range exits {
		if exit.Known {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d waiters know how it ended, want 1", n)
	}
}

func TestWaitGivesUpWithTheContext(t *testing.T) {
	t.Parallel()
	p := sleeper(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	tired := errors.New("tired")
	go cancel(tired)
	if err := p.Wait(ctx); !errors.Is(err, tired) {
		t.Errorf("err = %v, want the cause", err)
	}
	if !p.Alive() {
		t.Error("waiting ended the process")
	}
}

func TestRecycledPIDIsNeverTouched(t *testing.T) {
	t.Parallel()
	p := sleeper(t)
	other := p
	other.StartTime--
	if other.Alive() {
		t.Error("another process passes for ours")
	}
	if err := errors.Join(other.Kill(), other.Wait(t.Context())); err != nil {
		t.Error(err)
	}
	if !p.Alive() {
		t.Error("the process with the same number was killed")
	}
	for _, pid := range []int{0, -1} {
		if err := (jail.Process{PID: pid}).Kill(); err == nil {
			t.Errorf("pid %d was accepted", pid)
		}
	}
}

// TestAdoptedProcess is what a restarted daemon does: the VM is not its child.
func TestAdoptedProcess(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "/bin/busybox", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := jail.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var found jail.Process
	if err := json.Unmarshal(text, &found); err != nil || found != p {
		t.Fatalf("%s became %+v, %v", text, found, err)
	}
	ended := make(chan error)
	go func() {
		exit, err := found.WaitExit(t.Context())
		if exit.Known {
			err = errors.New("the exit of a stranger is known")
		}
		ended <- err
	}()
	if !found.Alive() {
		t.Error("not alive")
	}
	if err := found.Kill(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if found.Alive() {
		t.Error("alive after Wait")
	}
}

func TestFindProcessThatIsNotThere(t *testing.T) {
	t.Parallel()
	if _, err := jail.FindProcess(1 << 30); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v, want not exist", err)
	}
}

func TestExitInWords(t *testing.T) {
	t.Parallel()
	for want, exit := range map[string]jail.Exit{
		"ended": {}, "exited with status 1": {Known: true, Code: 1}, "was killed (signal 9)": {Known: true, Signal: 9},
	} {
		if got := exit.String(); got != want {
			t.Errorf("%+v is %q, want %q", exit, got, want)
		}
	}
}

// TestProcessOutlivesItsStarter: the starter ends, the program goes on.
func TestProcessOutlivesItsStarter(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "process")
	cmd := exec.CommandContext(t.Context(), self(t), daemonArg, file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var p jail.Process
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	if !p.Alive() {
		t.Error("the program ended with its starter")
	}
	if err := errors.Join(p.Kill(), p.Wait(t.Context())); err != nil {
		t.Error(err)
	}
}
