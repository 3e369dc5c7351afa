package pando

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/pandovm/pando/api"
)

const (
	// silence is how long a daemon that is there may say nothing: it sends pings
	// three times as often.
	silence = 30 * time.Second
	// maxLine bounds one event.
	maxLine = 1 << 20
	// reattachFor is how long a broken stream is tried to be continued.
	reattachFor = 5 * time.Minute
	// firstPause and longestPause are between two attempts; pausedPause is
	// between two looks at a paused VM.
	firstPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
	pausedPause  = time.Second
)

// execStream is the stream of a command's events.
type execStream struct {
	lines  *bufio.Scanner
	cancel context.CancelFunc
	body   io.Closer
	timer  *time.Timer
}

func openExecStream(ctx context.Context, c *Client, method, path string, in any) (*execStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	req, err := c.request(ctx, method, path, in)
	if err != nil {
		cancel()
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		err = c.transportError(ctx, method, path, err)
		cancel()
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxLine))
		_ = resp.Body.Close()
		cancel()
		return nil, statusError(method, path, resp, body)
	}
	s := &execStream{lines: bufio.NewScanner(resp.Body), cancel: cancel, body: resp.Body}
	s.lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	s.timer = time.AfterFunc(silence, cancel)
	return s, nil
}

// next returns the next event. Whatever ends the stream is a *brokenStreamError.
func (s *execStream) next() (api.ExecEvent, error) {
	s.timer.Reset(silence)
	var e api.ExecEvent
	if !s.lines.Scan() {
		err := s.lines.Err()
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return e, &brokenStreamError{err}
	}
	if err := json.Unmarshal(s.lines.Bytes(), &e); err != nil {
		return e, &brokenStreamError{fmt.Errorf("decode event: %w", err)}
	}
	if e.Type == api.EventExec && e.Exec == nil || e.Type == api.EventError && e.Error == nil {
		return e, &brokenStreamError{errors.New("incomplete event")}
	}
	return e, nil
}

func (s *execStream) close() {
	s.timer.Stop()
	s.cancel()
	_ = s.body.Close()
}

// brokenStreamError says that a stream ended before its command.
type brokenStreamError struct{ err error }

// Error says why.
func (e *brokenStreamError) Error() string { return "the command's stream broke off: " + e.err.Error() }

// Unwrap returns the cause.
func (e *brokenStreamError) Unwrap() error { return e.err }

func isBreak(err error) bool {
	var broke *brokenStreamError
	return errors.As(err, &broke)
}

// reattach continues a stream that broke off with cause.
func (c *Cmd) reattach(cause error) (*execStream, error) {
	deadline := time.Now().Add(reattachFor)
	pause := firstPause
	for {
		asleep, err := c.asleep()
		if err == nil && !asleep {
			var s *execStream
			if s, err = c.attach(c.ctx); err == nil {
				return s, nil
			}
		}
		switch {
		case asleep:
			pause, deadline = pausedPause, time.Now().Add(reattachFor)
		case c.ctx.Err() != nil || isFinal(err) || time.Now().After(deadline):
			return nil, c.whyEnded(fmt.Errorf("command %s: %w", c.ID(), errors.Join(err, cause)))
		}
		select {
		case <-c.ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// asleep tells whether the VM is paused: to ask for its commands would wake it.
func (c *Cmd) asleep() (bool, error) {
	vm, err := c.vms.Get(c.ctx, c.ref)
	if err != nil {
		return false, err
	}
	return vm.State == api.StatePaused || vm.State == api.StatePausing, nil
}

// isFinal tells whether to ask again would bring the same answer.
func isFinal(err error) bool {
	var e *api.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Code != api.CodeVMNonResponsive && e.Code != api.CodeUnavailable && e.Code != api.CodeInternal && e.Code != CodeUnknown
}

// atomicExec is an api.Exec for several goroutines.
type atomicExec struct {
	mu sync.Mutex
	e  api.Exec
}

func (a *atomicExec) get() api.Exec {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.e
}

func (a *atomicExec) set(e api.Exec) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.e = e
}
