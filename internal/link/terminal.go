package link

import (
	"encoding/binary"
	"fmt"
	"time"
)

// The paths of terminals. PathTerminalOpen and PathTerminalAttach are streams
// in both directions for as long as somebody looks; the others are answered
// with FrameTerminalSession in any number and FrameReply, or FrameRefused.
const (
	PathTerminalOpen   = "/terminal/open"
	PathTerminalAttach = "/terminal/attach"
	PathTerminalList   = "/terminal/list"
	PathTerminalClose  = "/terminal/close"
)

// The frames of a terminal. The host begins with FrameTerminalOrder or
// FrameTerminalPick and goes on with the others as it likes. The agent begins
// with FrameTerminalSession, or FrameRefused alone.
//
// Neither side sends more than TerminalWindow bytes of output, or
// TerminalInputWindow of input, of which the other has not said that they are
// gone: FrameTerminalShown and FrameTerminalTaken carry the number of bytes.
const (
	FrameTerminalOrder  FrameType = 64
	FrameTerminalPick   FrameType = 65
	FrameTerminalInput  FrameType = 66
	FrameTerminalResize FrameType = 67
	FrameTerminalSignal FrameType = 68
	FrameTerminalShown  FrameType = 69

	FrameTerminalSession FrameType = 80
	FrameTerminalOutput  FrameType = 81
	// FrameTerminalExit follows the last output: the exit status as a count.
	FrameTerminalExit  FrameType = 82
	FrameTerminalTaken FrameType = 83
	// FrameTerminalError says in words why something could not be done. The
	// stream goes on.
	FrameTerminalError FrameType = 84
)

const (
	// TerminalWindow bounds the output on its way to one viewer.
	TerminalWindow = 128 << 10
	// TerminalInputWindow bounds the input of one viewer that the program has not
	// taken.
	TerminalInputWindow = 64 << 10
	// MaxTerminalCols bounds the width of a terminal.
	MaxTerminalCols = 1000
	// MaxTerminalRows bounds its height.
	MaxTerminalRows = 1000
)

// What one guest keeps. internal/terminal promises the same to clients.
const (
	// MaxTerminals bounds the sessions whose programs run, and
	// MaxTerminalViewers those who look at one session.
	MaxTerminals       = 64
	MaxTerminalViewers = 16
	// The last screen of a program that has ended can be looked at for
	// KeptTerminalFor, and KeptTerminals of them at most.
	KeptTerminals   = 32
	KeptTerminalFor = 10 * time.Minute
	// MaxScrollbackLines and MaxScrollback, in bytes, bound the scrollback of a
	// session, and SharedScrollback that of all together.
	MaxScrollbackLines = 10000
	MaxScrollback      = 1 << 20
	SharedScrollback   = 8 << 20
)

// The causes of a refusal that only terminals have.
const (
	// CauseNoSession: no session has that id or slug, or it is another user's.
	CauseNoSession Cause = 64
	// CauseOwner: the slug is that of a session of another user.
	CauseOwner Cause = 65
	// CauseSessions: there are as many sessions, or viewers, as there may be.
	CauseSessions Cause = 66
)

// TerminalOrder opens a session, or finds it by its slug.
type TerminalOrder struct {
	// Command is text for the user's shell; empty means the login shell itself.
	Command string
	// User is an account of the guest; empty means uid 1000, else root.
	User string
	// Slug names the session while its program runs; empty means no name.
	Slug       string
	Cols, Rows int
	// Replace starts the program again whenever it ends.
	Replace bool
}

const (
	terminalCommand = iota + 1
	terminalUser
	terminalSlug
	terminalCols
	terminalRows
	terminalReplace
)

// MarshalBinary encodes o as a record. It never fails.
func (o TerminalOrder) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.text(terminalCommand, o.Command)
	enc.text(terminalUser, o.User)
	enc.text(terminalSlug, o.Slug)
	enc.int(terminalCols, int64(o.Cols))
	enc.int(terminalRows, int64(o.Rows))
	enc.flag(terminalReplace, o.Replace)
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (o *TerminalOrder) UnmarshalBinary(b []byte) error {
	*o = TerminalOrder{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case terminalCommand:
			o.Command = d.text()
		case terminalUser:
			o.User = d.text()
		case terminalSlug:
			o.Slug = d.text()
		case terminalCols:
			o.Cols = int(d.int())
		case terminalRows:
			o.Rows = int(d.int())
		case terminalReplace:
			o.Replace = d.flag()
		}
	}
	if d.err != nil {
		return fmt.Errorf("decode terminal order: %w", d.err)
	}
	return nil
}

