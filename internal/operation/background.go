package operation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// The limits of background requests.
const (
	// DefaultKeepResult is how long an answer can be fetched after the work has ended.
	DefaultKeepResult = 10 * time.Minute
	// MaxResultBytes bounds one kept answer, MaxKeptBytes all of them together.
	MaxResultBytes = 16 << 20
	MaxKeptBytes   = 64 << 20
	// MaxBackground bounds the requests that are under way or kept. Beyond it
	// requests are answered in line, however long they take.
	MaxBackground = 1000
	// MaxBackgroundAfter is the longest time that a client may ask to wait in line.
	MaxBackgroundAfter = 24 * time.Hour
)

// abortPatience is how long work has to return after it was cancelled.
const abortPatience = 10 * time.Second

// Origin says where a background request came from. Only its owner can fetch
// the answer. Operation and Ref are what a transport needs to check at each
// fetch whether the owner may still see it.
type Origin struct {
	Owner, Operation, Ref string
}

// Background lets work outlive the connection that asked for it. It is safe
// for concurrent use.
type Background struct {
	ctx    context.Context //nolint:containedctx // The lifetime of the work itself, not of a request.
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	// tasks are those that were promised, by id; kept is what their answers
	// occupy in bytes.
	tasks map[string]*task
	kept  int
}

// task is one piece of work.
type task struct {
	origin Origin
	// over is closed when the work has ended.
	over chan struct{}
	// The rest is guarded by Background.mu. id is empty until the client was
	// told to ask later; unstorable says that the answer was not kept.
	id               string
	done, unstorable bool
	answer           Answer
	expiry           *time.Timer
	// late hears of the end if the client was told to ask later.
	late func(id string, a Answer)
}

// NewBackground returns a Background without work.
func NewBackground() *Background {
	b := &Background{tasks: map[string]*task{}}
	b.ctx, b.cancel = context.WithCancel(context.Background()) //nolint:forbidigo // It outlives every request.
	return b
}

// Run does work and waits for it up to after. If it has ended by then, Run
// returns its answer and an empty id, and keeps nothing. Otherwise Run returns
// the id under which the answer can be fetched, and the work goes on.
//
// late hears of the end of work that nobody waited for.
//
// The context of the work has the values of ctx. It ends when ctx does while
// Run waits, and from then on only with the Background.
func (b *Background) Run(ctx context.Context, o Origin, after time.Duration, work func(context.Context) Answer, late func(id string, a Answer)) (Answer, string, error) {
	t := &task{origin: o, over: make(chan struct{}), late: late}
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if !b.start(t, detached, cancel, work) {
		cancel()
		return Answer{}, "", &fault.Error{
			Code: api.CodeUnavailable, Message: "the daemon is ending", Remedy: "send the request again in a moment",
		}
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-t.over:
		return t.answer, "", nil
	case <-timer.C:
		if id := b.promise(t); id != "" {
			return Answer{}, id, nil
		}
	case <-ctx.Done():
	}
	// It has just ended, it cannot be admitted, or its client is gone.
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	<-t.over
	return t.answer, "", nil
}

func (b *Background) start(t *task, ctx context.Context, cancel context.CancelFunc, work func(context.Context) Answer) bool { //nolint:revive // The task is what is started.
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.work.Go(func() {
		defer cancel()
		stop := context.AfterFunc(b.ctx, cancel) //nolint:contextcheck // the daemon ending ends the work
		defer stop()
		a := work(ctx)
		if id := b.finish(t, a); id != "" {
			t.late(id, a)
		}
	})
	return true
}

// promise gives the task an id, unless it has ended or cannot be admitted.
func (b *Background) promise(t *task) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.done || len(b.tasks) >= MaxBackground {
		return ""
	}
	t.id = "bgr-" + newID()
	b.tasks[t.id] = t
	return t.id
}

// finish keeps the answer if it was promised, and returns its id then.
func (b *Background) finish(t *task, a Answer) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.answer, t.done = a, true
	close(t.over)
	if t.id == "" {
		return ""
	}
	if n := a.size(); n > MaxResultBytes || b.kept+n > MaxKeptBytes {
		t.answer, t.unstorable = Answer{Status: a.Status, RequestID: a.RequestID}, true
	}
	b.kept += t.answer.size()
	if !b.closed {
		t.expiry = time.AfterFunc(DefaultKeepResult, func() { b.forget(t) })
	}
	return t.id
}

func (b *Background) forget(t *task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.tasks, t.id)
	b.kept -= t.answer.size()
}

// Result returns the answer of a background request, and false while it is
// under way. It is fault NOT_FOUND if the owner has no such request or its
// answer has expired, BACKGROUND_RESULT_UNSTORABLE if the answer was too large
// to be kept.
func (b *Background) Result(owner, id string) (Answer, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tasks[id]
	switch {
	case t == nil || t.origin.Owner != owner:
		return Answer{}, false, &fault.Error{
			Code: api.CodeNotFound, Message: "no background request has the id " + strconv.Quote(clip(id)),
			Remedy: "fetch an answer within " + DefaultKeepResult.String() + " after the work has ended",
		}
	case t.unstorable:
		return Answer{}, true, unstorable(t.answer)
	}
	a := t.answer
	a.Replayed = true
	return a, t.done, nil
}

func unstorable(a Answer) error {
	f := &fault.Error{
		Code:    api.CodeBackgroundResultUnstorable,
		Message: fmt.Sprintf("the request was carried out with status %d, and its answer is too large to be kept", a.Status),
	}
	return f.Hint("ask for less, or send the request without the background header; answers of up to %d bytes are kept", MaxResultBytes)
}

// clip bounds what an error repeats of the request.
func clip(s string) string {
	const limit = 100
	return s[:min(len(s), limit)]
}

// Close admits no more work, waits for what is under way until ctx ends, then
// cancels it and waits for its end. Kept answers are dropped.
func (b *Background) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	for _, t := range b.tasks {
		if t.expiry != nil {
			t.expiry.Stop()
		}
	}
	b.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		b.work.Wait()
		close(ended)
	}()
	defer b.cancel()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	b.cancel()
	select {
	case <-ended:
		return nil
	case <-time.After(abortPatience):
		return errors.New("end background requests: some do not react to their cancellation")
	}
}
