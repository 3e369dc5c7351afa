package cli

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// task shows that something long is going on: a spinner with the elapsed time
// on a terminal, lines elsewhere, nothing with --json. All methods are safe for
// concurrent use.
type task struct {
	a      *app
	timer  *time.Timer
	cancel context.CancelFunc
	later  sync.WaitGroup

	// now is read by the spinner's goroutine, which must never wait for mu: the
	// holder of mu may be waiting for that goroutine.
	now atomic.Pointer[stage]

	mu      sync.Mutex
	shown   bool
	ended   bool
	spinner *mpb.Progress
	bar     *mpb.Bar
}

// stage is what a task does at one time.
type stage struct {
	text  string
	start time.Time
}

// begin announces work that outlasts the patience; end must be called.
func (a *app) begin(text string) *task {
	t := &task{a: a, cancel: func() {}}
	t.now.Store(&stage{text, a.Now()})
	if a.json {
		t.ended = true
		return t
	}
	t.timer = time.AfterFunc(a.Patience, t.show)
	return t
}

// onLong calls f in its own goroutine if the work takes several times the
// patience; end cancels the context and waits for f.
func (t *task) onLong(ctx context.Context, f func(context.Context)) {
	const several = 4

	if t.a.json {
		return
	}
	ctx, t.cancel = context.WithCancel(ctx)
	t.later.Go(func() {
		timer := time.NewTimer(several * t.a.Patience)
		defer timer.Stop()
		select {
		case <-timer.C:
			f(ctx)
		case <-ctx.Done():
		}
	})
}

// step says, at once, that the work has gone on to something else.
func (t *task) step(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	previous := t.now.Swap(&stage{text, t.a.Now()})
	if t.shown {
		t.note("  done: " + previous.text + " (" + t.a.took(previous.start) + ")")
	}
	t.open()
}

// explain says, at once, what the present step turned out to be.
func (t *task) explain(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.now.Store(&stage{text, t.now.Load().start})
		t.open()
	}
}

// end removes the spinner and stops everything that begin and onLong started.
func (t *task) end() {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.cancel()
	t.later.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.bar != nil {
		t.bar.Abort(true)
		t.spinner.Wait()
	}
}

func (t *task) show() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended && !t.shown {
		t.open()
	}
}

// open shows the present stage; the lock is held.
func (t *task) open() {
	t.shown = true
	switch {
	case !t.a.IO.ErrTerminal:
		t.a.say("%s…", t.now.Load().text)
	case t.spinner == nil:
		t.spinner = mpb.New(mpb.WithOutput(t.a.IO.Err), mpb.WithWidth(t.a.IO.Width), mpb.WithAutoRefresh())
		t.bar = t.spinner.AddSpinner(0, mpb.BarWidth(2), mpb.BarFillerTrim(), mpb.AppendDecorators(decor.Any(t.line)))
	}
}

// note leaves a line behind, above the spinner if there is one; the lock is held.
func (t *task) note(line string) {
	if t.spinner == nil {
		t.a.say("%s", line)
		return
	}
	_, _ = t.spinner.Write([]byte(line + "\n")) // only the picture of the progress would suffer
}

// line is what stands beside the spinner.
func (t *task) line(decor.Statistics) string {
	s := t.now.Load()
	return " " + cut(s.text, max(narrowest, t.a.IO.Width-12)) + " " + t.a.Now().Sub(s.start).Round(time.Second).String()
}
