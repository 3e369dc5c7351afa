package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/link"
)

// Port is the agent's end of the byte stream to the host.
type Port interface {
	// Read returns io.EOF when the host has hung up; the next Read waits for the
	// next host.
	io.Reader
	// Write may block while no host is there.
	io.Writer
	// SetWriteDeadline makes a Write return that is blocked.
	SetWriteDeadline(t time.Time) error
	// Close makes a blocked Read return.
	io.Closer
}

// Config is what a Server is made of.
type Config struct {
	Port   Port
	System System
	Log    *slog.Logger
	// Version is reported in confirmations.
	Version string
	// Handlers answer the requests that are not about the machine itself, by path.
	Handlers map[string]http2.Handler
}

// Server serves the guest link on one port.
type Server struct {
	port     Port
	system   System
	log      *slog.Logger
	version  string
	intake   intake
	handlers map[string]http2.Handler
	handle   http2.Handler
	session  *session
}

// New returns a server. It does nothing until Serve.
func New(c Config) *Server {
	s := &Server{port: c.Port, system: c.System, log: c.Log, version: c.Version, handlers: c.Handlers}
	s.intake.to = s
	s.intake.hangup()
	return s
}

// Serve reads the port until ctx is done or the port fails, and closes it.
// Commands that run at that moment go on.
func (s *Server) Serve(ctx context.Context) error {
	s.rehearse(ctx)
	return s.serve(ctx)
}

func (s *Server) serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.port.Close() })
	defer stop()
	defer s.restart()
	s.handle = func(st *http2.Stream) { s.answer(ctx, st) }
	buf := make([]byte, 32<<10)
	for {
		n, err := s.port.Read(buf)
		s.intake.take(buf[:n])
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			s.intake.hangup()
			s.restart()
		case ctx.Err() != nil:
			return nil
		default:
			return errors.Join(fmt.Errorf("read port: %w", err), s.port.Close())
		}
	}
}

// restart ends the session, if there is one.
func (s *Server) restart() {
	if s.session != nil {
		s.session.end()
		s.session = nil
	}
}

// begin applies an epoch and opens the session whose first bytes confirm it.
func (s *Server) begin(e link.Epoch, arrived time.Time) {
	c := s.apply(e, arrived)
	if c.Error != "" {
		s.log.Error("epoch failed", "epoch", e.Number, "error", c.Error)
	}
	body, _ := c.MarshalBinary()
	head, err := link.AppendMessage(nil, e.ReplyNonce, body)
	if err != nil {
		s.log.Error("confirm epoch", "epoch", e.Number, "error", err)
		return
	}
	s.session = openSession(s.port, head, s.handle)
}

// apply does what the epoch orders. The clock comes first, so that files are
// dated right, and is read last, so that the host can judge it.
func (s *Server) apply(e link.Epoch, arrived time.Time) link.Confirmation {
	c := link.Confirmation{Number: e.Number, AgentVersion: s.version, KernelRelease: s.system.KernelRelease()}
	var errs []error
	done := func(err error) bool {
		errs = append(errs, err)
		return err == nil
	}
	c.ClockSet = done(s.system.SetClock(time.Unix(0, e.Time).Add(time.Since(arrived))))
	c.Reseeded = done(s.system.Reseed(e.Entropy))
	if e.Identity != nil {
		c.IdentitySet = done(s.system.SetIdentity(e.Identity))
	}
	if err := errors.Join(errs...); err != nil {
		c.Error = err.Error()[:min(len(err.Error()), 4096)]
	}
	c.ClockUnixNs = s.system.Now().UnixNano()
	return c
}

// answer handles one request.
func (s *Server) answer(ctx context.Context, st *http2.Stream) {
	switch st.Path() {
	case link.PathPing:
		s.reply(st, link.Reply{})
	case link.PathClock:
		s.reply(st, s.clock(st))
	case link.PathSync:
		s.system.Sync()
		s.reply(st, link.Reply{})
	case link.PathSettled:
		s.reply(st, s.settled(ctx))
	case link.PathPoweroff:
		s.reply(st, link.Reply{})
		if err := s.system.Poweroff(ctx); err != nil {
			s.log.Error("power off", "error", err)
		}
	default:
		if h, ok := s.handlers[st.Path()]; ok {
			h(st)
			return
		}
		s.reply(st, link.Reply{Error: link.UnknownRequest})
	}
}

func (s *Server) reply(w io.Writer, r link.Reply) {
	body, _ := r.MarshalBinary()
	if _, err := w.Write(link.AppendFrame(nil, link.FrameReply, body)); err != nil {
		s.log.Debug("reply", "error", err)
	}
}

// clock sets the clock to the time in the request, as the epoch does.
func (s *Server) clock(r io.Reader) link.Reply {
	_, payload, err := link.NewFrameReader(r).Next()
	var ns int64
	if err == nil {
		ns, err = link.ParseClock(payload)
	}
	if err == nil {
		err = s.system.SetClock(time.Unix(0, ns))
	}
	if err != nil {
		return link.Reply{Error: err.Error()}
	}
	return link.Reply{ClockUnixNs: s.system.Now().UnixNano()}
}

func (s *Server) settled(ctx context.Context) link.Reply {
	settled, state, failed, err := s.system.Settled(ctx)
	if err != nil {
		return link.Reply{Error: err.Error()}
	}
	return link.Reply{Settled: settled, State: state, Failed: failed}
}
