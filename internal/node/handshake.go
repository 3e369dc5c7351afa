package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/link"
	"github.com/pandovm/pando/internal/vm"
)

// tokens returns what may open the next epoch, the likeliest first: the token
// that the agent was given in the last epoch, or the one that an agent which
// has just started takes.
func (m *machine) tokens() []link.Token {
	fresh := link.FreshToken()
	if len(m.rec.Token) != len(fresh) {
		return []link.Token{fresh}
	}
	return []link.Token{link.Token(m.rec.Token), fresh}
}

// handshake opens an epoch: the agent sets clock, entropy and identity and
// confirms. Without the confirmation there is no VM to hand out. The caller
// holds m.mu.
func (n *Node) handshake(ctx context.Context, m *machine, l *live, identity *link.Identity, patience time.Duration) (vm.Running, error) {
	l.linkMu.Lock()
	defer l.linkMu.Unlock()
	// The agent's socket takes one connection at a time.
	if old := l.link.Swap(nil); old != nil {
		_ = old.Close() // the epoch that ends with it is over either way
	}
	tokens := m.tokens()
	// One after the other, with more patience each time: a guest may be slow, may
	// not know the token, or may have closed its port with the preamble unread.
	var errs []error
	for share := 16 * len(tokens); share >= 2*len(tokens); share /= 2 {
		for _, token := range tokens {
			r, err := n.openEpoch(ctx, m, l, identity, token, patience/time.Duration(share))
			if err == nil {
				return r, nil
			}
			errs = append(errs, err)
		}
	}
	return vm.Running{}, errors.Join(errs...)
}

// openEpoch dials the agent with one token.
func (n *Node) openEpoch(ctx context.Context, m *machine, l *live, identity *link.Identity, token link.Token, patience time.Duration) (vm.Running, error) {
	ctx, cancel := l.whileAlive(ctx, patience)
	defer cancel()
	e, err := n.nextEpoch(m, identity)
	if err != nil {
		return vm.Running{}, err
	}
	k, c, err := guest.Dial(ctx, n.qemuMachine(m, false).AgentSocket(), token, e)
	if err != nil {
		return vm.Running{}, unconfirmed(ctx, m.id, err)
	}
	m.rec.Token = e.NextToken[:]
	m.rec.Guest = Guest{AgentVersion: c.AgentVersion, Kernel: c.KernelRelease}
	l.link.Store(k)
	return vm.Running{AgentVersion: c.AgentVersion}, nil
}

func unconfirmed(ctx context.Context, id string, err error) error {
	return (&fault.Error{
		Code: api.CodeVMNonResponsive, Reason: api.ReasonEpochUnconfirmed,
		Message: fmt.Sprintf("the guest of vm %s did not confirm that its clock, entropy and identity are set", id),
		Remedy:  "look at its console: pando vm get " + id + "; a damaged guest can be deleted and made anew from a snapshot",
	}).With(errors.Join(err, context.Cause(ctx)))
}

// nextEpoch fills in what the guest needs. Clock and token are set by the link.
func (n *Node) nextEpoch(m *machine, identity *link.Identity) (link.Epoch, error) {
	m.rec.Epoch++
	e := link.Epoch{
		Number: m.rec.Epoch, VMID: m.id, Entropy: make([]byte, 64), Identity: identity,
		ReplyNonce: link.NewToken(), NextToken: link.NewToken(),
	}
	if _, err := rand.Read(e.Entropy); err != nil {
		return e, fmt.Errorf("read random bytes: %w", err)
	}
	return e, nil
}

// whileAlive returns a context that ends with the process or after patience.
func (l *live) whileAlive(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	ctx, cancelCause := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-l.gone:
			cancelCause(errors.New("qemu ended"))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancelCause(nil); cancel() }
}