// TerminalPick names a session: by its id, or by its slug if that is not empty.
// With a user it must be that user's.
type TerminalPick struct {
	ID         int64
	Slug, User string
}

const (
	pickID = iota + 1
	pickSlug
	pickUser
)

// MarshalBinary encodes p as a record. It never fails.
func (p TerminalPick) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.int(pickID, p.ID)
	enc.text(pickSlug, p.Slug)
	enc.text(pickUser, p.User)
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (p *TerminalPick) UnmarshalBinary(b []byte) error {
	*p = TerminalPick{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case pickID:
			p.ID = d.int()
		case pickSlug:
			p.Slug = d.text()
		case pickUser:
			p.User = d.text()
		}
	}
	if d.err != nil {
		return fmt.Errorf("decode terminal pick: %w", d.err)
	}
	return nil
}

// TerminalSession describes a session.
type TerminalSession struct {
	ID         int64
	Slug, User string
	// Title is what the program has set, at most a kilobyte.
	Title       string
	CreatedUnix int64
	Cols, Rows  int
	// Exited: the program has ended, with ExitCode.
	Exited   bool
	ExitCode int
	// Created: the request made the session, rather than finding it.
	Created bool
	// Viewers is how many are attached.
	Viewers int
}

const (
	sessionID = iota + 1
	sessionSlug
	sessionUser
	sessionTitle
	sessionCreatedUnix
	sessionCols
	sessionRows
	sessionExited
	sessionExitCode
	sessionCreated
	sessionViewers
)

// MarshalBinary encodes s as a record. It never fails.
func (s TerminalSession) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.int(sessionID, s.ID)
	enc.text(sessionSlug, s.Slug)
	enc.text(sessionUser, s.User)
	enc.text(sessionTitle, s.Title)
	enc.int(sessionCreatedUnix, s.CreatedUnix)
	enc.int(sessionCols, int64(s.Cols))
	enc.int(sessionRows, int64(s.Rows))
	enc.flag(sessionExited, s.Exited)
	enc.int(sessionExitCode, int64(s.ExitCode))
	enc.flag(sessionCreated, s.Created)
	enc.int(sessionViewers, int64(s.Viewers))
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (s *TerminalSession) UnmarshalBinary(b []byte) error {
	*s = TerminalSession{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case sessionID:
			s.ID = d.int()
		case sessionSlug:
			s.Slug = d.text()
		case sessionUser:
			s.User = d.text()
		case sessionTitle:
			s.Title = d.text()
		case sessionCreatedUnix:
			s.CreatedUnix = d.int()
		case sessionCols:
			s.Cols = int(d.int())
		case sessionRows:
			s.Rows = int(d.int())
		case sessionExited:
			s.Exited = d.flag()
		case sessionExitCode:
			s.ExitCode = int(d.int())
		case sessionCreated:
			s.Created = d.flag()
		case sessionViewers:
			s.Viewers = int(d.int())
		}
	}
	if d.err != nil {
		return fmt.Errorf("decode terminal session: %w", d.err)
	}
	return nil
}

// AppendCount appends a frame whose payload is a number.
func AppendCount(b []byte, t FrameType, n int) []byte {
	return AppendFrame(b, t, binary.BigEndian.AppendUint32(nil, uint32(n)))
}

// ParseCount returns the number in the payload of such a frame.
func ParseCount(payload []byte) (int, error) {
	if len(payload) != 4 {
		return 0, fmt.Errorf("read count of %d bytes: %w", len(payload), ErrFrame)
	}
	return int(binary.BigEndian.Uint32(payload)), nil
}

// AppendResize appends a FrameTerminalResize.
func AppendResize(b []byte, cols, rows int) []byte {
	p := binary.BigEndian.AppendUint16(nil, uint16(cols))
	return AppendFrame(b, FrameTerminalResize, binary.BigEndian.AppendUint16(p, uint16(rows)))
}

// ParseResize returns the size in the payload of a FrameTerminalResize, which
// is within the bounds.
func ParseResize(payload []byte) (cols, rows int, err error) {
	if len(payload) != 4 {
		return 0, 0, fmt.Errorf("read size of %d bytes: %w", len(payload), ErrFrame)
	}
	cols, rows = int(binary.BigEndian.Uint16(payload)), int(binary.BigEndian.Uint16(payload[2:]))
	if cols < 1 || cols > MaxTerminalCols || rows < 1 || rows > MaxTerminalRows {
		return 0, 0, fmt.Errorf("size of %d x %d: %w", cols, rows, ErrFrame)
	}
	return cols, rows, nil
}
