package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/vm"
)

const (
	// sendDeadline bounds the sending of an agent to a guest, and its trial there.
	sendDeadline = 2 * time.Minute
	// takeoverPatience is how long a new agent may take to confirm an epoch, and
	// rollbackPatience how long the guest waits for word of that until it brings
	// the old one back.
	takeoverPatience = 45 * time.Second
	rollbackPatience = time.Minute
)

// UpgradeAgent replaces the agent of a running VM by the node's own.
func (n *Node) UpgradeAgent(ctx context.Context, id string, force bool) (vm.Running, error) {
	m, l, err := n.running(id)
	if err != nil {
		return vm.Running{}, err
	}
	k, err := n.linked(ctx, m, l)
	if err != nil {
		return vm.Running{}, err
	}
	// Nobody may open an epoch with the agent that is about to go.
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rec.Guest.AgentVersion == n.cfg.Agent.Version || len(n.cfg.Agent.Program) == 0 {
		return vm.Running{AgentVersion: m.rec.Guest.AgentVersion}, nil
	}
	sendCtx, cancel := l.whileAlive(ctx, sendDeadline)
	defer cancel()
	if err := k.Upgrade(sendCtx, n.cfg.Agent, force, rollbackPatience); err != nil {
		return vm.Running{}, silent(sendCtx, id, err)
	}
	return n.takeOverAgent(context.WithoutCancel(ctx), m, l)
}

// takeOverAgent opens the epoch with the new agent, or with the old one when it
// has come back. The caller holds m.mu.
func (n *Node) takeOverAgent(ctx context.Context, m *machine, l *live) (vm.Running, error) {
	r, err := n.newAgent(ctx, m, l)
	if err == nil {
		return r, m.save(false)
	}
	back, backErr := n.awaitAgent(ctx, m, l, "", rollbackPatience+takeoverPatience)
	if backErr != nil {
		return vm.Running{}, errors.Join(err, backErr, m.save(false))
	}
	return vm.Running{}, errors.Join((&fault.Error{
		Code:    api.CodeVMNonResponsive,
		Message: fmt.Sprintf("the new agent of vm %s did not answer; version %s is back", m.id, back.AgentVersion),
		Remedy:  "the vm goes on as it was; the journal of its agent says more: journalctl -u pando-agent",
	}).With(err), m.save(false))
}

// newAgent opens an epoch with the new agent and tells it that it is good.
func (n *Node) newAgent(ctx context.Context, m *machine, l *live) (vm.Running, error) {
	r, err := n.awaitAgent(ctx, m, l, n.cfg.Agent.Version, takeoverPatience)
	if err != nil {
		return r, err
	}
	ctx, cancel := l.whileAlive(ctx, takeoverPatience)
	defer cancel()
	return r, l.link.Load().Upgraded(ctx)
}

const (
	// firstTry is the patience of the first of several tries, and tryPause is
	// between them.
	firstTry = time.Second
	tryPause = 200 * time.Millisecond
)

// awaitAgent opens an epoch with an agent that starts at this moment and is of
// that version, or of any if it is empty. What is sent too early reaches the one
// that ends: it is not answered, or by the wrong one. So it tries again, with more
// patience each time. An agent that has just started takes the fresh token only.
func (n *Node) awaitAgent(ctx context.Context, m *machine, l *live, version string, patience time.Duration) (vm.Running, error) {
	var errs []error
	deadline := time.Now().Add(patience)
	for try := firstTry; time.Now().Before(deadline) && !closed(l.gone); try = min(2*try, patience/3) {
		m.rec.Token = nil
		r, err := n.handshake(ctx, m, l, nil, try)
		if err == nil && version != "" && r.AgentVersion != version {
			err = fmt.Errorf("the agent is version %.80q instead of %s", r.AgentVersion, version)
		}
		if err == nil {
			return r, nil
		}
		errs = append(errs, err)
		time.Sleep(tryPause)
	}
	return vm.Running{}, errors.Join(errs...)
}
