package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/link"
)

// TerminalOrder opens a terminal session, or finds the one with its slug.
type TerminalOrder struct {
	// Command is text for the user's shell; empty means a login shell.
	Command string
	// User is an account of the guest; empty means uid 1000, else root.
	User string
	Slug string
	// Cols and Rows are from 1 to 1000.
	Cols, Rows int
	// Replace starts the program again whenever it ends.
	Replace bool
}

// TerminalPick names a session by its slug, or if that is empty by its id. With
// a user it must be that user's.
type TerminalPick struct {
	ID         int64
	Slug, User string
}

// TerminalSession describes a session.
type TerminalSession struct {
	ID                int64
	Slug, User, Title string
	Created           time.Time
	Cols, Rows        int
	Exited            bool
	ExitCode          int
	// New: the request made the session, rather than finding it.
	New     bool
	Viewers int
}

// TerminalEvent is one thing that a session shows: Output, or Exited with
// ExitCode, or a Message.
type TerminalEvent struct {
	Output   []byte
	Exited   bool
	ExitCode int
	Message  string
}

// Terminal is an open view of a session. Next is called by one goroutine; the
// others may be called by another, and Close by any.
type Terminal struct {
	Session TerminalSession

	x      *exchange
	frames *link.FrameReader
	body   *io.PipeWriter
	shown  int

	mu      sync.Mutex
	room    sync.Cond
	waiting int // input that the program has not taken
	closed  bool
}

// OpenTerminal opens or finds a session and attaches to it. The session goes on
// when the terminal is closed or the link breaks.
//
// An unknown user is fault BAD_REQUEST with field linuxUser, a slug of another
// user's fault CONFLICT, and too many sessions fault LIMIT_EXCEEDED; a guest that stops
// answering, or answers with nonsense, is fault VM_NON_RESPONSIVE.
func (l *Link) OpenTerminal(ctx context.Context, o TerminalOrder) (*Terminal, error) {
	record, _ := link.TerminalOrder{
		Command: o.Command, User: o.User, Slug: o.Slug, Cols: o.Cols, Rows: o.Rows, Replace: o.Replace,
	}.MarshalBinary()
	if len(record) > link.MaxFrame {
		return nil, fault.BadField("exec", "is longer than %d bytes", link.MaxFrame)
	}
	return l.terminal(ctx, link.PathTerminalOpen, link.AppendFrame(nil, link.FrameTerminalOrder, record), o.User)
}

// AttachTerminal attaches to a session: fault NOT_FOUND if there is none.
func (l *Link) AttachTerminal(ctx context.Context, p TerminalPick) (*Terminal, error) {
	return l.terminal(ctx, link.PathTerminalAttach, encodePick(p), p.User)
}

func encodePick(p TerminalPick) []byte {
	record, _ := link.TerminalPick(p).MarshalBinary()
	return link.AppendFrame(nil, link.FrameTerminalPick, record)
}

