package node

import (
	"context"
	"errors"

	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/terminal"
)

var _ terminal.Node = (*Node)(nil)

// OpenTerminal opens a session in a running VM and looks at it.
func (n *Node) OpenTerminal(ctx context.Context, id string, o terminal.Open) (terminal.Stream, error) {
	return n.lookAt(ctx, id, func(ctx context.Context, k *guest.Link) (*guest.Terminal, error) {
		return k.OpenTerminal(ctx, guest.TerminalOrder(o))
	})
}

// AttachTerminal looks at a session of a running VM.
func (n *Node) AttachTerminal(ctx context.Context, id string, p terminal.Pick) (terminal.Stream, error) {
	return n.lookAt(ctx, id, func(ctx context.Context, k *guest.Link) (*guest.Terminal, error) {
		return k.AttachTerminal(ctx, guest.TerminalPick(p))
	})
}

func (n *Node) lookAt(ctx context.Context, id string, open func(context.Context, *guest.Link) (*guest.Terminal, error)) (terminal.Stream, error) {
	k, l, err := n.talk(ctx, id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := l.lifetime(ctx)
	t, err := open(ctx, k)
	if err != nil {
		cancel()
		return nil, silent(ctx, id, err)
	}
	return &terminalStream{t, cancel}, nil
}

// Terminals lists the sessions of a running VM.
func (n *Node) Terminals(ctx context.Context, id, user string) ([]terminal.Session, error) {
	k, l, err := n.talk(ctx, id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := l.whileAlive(ctx, confirmDeadline)
	defer cancel()
	found, err := k.Terminals(ctx, user)
	if err != nil {
		return nil, silent(ctx, id, err)
	}
	all := make([]terminal.Session, 0, len(found))
	for _, s := range found {
		all = append(all, terminal.Session(s))
	}
	return all, nil
}

// CloseTerminal ends a session of a running VM.
func (n *Node) CloseTerminal(ctx context.Context, id string, p terminal.Pick) (terminal.Session, error) {
	k, l, err := n.talk(ctx, id)
	if err != nil {
		return terminal.Session{}, err
	}
	ctx, cancel := l.whileAlive(ctx, confirmDeadline)
	defer cancel()
	s, err := k.CloseTerminal(ctx, guest.TerminalPick(p))
	if err != nil {
		return terminal.Session{}, silent(ctx, id, err)
	}
	return terminal.Session(s), nil
}

// talk returns the link to the agent of a running VM.
func (n *Node) talk(ctx context.Context, id string) (*guest.Link, *live, error) {
	m, l, err := n.running(id)
	if err != nil {
		return nil, nil, err
	}
	k, err := n.linked(ctx, m, l)
	return k, l, err
}

// lifetime returns a context that ends with the process.
func (l *live) lifetime(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-l.gone:
			cancel(errors.New("qemu ended"))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// terminalStream is a guest's terminal in the words of the domain.
type terminalStream struct {
	t      *guest.Terminal
	cancel context.CancelFunc
}

func (s *terminalStream) Session() terminal.Session { return terminal.Session(s.t.Session) }

func (s *terminalStream) Next() (terminal.Event, error) {
	e, err := s.t.Next()
	return terminal.Event(e), err
}

func (s *terminalStream) Write(p []byte) (int, error) { return s.t.Write(p) }

func (s *terminalStream) Resize(cols, rows int) error { return s.t.Resize(cols, rows) }

func (s *terminalStream) Signal(number int) error { return s.t.Signal(number) }

func (s *terminalStream) Close() {
	s.t.Close()
	s.cancel()
}
