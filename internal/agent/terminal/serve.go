package terminal

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/link"
)

// Open serves one PathTerminalOpen request: it opens a session and shows it.
func (s *Service) Open(st *http2.Stream) {
	frames := link.NewFrameReader(st)
	var o link.TerminalOrder
	if err := first(frames, link.FrameTerminalOrder, o.UnmarshalBinary); err != nil {
		answerRefusal(st, err)
		return
	}
	if err := checkSize(o.Cols, o.Rows); err != nil {
		answerRefusal(st, err)
		return
	}
	found, created, err := s.open(o)
	if err != nil {
		answerRefusal(st, err)
		return
	}
	serve(st, frames, found, created)
}

// Attach serves one PathTerminalAttach request: it shows a session.
func (s *Service) Attach(st *http2.Stream) {
	frames := link.NewFrameReader(st)
	found, err := s.picked(frames, s.find)
	if err != nil {
		answerRefusal(st, err)
		return
	}
	serve(st, frames, found, false)
}

func (s *Service) picked(frames *link.FrameReader, find func(link.TerminalPick) (*session, error)) (*session, error) {
	var p link.TerminalPick
	if err := first(frames, link.FrameTerminalPick, p.UnmarshalBinary); err != nil {
		return nil, err
	}
	return find(p)
}

// List serves one PathTerminalList request, which names a user or none.
func (s *Service) List(st *http2.Stream) {
	var p link.TerminalPick
	if err := first(link.NewFrameReader(st), link.FrameTerminalPick, p.UnmarshalBinary); err != nil {
		answerRefusal(st, err)
		return
	}
	var out []byte
	for _, d := range s.list(p.User) {
		body, _ := d.MarshalBinary()
		out = link.AppendFrame(out, link.FrameTerminalSession, body)
	}
	finish(st, out)
}

// Close serves one PathTerminalClose request.
func (s *Service) Close(st *http2.Stream) {
	var p link.TerminalPick
	err := first(link.NewFrameReader(st), link.FrameTerminalPick, p.UnmarshalBinary)
	var d link.TerminalSession
	if err == nil {
		d, err = s.remove(p)
	}
	if err != nil {
		answerRefusal(st, err)
		return
	}
	body, _ := d.MarshalBinary()
	finish(st, link.AppendFrame(nil, link.FrameTerminalSession, body))
}

func finish(w io.Writer, out []byte) {
	body, _ := link.Reply{}.MarshalBinary()
	_, _ = w.Write(link.AppendFrame(out, link.FrameReply, body)) // whoever asked may be gone
}

func answerRefusal(w io.Writer, err error) {
	r := link.Refusal{Text: err.Error()}
	if why, ok := errors.AsType[*refusal](err); ok {
		r.Cause = why.cause
	}
	r.Text = r.Text[:min(len(r.Text), 1024)]
	body, _ := r.MarshalBinary()
	_, _ = w.Write(link.AppendFrame(nil, link.FrameRefused, body))
}

// first reads the frame that a request begins with.
func first(frames *link.FrameReader, want link.FrameType, decode func([]byte) error) error {
	t, payload, err := frames.Next()
	if err == nil && t != want {
		err = link.ErrFrame
	}
	if err == nil {
		err = decode(payload)
	}
	if err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	return nil
}

func checkSize(cols, rows int) error {
	if cols < 1 || cols > link.MaxTerminalCols || rows < 1 || rows > link.MaxTerminalRows {
		return fmt.Errorf("size %d x %d: %w", cols, rows, link.ErrFrame)
	}
	return nil
}

// serve shows a session to the host and lets it type.
func serve(st *http2.Stream, frames *link.FrameReader, c *session, created bool) {
	v, ok := c.attach(created)
	if !ok {
		answerRefusal(st, refuse(link.CauseSessions, "%d viewers look at it", link.MaxTerminalViewers))
		return
	}
	defer v.detach()
	if created {
		c.begin()
	}
	d := c.describe()
	d.Created = created
	body, _ := d.MarshalBinary()
	if _, err := st.Write(link.AppendFrame(nil, link.FrameTerminalSession, body)); err != nil {
		return
	}
	// It ends when the stream does.
	go func() {
		defer v.end()
		c.obey(frames, v)
	}()
	v.run(st)
}

// obey does what the host says, until it hangs up or says nonsense.
func (s *session) obey(frames *link.FrameReader, v *viewer) {
	for {
		t, payload, err := frames.Next()
		if err != nil || s.order(t, payload, v) != nil {
			return
		}
	}
}

func (s *session) order(t link.FrameType, payload []byte, v *viewer) error {
	switch t {
	case link.FrameTerminalInput:
		return s.typed(payload, v)
	case link.FrameTerminalShown:
		n, err := link.ParseCount(payload)
		if err != nil {
			return err
		}
		v.shown(n)
	case link.FrameTerminalResize:
		cols, rows, err := link.ParseResize(payload)
		if err != nil {
			return err
		}
		if err := s.resize(cols, rows); err != nil {
			v.tell("resize: " + err.Error())
		}
	case link.FrameTerminalSignal:
		n, err := link.ParseCount(payload)
		if err != nil || n < 1 || n > 64 {
			return link.ErrFrame
		}
		if err := s.signal(syscall.Signal(n)); err != nil {
			v.tell("signal: " + err.Error())
		}
	default: // a newer host may say more than we understand
	}
	return nil
}