func (l *Link) terminal(ctx context.Context, path string, request []byte, user string) (*Terminal, error) {
	body, send := io.Pipe()
	go func() { _, _ = send.Write(request) }() // the exchange takes it, or closes the pipe
	x, err := l.open(ctx, path, body)
	if err != nil {
		_ = body.Close()
		return nil, err
	}
	t := &Terminal{x: x, frames: link.NewFrameReader(x.body), body: send}
	t.room.L = &t.mu
	if err := t.greet(user); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// greet reads the session, or the refusal.
func (t *Terminal) greet(user string) error {
	kind, payload, err := t.frames.Next()
	switch {
	case err != nil:
	case kind == link.FrameTerminalSession:
		t.Session, err = decodeSession(payload)
	case kind == link.FrameRefused:
		var r link.Refusal
		if err = r.UnmarshalBinary(payload); err == nil {
			return terminalRefused(r, user)
		}
	case kind == link.FrameReply:
		return oldAgent()
	default:
		err = link.ErrFrame
	}
	if err != nil {
		return t.x.broken(err)
	}
	return nil
}

func decodeSession(payload []byte) (TerminalSession, error) {
	var d link.TerminalSession
	if err := d.UnmarshalBinary(payload); err != nil {
		return TerminalSession{}, err
	}
	const name = 256
	if d.ID < 1 || d.Cols < 1 || d.Cols > link.MaxTerminalCols || d.Rows < 1 || d.Rows > link.MaxTerminalRows ||
		d.ExitCode < 0 || d.ExitCode > 255 || d.Viewers < 0 || len(d.Slug) > name || len(d.User) > name || len(d.Title) > 4*name {
		return TerminalSession{}, fmt.Errorf("impossible session: %w", link.ErrFrame)
	}
	return TerminalSession{
		ID: d.ID, Slug: d.Slug, User: d.User, Title: d.Title, Created: time.Unix(d.CreatedUnix, 0), Cols: d.Cols, Rows: d.Rows,
		Exited: d.Exited, ExitCode: d.ExitCode, New: d.Created, Viewers: d.Viewers,
	}, nil
}

// Next waits for the next event. Its output is valid until the call after. It
// returns io.EOF when the session has been closed.
func (t *Terminal) Next() (TerminalEvent, error) {
	if err := t.credit(); err != nil {
		return TerminalEvent{}, t.x.broken(err)
	}
	for {
		kind, payload, err := t.frames.Next()
		if errors.Is(err, io.EOF) {
			return TerminalEvent{}, io.EOF
		}
		if err != nil {
			return TerminalEvent{}, t.x.broken(err)
		}
		e, known, err := t.event(kind, payload)
		if err != nil {
			return TerminalEvent{}, t.x.broken(err)
		}
		if known {
			return e, nil
		}
	}
}

// credit tells the agent what has been shown, in steps.
func (t *Terminal) credit() error {
	if t.shown < link.TerminalWindow/4 {
		return nil
	}
	n := t.shown
	t.shown = 0
	return t.send(link.AppendCount(nil, link.FrameTerminalShown, n))
}

func (t *Terminal) event(kind link.FrameType, payload []byte) (e TerminalEvent, known bool, err error) {
	switch kind {
	case link.FrameTerminalOutput:
		t.shown += len(payload)
		return TerminalEvent{Output: payload}, true, nil
	case link.FrameTerminalExit:
		e.Exited = true
		if e.ExitCode, err = link.ParseCount(payload); err == nil && e.ExitCode > 255 {
			err = fmt.Errorf("exit status %d: %w", e.ExitCode, link.ErrFrame)
		}
		return e, true, err
	case link.FrameTerminalError:
		return TerminalEvent{Message: fmt.Sprintf("%.300q", payload)}, true, nil
	case link.FrameTerminalTaken:
		n, err := link.ParseCount(payload)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.waiting = max(t.waiting-n, 0)
		t.room.Broadcast()
		return e, false, err
	default: // a newer agent may say more than we understand
		return e, false, nil
	}
}

// send passes frames on as one.
func (t *Terminal) send(frames []byte) error {
	_, err := t.body.Write(frames)
	return err
}

// Write types p. It waits while the program does not read what was typed before.
func (t *Terminal) Write(p []byte) (int, error) {
	const step = link.TerminalInputWindow / 4
	total := 0
	for len(p) > 0 {
		n := min(len(p), step)
		if err := t.await(n); err != nil {
			return total, err
		}
		if err := t.send(link.AppendFrame(nil, link.FrameTerminalInput, p[:n])); err != nil {
			return total, fmt.Errorf("type: %w", err)
		}
		p, total = p[n:], total+n
	}
	return total, nil
}

// await waits for room for n bytes.
func (t *Terminal) await(n int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.waiting+n > link.TerminalInputWindow && !t.closed {
		t.room.Wait()
	}
	if t.closed {
		return io.ErrClosedPipe
	}
	t.waiting += n
	return nil
}

// Resize changes the size of the session.
func (t *Terminal) Resize(cols, rows int) error {
	return t.send(link.AppendResize(nil, cols, rows))
}

// Signal sends the signal of that number to what runs in the foreground.
func (t *Terminal) Signal(number int) error {
	return t.send(link.AppendCount(nil, link.FrameTerminalSignal, number))
}

// Close ends the view; the session goes on. It is idempotent, and makes the
// other calls return.
func (t *Terminal) Close() {
	t.mu.Lock()
	t.closed = true
	t.room.Broadcast()
	t.mu.Unlock()
	_ = t.body.CloseWithError(io.ErrClosedPipe)
	t.x.Close()
}

// Terminals lists the sessions of a user, or all if that is empty, the oldest
// first.
func (l *Link) Terminals(ctx context.Context, user string) ([]TerminalSession, error) {
	return l.sessions(ctx, link.PathTerminalList, TerminalPick{User: user})
}

// CloseTerminal ends a session and returns what it was: fault NOT_FOUND if there
// is none.
func (l *Link) CloseTerminal(ctx context.Context, p TerminalPick) (TerminalSession, error) {
	all, err := l.sessions(ctx, link.PathTerminalClose, p)
	if err == nil && len(all) != 1 {
		err = l.lost(ctx, "terminal/close", link.ErrFrame)
	}
	if err != nil {
		return TerminalSession{}, err
	}
	return all[0], nil
}

// maxTerminals bounds a list: many more than an agent keeps.
const maxTerminals = 1000

func (l *Link) sessions(ctx context.Context, path string, p TerminalPick) ([]TerminalSession, error) {
	var all []TerminalSession
	var refusal *link.Refusal
	var reply link.Reply
	err := l.roundTrip(ctx, path, encodePick(p), func(frames *link.FrameReader) error {
		for len(all) <= maxTerminals {
			kind, payload, err := frames.Next()
			if err != nil {
				return err
			}
			switch kind {
			case link.FrameTerminalSession:
				d, err := decodeSession(payload)
				if err != nil {
					return err
				}
				all = append(all, d)
			case link.FrameRefused:
				refusal = new(link.Refusal)
				return refusal.UnmarshalBinary(payload)
			case link.FrameReply:
				return reply.UnmarshalBinary(payload)
			default:
			}
		}
		return link.ErrFrame
	})
	if err == nil && refusal != nil {
		err = terminalRefused(*refusal, p.User)
	}
	if err == nil && reply.Error != "" {
		err = oldAgent()
	}
	return all, err
}

// terminalRefused makes the error of a refusal.
func terminalRefused(r link.Refusal, user string) error {
	detail := fmt.Errorf("agent reports %.300q", r.Text)
	switch r.Cause {
	case link.CauseUser:
		return fault.BadField("linuxUser", "the guest has no user %q", user).
			Hint("name a user of the guest's /etc/passwd, or leave linuxUser out").With(detail)
	case link.CauseCommand:
		return fault.BadField("exec", "too long, or with a NUL byte").Hint("keep it under 128 KiB").With(detail)
	case link.CauseNoSession:
		return noSession().With(detail)
	case link.CauseOwner:
		return fault.Conflict("", "slug: a session of another user has it").
			Hint("choose another slug, or leave linuxUser out").With(detail)
	case link.CauseSessions:
		return tooManySessions().With(detail)
	default:
		return fmt.Errorf("terminal in the guest: %w", detail)
	}
}

func noSession() *fault.Error {
	return &fault.Error{
		Code: api.CodeNotFound, Message: "no terminal session of this vm has that id or slug",
		Remedy: "list what exists with: pando vm sessions VM",
	}
}

func tooManySessions() *fault.Error {
	return &fault.Error{
		Code:    api.CodeLimitExceeded,
		Message: fmt.Sprintf("the vm has %d terminal sessions, or the session %d viewers", link.MaxTerminals, link.MaxTerminalViewers),
		Remedy:  "close some: pando vm sessions VM --close ID",
	}
}

// oldAgent is the error of a request that the agent does not know.
func oldAgent() *fault.Error {
	return &fault.Error{
		Code: api.CodeAgentUnsupported, Message: "the agent in this guest is too old for terminals",
		Remedy: "make the vm anew from a present image",
	}
}
