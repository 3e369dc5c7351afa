package guest

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/guest/guesttest"
	"github.com/pandovm/pando/internal/link"
)

// impatient dials a guest and gives it very little time for everything.
func impatient(t *testing.T, sock string) *Link {
	t.Helper()
	l, _, err := Dial(t.Context(), sock, link.FreshToken(), link.Epoch{NextToken: link.NewToken()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	l.patience = patience{silence: 10 * time.Millisecond, ping: time.Minute, outcome: time.Minute}
	return l
}

// stalling returns the socket of a guest whose hosts are cut off in both
// directions, without a hang-up, when stall is closed.
func stalling(t *testing.T, stall <-chan struct{}) string {
	t.Helper()
	g := guesttest.Start(t)
	sock := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		host, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = host.Close() }()
		vm, err := net.Dial("unix", g.Socket)
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(vm, host) }()
		go func() { _, _ = io.Copy(host, vm) }()
		<-stall
		_ = vm.Close()
		<-t.Context().Done()
	}()
	return sock
}

// untilReleased returns a command that runs until release is called; begun
// returns when it has begun.
func untilReleased(t *testing.T) (command string, begun, release func()) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"begun", "go"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	begun = func() {
		if _, err := os.ReadFile(filepath.Join(dir, "begun")); err != nil {
			t.Error(err)
		}
	}
	release = func() {
		if err := os.WriteFile(filepath.Join(dir, "go"), []byte("\n"), 0); err != nil {
			t.Error(err)
		}
	}
	return "cd " + dir + "; echo x > begun; read _ < go; echo done", begun, release
}

func TestSilentGuestEndsTheLink(t *testing.T) {
	t.Parallel()
	stall := make(chan struct{})
	l := impatient(t, stalling(t, stall))
	l.patience.ping = 50 * time.Millisecond
	command, begun, release := untilReleased(t)
	ended := make(chan error, 1)
	go func() {
		_, err := l.Exec(t.Context(), ExecOrder{Command: command, User: "root"})
		ended <- err
	}()
	begun()
	defer release()
	close(stall)
	err := <-ended
	if f := fault.As(err); f == nil || f.Code != api.CodeVMNonResponsive || !errors.Is(err, errSilent) {
		t.Errorf("exec ended with %v", err)
	}
	<-l.Done()
}

// A command may be silent as long as it likes if the agent answers.
func TestSilentCommandIsNoSilentGuest(t *testing.T) {
	t.Parallel()
	l := impatient(t, guesttest.Start(t).Socket)
	r, err := l.Exec(t.Context(), ExecOrder{Command: "sleep 0.5; echo done"})
	if err != nil || string(r.Stdout) != "done\n" {
		t.Errorf("printed %q, %v", r.Stdout, err)
	}
}

func TestCommandWithoutAnOutcome(t *testing.T) {
	t.Parallel()
	l := impatient(t, guesttest.Start(t).Socket)
	l.patience.outcome = -time.Minute // the agent's own timeout cannot be first
	command, begun, release := untilReleased(t)
	ended := make(chan error, 1)
	go func() {
		_, err := l.Exec(t.Context(), ExecOrder{Command: command, User: "root", Timeout: time.Minute + time.Second})
		ended <- err
	}()
	begun()
	defer release()
	err := <-ended
	if f := fault.As(err); f == nil || f.Code != api.CodeVMNonResponsive || !errors.Is(err, errNoOutcome) {
		t.Errorf("exec ended with %v", err)
	}
}
