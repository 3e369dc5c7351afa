package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

const (
	// lookAgain is how often a VM that does not run is looked at.
	lookAgain = 200 * time.Millisecond
	// patience is how long a running VM may fail to show a session before the
	// view ends.
	patience = 60 * time.Second
	// activeStep is how often typing is noted.
	activeStep = time.Second
)

// View shows one session to one client, also across pauses and broken links.
// Next is called by one goroutine, Write, Resize and Signal by another, Close by
// any.
type View struct {
	s     *Service
	vmID  string
	ctx   context.Context //nolint:containedctx // it lives as long as the view
	end   context.CancelCauseFunc
	first Session
	once  sync.Once
	// release ends the tie to the service's life.
	release func() bool

	mu      sync.Mutex
	changed sync.Cond
	stream  Stream // nil while the session cannot be reached
	err     error  // why the view has ended
	// cols and rows are the size asked for while it could not be reached.
	cols, rows int
	exited     bool
	active     time.Time
}

func (s *Service) view(ctx context.Context, ref string, open func(context.Context, string) (Stream, error)) (*View, error) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return nil, &fault.Error{Code: api.CodeUnavailable, Message: ErrEnding.Error(), Remedy: "try again in a moment"}
	}
	s.views.Add(1)
	s.mu.Unlock()
	v, err := s.look(ctx, ref, open)
	if err != nil {
		s.views.Done()
	}
	return v, err
}

func (s *Service) look(ctx context.Context, ref string, open func(context.Context, string) (Stream, error)) (*View, error) {
	machine, err := s.vms.Awake(ctx, ref)
	if err != nil {
		return nil, err
	}
	defer s.vms.Busy(machine.ID)()
	v := &View{s: s, vmID: machine.ID}
	v.changed.L = &v.mu
	// The caller's context bounds the opening; the view lasts until it is closed.
	v.ctx, v.end = context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { v.end(context.Cause(ctx)) })
	defer stop()
	if v.stream, err = open(v.ctx, v.vmID); err != nil { //nolint:contextcheck // made from ctx above
		v.end(err)
		return nil, err
	}
	v.first = v.stream.Session()
	v.release = context.AfterFunc(s.life, func() { v.fail(context.Cause(s.life)) }) //nolint:contextcheck // the service ends its views
	return v, nil
}

// Session is what the session was when the view began.
func (v *View) Session() Session { return v.first }

// Close ends the view; the session goes on. It is idempotent.
func (v *View) Close() {
	v.fail(io.ErrClosedPipe)
	v.once.Do(func() {
		v.release()
		v.s.views.Done()
	})
}

// fail ends the view and makes everybody return.
func (v *View) fail(err error) {
	v.mu.Lock()
	if v.err == nil {
		v.err = err
	}
	stream := v.stream
	v.changed.Broadcast()
	v.mu.Unlock()
	v.end(err)
	if stream != nil {
		stream.Close()
	}
}

// Next returns the next event. While the VM is paused it waits; afterwards the
// screen is drawn anew. It returns io.EOF when the session was closed, ErrEnding
// when the service is, and a fault when the session is gone.
func (v *View) Next() (Event, error) {
	for {
		stream, err := v.current()
		if err != nil {
			return Event{}, err
		}
		e, err := stream.Next()
		switch {
		case err == nil && e.Exited && v.exited:
			continue // told before the link broke
		case err == nil:
			v.exited = v.exited || e.Exited
			return e, nil
		case errors.Is(err, io.EOF):
			return Event{}, io.EOF
		}
		if err := v.reattach(stream); err != nil {
			return Event{}, err
		}
	}
}

func (v *View) current() (Stream, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.stream, v.err
}

