package upgrade_test

import (
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pandovm/pando/internal/agent/upgrade"
)

// copyOf makes a program called name that sleeps.
func copyOf(t *testing.T, name string) string {
	t.Helper()
	path, err := osexec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestGuard(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := &upgrade.Service{File: copyOf(t, filepath.Join(dir, "agent")), Mark: filepath.Join(dir, "mark")}
	for path, content := range map[string]string{s.File + ".old": "old", s.Mark: "new"} {
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	agent := osexec.Command(s.File, "1000")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	bystander := osexec.Command(copyOf(t, filepath.Join(dir, "agent2")), "1000")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s.Guard(t.Context(), 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	var ended *osexec.ExitError
	if err := agent.Wait(); !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the new agent ended with %v", err)
	}
	if got, err := os.ReadFile(s.File); string(got) != "old" {
		t.Errorf("the agent is %.20q, %v", got, err)
	}
	if _, err := os.Stat(s.Mark); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mark is left: %v", err)
	}
	if err := errors.Join(bystander.Process.Signal(syscall.SIGTERM), func() error { _ = bystander.Wait(); return nil }()); err != nil {
		t.Errorf("another program was ended: %v", err)
	}
}

// A good agent has removed the mark: then nothing is changed.
func TestGuardOfAGoodAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := &upgrade.Service{File: filepath.Join(dir, "agent"), Mark: filepath.Join(dir, "mark")}
	if err := os.WriteFile(s.File, []byte("new"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.Guard(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(s.File); string(got) != "new" {
		t.Errorf("the agent is %.20q, %v", got, err)
	}
}
