package agent

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pandovm/pando/internal/link"
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
	s := &Server{spawner: &Spawner{score: score, own: "0", children: "500"}}
	for range 20 {
		var out bytes.Buffer
		c := &command{path: "/bin/sh", argv: []string{"sh", "-c", "cat /proc/self/oom_score_adj"}, dir: "/"}
		r, err := s.launch(c, &out, 100, nil)
		if err != nil {
			t.Fatal(err)
		}
		if x := r.finish(&link.Order{Timeout: time.Minute}); x.Code != 0 {
			t.Fatalf("status %d", x.Code)
		}
		if !strings.Contains(out.String(), "500\n") {
			t.Errorf("the command's score is in %q", out.String())
		}
	}
	now := make([]byte, 8)
	n, _ := score.ReadAt(now, 0)
	if string(now[:n]) != "0\n" {
		t.Errorf("the agent's score is %q", now[:n])
	}
}

func TestStartOfNothing(t *testing.T) {
	t.Parallel()
	sp, err := NewSpawner(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sp.start(&command{path: "/nonexistent", argv: []string{"x"}}); err == nil {
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