// reattach waits until the session can be reached again.
func (v *View) reattach(lost Stream) error {
	lost.Close()
	v.mu.Lock()
	v.stream = nil
	v.changed.Broadcast()
	v.mu.Unlock()
	ran := time.Duration(0)
	for {
		running, err := v.running()
		if err != nil {
			return v.over(err)
		}
		if running {
			stream, err := v.s.node.AttachTerminal(v.ctx, v.vmID, Pick{ID: v.first.ID})
			if err == nil {
				return v.resume(stream)
			}
			if f := fault.As(err); f != nil && f.Code == api.CodeNotFound {
				return v.over(err)
			}
			if ran += lookAgain; ran > patience {
				return v.over(err)
			}
		}
		if err := v.rest(); err != nil {
			return err
		}
	}
}

// over ends the view with err, unless it has ended already.
func (v *View) over(err error) error {
	v.fail(err)
	_, err = v.current()
	return err
}

// running tells whether the VM runs. One that will not by itself is an error.
func (v *View) running() (bool, error) {
	machine, err := v.s.vms.Get(v.ctx, v.vmID)
	switch {
	case err != nil:
		return false, err
	case machine.State == api.StateStopped:
		return false, fault.Conflict(api.ReasonWrongState, "the vm has stopped and its terminals with it")
	}
	return machine.State == api.StateRunning, nil
}

// rest waits a little, unless the view has ended.
func (v *View) rest() error {
	timer := time.NewTimer(lookAgain)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-v.ctx.Done():
		_, err := v.current()
		return err
	}
}

// resume goes on with a new stream.
func (v *View) resume(stream Stream) error {
	v.mu.Lock()
	if v.err != nil {
		v.mu.Unlock()
		stream.Close()
		return v.err
	}
	v.stream = stream
	cols, rows := v.cols, v.rows
	v.cols, v.rows = 0, 0
	v.changed.Broadcast()
	v.mu.Unlock()
	if cols > 0 {
		_ = stream.Resize(cols, rows) // a broken link shows in Next
	}
	return nil
}

// Write types p. It is use of the VM: it keeps it running, and wakes it if it is
// paused.
func (v *View) Write(p []byte) (int, error) {
	total := 0
	err := v.typing(func(stream Stream) error {
		n, err := stream.Write(p[total:])
		total += n
		return err
	})
	return total, err
}

// Signal sends a signal to what runs in the foreground, as typing does.
func (v *View) Signal(number int) error {
	return v.typing(func(stream Stream) error { return stream.Signal(number) })
}

// typing does something to the session, once it can be reached.
func (v *View) typing(do func(Stream) error) error {
	for {
		stream, err := v.reached()
		if err != nil {
			return err
		}
		v.noteUse()
		if do(stream) == nil {
			return nil
		}
		// The link broke. Next finds out too, and finds the session again.
		v.await(stream)
	}
}

// reached returns the stream, and wakes the VM if there is none.
func (v *View) reached() (Stream, error) {
	stream, err := v.current()
	if stream != nil || err != nil {
		return stream, err
	}
	if _, err := v.s.vms.Awake(v.ctx, v.vmID); err != nil {
		return nil, fmt.Errorf("wake the vm for its terminal: %w", err)
	}
	v.await(nil)
	return v.current()
}

// await waits until the stream is another one than was, and not nil.
func (v *View) await(was Stream) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for v.err == nil && (v.stream == nil || v.stream == was) {
		if was != nil && v.stream == nil {
			return // reached wakes the VM if need be
		}
		v.changed.Wait()
	}
}

func (v *View) noteUse() {
	if time.Since(v.active) > activeStep {
		v.active = time.Now()
		v.s.vms.Active(v.vmID)
	}
}

// Resize changes the size of the session; in a paused VM, once it runs.
func (v *View) Resize(cols, rows int) error {
	if err := CheckSize(cols, rows); err != nil {
		return err
	}
	v.mu.Lock()
	stream, err := v.stream, v.err
	if stream == nil {
		v.cols, v.rows = cols, rows
	}
	v.mu.Unlock()
	if err != nil || stream == nil {
		return err
	}
	_ = stream.Resize(cols, rows) // a broken link shows in Next
	return nil
}
