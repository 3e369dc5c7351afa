package process

import (
	"io"
	"os"
	"syscall"
	"testing"
	"time"
)

// The agent is the last to be killed for memory; its commands, from their very
// first moment, are not.
func TestOOMScore(t *testing.T) {
	t.Parallel()
	score, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer score.Close()
	// Values that an unprivileged process may set as well.
	s := &Spawner{score: score, own: "0", children: "500"}
	for range 20 {
		if got := output(t, s, "cat /proc/self/oom_score_adj"); got != "500\n" {
			t.Errorf("the command's score is %q", got)
		}
	}
	now := make([]byte, 8)
	n, _ := score.ReadAt(now, 0)
	if string(now[:n]) != "0\n" {
		t.Errorf("the agent's score is %q", now[:n])
	}
}

// output runs text in a shell and returns what it wrote.
func output(t *testing.T, s *Spawner, text string) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := &Command{Path: "/bin/sh", Argv: []string{"sh", "-c", text}, Dir: "/", Files: [3]int{syscall.Stdin, int(w.Fd()), int(w.Fd())}}
	p, err := s.Start(c)
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if !p.Await(time.Minute) {
		t.Fatal("the command does not end")
	}
	if code := p.Reap(); code != 0 || err != nil {
		t.Fatalf("status %d, %v", code, err)
	}
	return string(b)
}

func TestStartOfNothing(t *testing.T) {
	t.Parallel()
	sp, err := NewSpawner(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sp.Start(&Command{Path: "/nonexistent", Argv: []string{"x"}}); err == nil {
		t.Error("started a program that is not there")
	}
	closed, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	if _, err := NewSpawner(closed); err == nil {
		t.Error("a score that cannot be set was accepted")
	}
}
