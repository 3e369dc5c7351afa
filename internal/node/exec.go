package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/vm"
)

// Exec runs a command in a running VM. It holds no lock: commands run beside
// each other and beside captures.
func (n *Node) Exec(ctx context.Context, id string, e vm.Exec) (vm.ExecResult, error) {
	m, l, err := n.running(id)
	if err != nil {
		return vm.ExecResult{}, err
	}
	k, err := n.linked(ctx, m, l)
	if err != nil {
		return vm.ExecResult{}, err
	}
	ctx, cancel := l.whileAlive(ctx, e.Timeout+confirmDeadline)
	defer cancel()
	r, err := k.Exec(ctx, guest.ExecOrder{
		Command: e.Command, User: e.User, Env: e.Env, Stdin: e.Stdin, Timeout: e.Timeout, MaxOutput: e.MaxOutput,
	})
	if err != nil {
		return vm.ExecResult{}, silent(ctx, id, err)
	}
	return vm.ExecResult{
		Stdout: r.Stdout, Stderr: r.Stderr, StdoutBytes: r.StdoutBytes, StderrBytes: r.StderrBytes,
		ExitCode: r.ExitCode, TimedOut: r.TimedOut,
	}, nil
}

// silent is the error of a guest that stopped answering; a refusal by the
// agent passes as it is.
func silent(ctx context.Context, id string, err error) error {
	if f := fault.As(err); f != nil {
		return err
	}
	return (&fault.Error{
		Code: api.CodeVMNonResponsive, Message: fmt.Sprintf("the guest of vm %s stopped answering; the command may have run", id),
		Remedy: "look at the vm before you repeat the command: pando vm get " + id,
	}).With(errors.Join(err, context.Cause(ctx)))
}

// linked returns the link to the agent, and opens a new epoch if the last one
// broke: an agent that was restarted is waiting for it.
func (n *Node) linked(ctx context.Context, m *machine, l *live) (*guest.Link, error) {
	if k := l.link.Load(); k != nil && !closed(k.Done()) {
		return k, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := l.link.Load(); k != nil && !closed(k.Done()) {
		return k, nil
	}
	if _, err := n.handshake(context.WithoutCancel(ctx), m, l, nil, confirmDeadline); err != nil {
		return nil, err
	}
	return l.link.Load(), m.save(false)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
