package cli

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// task shows that something long is going on: a bar or a spinner with the
// elapsed time on a terminal, lines elsewhere, nothing with --json. All methods
// are safe for concurrent use.
type task struct {
	a      *app
	timer  *time.Timer
	cancel context.CancelFunc
	later  sync.WaitGroup

	// now is read by the bar's goroutine, which must never wait for mu: the
	// holder of mu may be waiting for that goroutine.
	now atomic.Pointer[stage]

	mu    sync.Mutex
	shown bool
	ended bool
	// known holds the steps that were announced: steps may alternate.
	known map[string]bool
	bars  *mpb.Progress
	bar   *mpb.Bar
	// total is the length of bar; 0 means that it is a spinner.
	total int64
}

// stage is what a task does at one time.
type stage struct {
	text  string
	start time.Time
}

// begin announces work that outlasts the patience; end must be called.
func (a *app) begin(text string) *task {
	t := &task{a: a, cancel: func() {}, known: map[string]bool{text: true}}
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

// step says, at once, what the work does now and how far that is: total is 0
// if nobody knows.
func (t *task) step(text string, done, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	if previous := t.now.Load(); previous.text != text {
		t.now.Store(&stage{text, t.a.Now()})
		t.turnTo(previous, text)
	}
	t.advance(done, total)
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

// end removes the bar and stops everything that begin and onLong started.
func (t *task) end() {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.cancel()
	t.later.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.bars != nil {
		t.bar.Abort(true)
		t.bars.Wait()
	}
}

func (t *task) show() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended && !t.shown {
		t.open()
	}
}

// turnTo announces a step that is new; the lock is held.
func (t *task) turnTo(previous *stage, text string) {
	if t.known[text] {
		return
	}
	t.known[text] = true
	if t.shown {
		t.note("  done: " + previous.text + " (" + t.a.took(previous.start) + ")")
	}
	t.open()
}

// open shows the present stage; the lock is held.
func (t *task) open() {
	t.shown = true
	switch {
	case !t.a.IO.ErrTerminal:
		t.a.say("%s…", t.now.Load().text)
	case t.bars == nil:
		t.bars = mpb.New(mpb.WithOutput(t.a.IO.Err), mpb.WithWidth(t.a.IO.Width), mpb.WithAutoRefresh())
		t.replaceBar(0)
	}
}

// advance moves the bar, and makes a new one if its length changed or it was
// completed before; the lock is held.
func (t *task) advance(done, total int64) {
	if t.bars == nil {
		return
	}
	if total != t.total || (t.bar.Completed() && done < total) {
		t.replaceBar(total)
	}
	if total > 0 {
		t.bar.SetCurrent(done)
	}
}

func (t *task) replaceBar(total int64) {
	if t.bar != nil {
		t.bar.Abort(true)
	}
	t.total = total
	options := []mpb.BarOption{mpb.BarRemoveOnComplete(), mpb.BarFillerTrim(), mpb.AppendDecorators(decor.Any(t.line))}
	if total == 0 {
		t.bar = t.bars.AddSpinner(0, append(options, mpb.BarWidth(2))...)
		return
	}
	t.bar = t.bars.AddBar(total, append(options, mpb.BarWidth(max(narrowest, t.a.IO.Width/4)))...)
}

// note leaves a line behind, above the bar if there is one; the lock is held.
func (t *task) note(line string) {
	if t.bars == nil {
		t.a.say("%s", line)
		return
	}
	_, _ = t.bars.Write([]byte(line + "\n")) // only the picture of the progress would suffer
}

// line is what stands beside the bar.
func (t *task) line(s decor.Statistics) string {
	now := t.now.Load()
	elapsed := t.a.Now().Sub(now.start).Round(time.Second).String()
	room := t.a.IO.Width - len(elapsed) - 6
	if s.Total > 0 {
		room -= t.a.IO.Width / 4
	}
	return " " + cut(now.text, max(narrowest, room)) + " " + elapsed
}
