package pando

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/pandovm/pando/api"
)

// Terminals are the terminal sessions of one VM. They belong to the guest: they
// go on without clients, and live through pauses, forks and restarts of the
// daemon.
type Terminals struct {
	c   *Client
	ref string
}

// Terminals returns the terminal sessions of the VM with that id or slug. It does
// not contact the daemon.
func (v *VMs) Terminals(ref string) *Terminals { return &Terminals{v.c, ref} }

// TerminalOptions say which session to open.
type TerminalOptions struct {
	// Exec is text for the user's shell; empty means a login shell.
	Exec string
	// Cols and Rows are the size, from 1 to 1000; 0 means 80 and 24.
	Cols, Rows int
	// User is the Linux user; empty means uid 1000, else root.
	User string
	// Slug names the session. If there is one of that name, it is attached to and
	// Exec is not run.
	Slug string
	// ReplaceOnExit starts the program again whenever it ends.
	ReplaceOnExit bool
}

// Open opens a session, or finds it by its slug, and attaches to it. A paused VM
// is resumed. ctx bounds the opening only.
func (t *Terminals) Open(ctx context.Context, o TerminalOptions) (*Terminal, error) {
	q := url.Values{}
	set(q, "exec", o.Exec)
	set(q, "linuxUser", o.User)
	set(q, "slug", o.Slug)
	if o.Cols != 0 {
		q.Set("cols", strconv.Itoa(o.Cols))
	}
	if o.Rows != 0 {
		q.Set("rows", strconv.Itoa(o.Rows))
	}
	if o.ReplaceOnExit {
		q.Set("replaceOnExit", "true")
	}
	return t.connect(ctx, "pty", q)
}

// Attach attaches to a session; name is its id or slug. The screen with its
// scrollback comes first, behind a terminal reset. ctx bounds the opening only.
func (t *Terminals) Attach(ctx context.Context, name string) (*Terminal, error) {
	path, err := sessionPath(name)
	if err != nil {
		return nil, err
	}
	return t.connect(ctx, path, nil)
}

// List lists the sessions, the oldest first.
func (t *Terminals) List(ctx context.Context) ([]api.PTYSession, error) {
	list, err := callOn[api.PTYSessionList](ctx, t.c, http.MethodGet, "vms", t.ref, "pty/sessions", nil)
	return list.Sessions, err
}

// Close ends the program of a session and forgets it.
func (t *Terminals) Close(ctx context.Context, name string) (api.ClosePTYSessionResponse, error) {
	path, err := sessionPath(name)
	if err != nil {
		return api.ClosePTYSessionResponse{}, err
	}
	return callOn[api.ClosePTYSessionResponse](ctx, t.c, http.MethodDelete, "vms", t.ref, path, nil)
}

func sessionPath(name string) (string, error) {
	path, err := objectPath("sessions", name, "")
	return "pty" + strings.TrimPrefix(path, "/v5"), err
}

func (t *Terminals) connect(ctx context.Context, verb string, q url.Values) (*Terminal, error) {
	path, err := objectPath("vms", t.ref, verb)
	if err != nil {
		return nil, err
	}
	s, err := t.c.dial(ctx, withQuery(path, q))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, s.drop)
	first, err := greeting(s)
	if !stop() {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		s.drop()
		return nil, t.c.transportError(ctx, http.MethodGet, path, err)
	}
	out := &Terminal{s: s, first: first, done: make(chan struct{}), code: -1}
	out.output, out.in = io.Pipe()
	go out.run()
	return out, nil
}

// greeting reads the frame that a session begins with.
func greeting(s *socket) (api.PTYFrame, error) {
	var f api.PTYFrame
	op, p, err := s.receive()
	if err != nil {
		return f, err
	}
	if op != opText || json.Unmarshal(p, &f) != nil || f.Type != api.PTYFrameSessionInfo {
		return f, errSocket
	}
	return f, nil
}

// Terminal is an attached session. Reading gives the program's output and
// writing is its input. All methods may be called concurrently.
//
// It must be read to make progress, until Read returns io.EOF at the program's
// end, and closed. While the VM is paused nothing comes; input resumes it, and
// then the screen is drawn anew behind a reset.
type Terminal struct {
	s      *socket
	first  api.PTYFrame
	output *io.PipeReader
	in     *io.PipeWriter

	once sync.Once
	done chan struct{}
	code int   // before done is closed: -1
	err  error // why there is no code
	mu   sync.Mutex
	told func(string)
}

// SessionID returns the session's id, which is unique in the VM.
func (t *Terminal) SessionID() int64 { return t.first.SessionID }

// Slug returns the session's name, or "".
func (t *Terminal) Slug() string { return t.first.Slug }

// Created says whether the session was made, rather than found.
func (t *Terminal) Created() bool { return t.first.Created == nil || *t.first.Created }

// OnMessage sets what is called with messages of the daemon: what could not be
// done, in words.
func (t *Terminal) OnMessage(f func(string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told = f
}

// Read reads output. It returns io.EOF once the program has ended and all that
// it wrote has been read, and another error if the connection broke.
func (t *Terminal) Read(p []byte) (int, error) { return t.output.Read(p) }

// Write types p.
func (t *Terminal) Write(p []byte) (int, error) {
	const step = 32 << 10
	total := 0
	for len(p) > 0 {
		n := min(len(p), step)
		if err := t.s.send(opBinary, p[:n]); err != nil {
			return total, err
		}
		p, total = p[n:], total+n
	}
	return total, nil
}

// Resize changes the size of the session, for all who look at it.
func (t *Terminal) Resize(cols, rows int) error {
	return t.tell(api.PTYFrame{Type: api.PTYFrameResize, Cols: cols, Rows: rows})
}

// Signal sends a signal such as "sigint" or "sigkill" to what runs in the
// foreground.
func (t *Terminal) Signal(name string) error {
	return t.tell(api.PTYFrame{Type: api.PTYFrameSignal, Signal: name})
}

func (t *Terminal) tell(f api.PTYFrame) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return t.s.send(opText, text)
}

// Wait waits for the program's end and returns its exit code. Somebody has to
// read the output meanwhile. If the connection ends first, it returns an error,
// and the program may be running.
func (t *Terminal) Wait() (int, error) {
	<-t.done
	return t.code, t.err
}

// Close detaches; the session goes on. It is idempotent.
func (t *Terminal) Close() error {
	_ = t.output.CloseWithError(io.ErrClosedPipe)
	return t.s.close()
}

// run takes what the daemon sends until the connection ends.
func (t *Terminal) run() {
	defer t.s.drop()
	for {
		op, p, err := t.s.receive()
		if err != nil {
			t.finish(-1, err)
			return
		}
		if op == opBinary {
			_, _ = t.in.Write(p) // fails once it is closed
			continue
		}
		var f api.PTYFrame
		if json.Unmarshal(p, &f) != nil {
			continue // a newer daemon may say more than we understand
		}
		switch {
		case f.Type == api.PTYFrameExited && f.ExitCode != nil:
			t.finish(*f.ExitCode, nil)
		case f.Type == api.PTYFrameError:
			t.message(f.Message)
		}
	}
}

func (t *Terminal) message(text string) {
	t.mu.Lock()
	told := t.told
	t.mu.Unlock()
	if told != nil {
		told(text)
	}
}

func (t *Terminal) finish(code int, err error) {
	t.once.Do(func() {
		t.code, t.err = code, err
		close(t.done)
		_ = t.in.CloseWithError(err) // nil is io.EOF
	})
}
