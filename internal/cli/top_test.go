package cli_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/cli"
	"github.com/pandovm/pando/internal/testlab"
)

// measuring answers as a daemon whose VM web has kept one and a half processors
// busy since the answer before.
func measuring(t *testing.T) http.HandlerFunc {
	t.Helper()
	var looks atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		n := float64(looks.Add(1))
		at := moment().Add(time.Duration(n * float64(time.Second)))
		reply(t, http.StatusOK, api.VMStatsList{VMs: []api.VMStats{
			{ID: "vm-2", Slug: new("idle"), State: api.StatePaused, At: at, DiskBytes: 210 << 20},
			{
				ID: "vm-1", Slug: new("web"), State: api.StateRunning, At: at, UptimeSeconds: 3725, CPUTimeSeconds: 1.5 * n,
				MemorySharedBytes: 96 << 20, MemoryUniqueBytes: 32 << 20, DiskBytes: 5 << 20,
			},
		}})(w, r)
	}
}

func TestTop(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{"top": "top", "top-once": "top --once --sort name", "top-json": "top --json"} {
		l := newLab(t, measuring(t))
		args := strings.Fields(line)
		golden(t, name, l.transcript(l.run(t.Context(), args...), args))
	}
}

// The live view draws, goes on drawing, and leaves the terminal as it was,
// whichever way it ends.
func TestTopAtATerminal(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testlab.Terminal, context.CancelFunc){
		"key":    func(term *testlab.Terminal, _ context.CancelFunc) { term.Types("xq") },
		"signal": func(_ *testlab.Terminal, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, measuring(t))
			term := testlab.NewTerminal(t)
			before := term.Settings()
			l.IO = &cli.IOStreams{In: term.TTY, Out: term.TTY, Err: term.TTY, InTerminal: true, OutTerminal: true, Width: 80}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			code := make(chan int)
			go func() { code <- l.run(ctx, "top", "--interval", "200ms") }()
			term.Sees("2 VMs, 1 running")
			term.Sees("150 %")
			if term.Settings() == before {
				t.Error("keys are shown while it runs")
			}
			term.Resize(40, 5)
			term.Sees("… and")
			end(term, cancel)
			if c := <-code; c != 0 {
				t.Errorf("code %d: %s", c, term.Seen())
			}
			if after := term.Settings(); after != before {
				t.Errorf("the terminal is left with %+v, was %+v", after, before)
			}
			term.Sees("\x1b[?25h\x1b[?1049l")
			if seen := term.Seen(); !strings.HasPrefix(seen, "\x1b[?1049h\x1b[?25l") || !strings.HasSuffix(seen, "\x1b[?25h\x1b[?1049l") {
				t.Errorf("the screen is not given back: %q", seen)
			}
		})
	}
}

// A daemon that goes away is told, and the last numbers stay.
func TestTopWithoutAnswers(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	numbers := measuring(t)
	l := newLab(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			reply(t, http.StatusServiceUnavailable, api.Error{Code: api.CodeUnavailable, Message: "not now"})(w, r)
			return
		}
		numbers(w, r)
	}))
	term := testlab.NewTerminal(t)
	l.IO = &cli.IOStreams{In: term.TTY, Out: term.TTY, Err: term.TTY, InTerminal: true, OutTerminal: true, Width: 80}
	code := make(chan int)
	go func() { code <- l.run(t.Context(), "top", "--interval", "200ms") }()
	term.Sees("150 %")
	broken.Store(true)
	term.Sees("no answer from the daemon")
	term.Sees("not now")
	broken.Store(false)
	term.Types("q")
	if c := <-code; c != 0 {
		t.Errorf("code %d", c)
	}
}

func TestTopOfNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, reply(t, http.StatusInternalServerError, api.Error{Code: api.CodeInternal, Message: "broken"}))
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	l.IO = &cli.IOStreams{In: null, Out: &l.out, Err: &l.err, OutTerminal: true, Width: 80}
	if code := l.run(t.Context(), "top"); code != 1 || strings.Contains(l.out.String(), "\x1b") || !strings.Contains(l.err.String(), "broken") {
		t.Errorf("code %d: %q, %q", code, l.out.String(), l.err.String())
	}
}
