package node

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/guest"
)

// reach returns the link to the agent of a running VM, and its life. No lock is
// held afterwards: what runs in a VM runs beside captures.
func (n *Node) reach(ctx context.Context, id string) (*guest.Link, *live, error) {
	m, l, err := n.running(id)
	if err != nil {
		return nil, nil, err
	}
	k, err := n.linked(ctx, m, l)
	return k, l, err
}

// Exec runs a command in a running VM and waits for it.
func (n *Node) Exec(ctx context.Context, id string, o command.Order) (command.Result, error) {
	k, l, err := n.reach(ctx, id)
	if err != nil {
		return command.Result{}, err
	}
	ctx, cancel := l.whileAlive(ctx, o.Timeout+confirmDeadline)
	defer cancel()
	r, err := k.Exec(ctx, guestOrder(o))
	if err != nil {
		return command.Result{}, silent(ctx, id, err)
	}
	return command.Result{
		Stdout: r.Stdout, Stderr: r.Stderr, StdoutBytes: r.StdoutBytes, StderrBytes: r.StderrBytes,
		ExitCode: r.ExitCode, TimedOut: r.TimedOut, OOMKilled: r.OOMKilled, OOMProcess: r.OOMProcess,
	}, nil
}

func guestOrder(o command.Order) guest.ExecOrder {
	return guest.ExecOrder{
		ID: o.ID, Command: o.Command, User: o.User, Env: o.Env, Stdin: o.Stdin, OpenStdin: o.OpenStdin,
		Timeout: o.Timeout, MaxOutput: o.MaxOutput,
	}
}

// StartExec starts a command and follows it.
func (n *Node) StartExec(ctx context.Context, id string, o command.Order) (command.Output, error) {
	k, _, err := n.reach(ctx, id)
	if err != nil {
		return nil, err
	}
	out, err := k.Start(ctx, guestOrder(o))
	if err != nil {
		return nil, silent(ctx, id, err)
	}
	return out, nil
}

// FollowExec follows a command that was started earlier.
func (n *Node) FollowExec(ctx context.Context, id string, f command.Follow) (command.Output, error) {
	k, _, err := n.reach(ctx, id)
	if err != nil {
		return nil, err
	}
	out, err := k.Follow(ctx, f)
	if err != nil {
		return nil, silent(ctx, id, err)
	}
	return out, nil
}

// FeedExec passes input on as the command takes it.
func (n *Node) FeedExec(ctx context.Context, id string, in command.Input) (command.Info, error) {
	k, _, err := n.reach(ctx, id)
	if err != nil {
		return command.Info{}, err
	}
	i, err := k.Feed(ctx, in)
	if err != nil {
		return command.Info{}, silent(ctx, id, err)
	}
	return i, nil
}

// ask sends a short request to the agent.
func ask[T any](ctx context.Context, n *Node, id string, request func(context.Context, *guest.Link) (T, error)) (T, error) {
	k, l, err := n.reach(ctx, id)
	if err != nil {
		var none T
		return none, err
	}
	ctx, cancel := l.whileAlive(ctx, confirmDeadline)
	defer cancel()
	answer, err := request(ctx, k)
	if err != nil {
		err = silent(ctx, id, err)
	}
	return answer, err
}

// SignalExec signals a command's process group.
func (n *Node) SignalExec(ctx context.Context, id, execID string, sig syscall.Signal) (command.Info, error) {
	return ask(ctx, n, id, func(ctx context.Context, k *guest.Link) (command.Info, error) { return k.SignalExec(ctx, execID, sig) })
}

// ExecInfo returns what the guest knows of a command.
func (n *Node) ExecInfo(ctx context.Context, id, execID string) (command.Info, error) {
	return ask(ctx, n, id, func(ctx context.Context, k *guest.Link) (command.Info, error) { return k.ExecInfo(ctx, execID) })
}

// Execs lists the commands that the guest knows.
func (n *Node) Execs(ctx context.Context, id string) ([]command.Info, error) {
	return ask(ctx, n, id, func(ctx context.Context, k *guest.Link) ([]command.Info, error) { return k.Execs(ctx) })
}

// ForgetExec kills a command and removes what the guest keeps of it.
func (n *Node) ForgetExec(ctx context.Context, id, execID string) error {
	_, err := ask(ctx, n, id, func(ctx context.Context, k *guest.Link) (struct{}, error) {
		return struct{}{}, k.ForgetExec(ctx, execID)
	})
	return err
}

// Processes lists the processes of a guest.
func (n *Node) Processes(ctx context.Context, id string) ([]command.Process, error) {
	return ask(ctx, n, id, func(ctx context.Context, k *guest.Link) ([]command.Process, error) { return k.Processes(ctx) })
}

// SignalProcess signals a process of a guest.
func (n *Node) SignalProcess(ctx context.Context, id string, pid int, sig syscall.Signal) error {
	_, err := ask(ctx, n, id, func(ctx context.Context, k *guest.Link) (struct{}, error) {
		return struct{}{}, k.SignalProcess(ctx, pid, sig)
	})
	return err
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
