package pando

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/pandovm/pando/api"
)

func execPath(ref, execID, verb string) (string, error) {
	path, err := objectPath("vms", ref, "exec")
	if err != nil {
		return "", err
	}
	if execID == "" || execID == "." || execID == ".." {
		return "", &api.Error{Code: api.CodeBadRequest, Field: "execID", Message: "the command's id is empty"}
	}
	path += "/" + url.PathEscape(execID)
	if verb != "" {
		path += "/" + verb
	}
	return path, nil
}

func callExec[T any](ctx context.Context, c *Client, method, ref, execID, verb string, in any) (T, error) {
	path, err := execPath(ref, execID, verb)
	if err != nil {
		var none T
		return none, err
	}
	return call[T](ctx, c, method, path, in)
}

// Execs lists the commands of a VM, newest first; ended ones for a day.
func (v *VMs) Execs(ctx context.Context, ref string) (api.ExecList, error) {
	return callOn[api.ExecList](ctx, v.c, http.MethodGet, "vms", ref, "exec", nil)
}

// GetExec returns one command.
func (v *VMs) GetExec(ctx context.Context, ref, execID string) (api.Exec, error) {
	return callExec[api.Exec](ctx, v.c, http.MethodGet, ref, execID, "", nil)
}

// SignalExec signals the process group of a command; signal is something like
// "TERM".
func (v *VMs) SignalExec(ctx context.Context, ref, execID, signal string) (api.Exec, error) {
	return callExec[api.Exec](ctx, v.c, http.MethodPost, ref, execID, "signal", api.SignalRequest{Signal: signal})
}

// DeleteExec kills a command with everything that it started, and forgets it.
func (v *VMs) DeleteExec(ctx context.Context, ref, execID string) error {
	_, err := callExec[nothing](ctx, v.c, http.MethodDelete, ref, execID, "", nil)
	return err
}

// StartExec starts a command and returns at once. Command is the way to follow
// one.
func (v *VMs) StartExec(ctx context.Context, ref string, r api.StartExecRequest) (api.Exec, error) {
	r.Detach = true
	e, err := callOn[api.ExecEvent](ctx, v.c, http.MethodPost, "vms", ref, "exec", r)
	if err != nil || e.Exec == nil {
		return api.Exec{}, err
	}
	return *e.Exec, nil
}

// ExecOutput reads what is kept of one output of a command, from offset on. The
// caller closes the reader, which returns an error if the output is not whole.
func (v *VMs) ExecOutput(ctx context.Context, ref, execID string, stream api.ExecStream, offset int64) (io.ReadCloser, error) {
	path, err := execPath(ref, execID, "output")
	if err != nil {
		return nil, err
	}
	path = withQuery(path, url.Values{"stream": {string(stream)}, "offset": {strconv.FormatInt(offset, 10)}})
	req, err := v.c.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := v.c.http.Do(req)
	if err != nil {
		return nil, v.c.transportError(ctx, http.MethodGet, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxLine))
		_ = resp.Body.Close()
		return nil, statusError(http.MethodGet, path, resp, body)
	}
	return resp.Body, nil
}

// WriteExecStdin passes input on and returns once the command has taken it.
// offset is where in its input body belongs, -1 for the end: what the command
// has already is left out. last ends the input.
func (v *VMs) WriteExecStdin(ctx context.Context, ref, execID string, body io.Reader, offset int64, last bool) (api.Exec, error) {
	var e api.Exec
	path, err := execPath(ref, execID, "stdin")
	if err != nil {
		return e, err
	}
	q := url.Values{"close": {strconv.FormatBool(last)}}
	if offset >= 0 {
		q.Set("offset", strconv.FormatInt(offset, 10))
	}
	path = withQuery(path, q)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, v.c.base+path, body)
	if err != nil {
		return e, v.c.foreignAnswer(http.MethodPost, path, err)
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	if v.c.key != "" {
		req.Header.Set("Authorization", "Bearer "+v.c.key)
	}
	resp, err := v.c.http.Do(req)
	if err != nil {
		return e, v.c.transportError(ctx, http.MethodPost, path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxLine))
	if err != nil {
		return e, v.c.transportError(ctx, http.MethodPost, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return e, statusError(http.MethodPost, path, resp, answer)
	}
	return e, v.c.decode(http.MethodPost, path, answer, &e)
}

// Processes lists the processes of a VM.
func (v *VMs) Processes(ctx context.Context, ref string) (api.ProcessList, error) {
	return callOn[api.ProcessList](ctx, v.c, http.MethodGet, "vms", ref, "processes", nil)
}

// SignalProcess signals one process of a VM.
func (v *VMs) SignalProcess(ctx context.Context, ref string, pid int, signal string) error {
	_, err := callOn[nothing](ctx, v.c, http.MethodPost, "vms", ref, "processes/"+strconv.Itoa(pid)+"/signal", api.SignalRequest{Signal: signal})
	return err
}

// maxUnsent bounds the input that was read and is not with the command yet.
const maxUnsent = 1 << 20

// unsent is input between its reader and its sender: while one part is under
// way, what comes next gathers.
type unsent struct {
	mu    sync.Mutex
	moved sync.Cond
	b     []byte
	ended bool
	// stopped: nobody sends any more.
	stopped bool
}

// feed passes Stdin on, and repeats what a broken connection may have swallowed.
func (c *Cmd) feed(ctx context.Context) {
	u := new(unsent)
	u.moved.L = &u.mu
	go u.fill(c.Stdin)
	defer u.stop()
	go func() {
		<-c.done
		u.stop()
		if p, ok := c.Stdin.(*io.PipeReader); ok {
			_ = p.CloseWithError(io.ErrClosedPipe) // whoever writes must learn that nobody reads
		}
	}()
	offset := c.exec.get().StdinBytes
	for {
		part, last := u.take()
		if part == nil && !last {
			return
		}
		if !c.feedPart(ctx, part, offset, last) || last {
			return
		}
		offset += int64(len(part))
	}
}

// feedPart sends one part until it has arrived, and tells whether the command
// may take more.
func (c *Cmd) feedPart(ctx context.Context, part []byte, offset int64, last bool) bool {
	pause := firstPause
	for {
		_, err := c.vms.WriteExecStdin(ctx, c.ref, c.ID(), bytes.NewReader(part), offset, last)
		var e *api.Error
		if err == nil {
			return true
		}
		if ctx.Err() != nil || errors.As(err, &e) && isFinal(err) {
			return false
		}
		select {
		case <-c.done:
			return false
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// fill reads until the input ends or nobody wants more.
func (u *unsent) fill(from io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		u.mu.Lock()
		for len(u.b)+n > maxUnsent && !u.stopped {
			u.moved.Wait()
		}
		u.b = append(u.b, buf[:n]...)
		u.ended = err != nil
		over := u.ended || u.stopped
		u.moved.Broadcast()
		u.mu.Unlock()
		if over {
			return
		}
	}
}

// take returns the next part, or nil once it was stopped; last says that the
// input ends with it.
func (u *unsent) take() (part []byte, last bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.b) == 0 && !u.ended && !u.stopped {
		u.moved.Wait()
	}
	if u.stopped {
		return nil, false
	}
	part, u.b = u.b, nil
	u.moved.Broadcast()
	return part, u.ended
}

func (u *unsent) stop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopped = true
	u.moved.Broadcast()
}
