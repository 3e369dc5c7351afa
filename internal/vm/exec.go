package vm

import (
	"context"
	"fmt"
	"time"

	"github.com/pandovm/pando/api"
)

// ExecParams is a command to run in a guest. A Timeout of 0 means
// DefaultExecTimeout.
type ExecParams struct {
	Command string
	User    string
	Env     map[string]string
	Stdin   []byte
	Timeout time.Duration
}

// Exec runs a command and returns its output. It waits for a VM that is
// starting. Commands do not order each other or the other use cases.
func (m *Manager) Exec(ctx context.Context, ref string, p ExecParams) (ExecResult, error) {
	if err := checkExec(p); err != nil {
		return ExecResult{}, err
	}
	if p.Timeout == 0 {
		p.Timeout = DefaultExecTimeout
	}
	v, err := m.settled(ctx, ref)
	if err != nil {
		return ExecResult{}, err
	}
	if v.State != api.StateRunning {
		return ExecResult{}, wrongState(v, "exec")
	}
	res, err := m.node.Exec(ctx, v.ID, Exec{
		Command: p.Command, User: p.User, Env: p.Env, Stdin: p.Stdin, Timeout: p.Timeout, MaxOutput: MaxOutputBytes,
	})
	if err != nil {
		return ExecResult{}, fmt.Errorf("exec in vm %s: %w", v.ID, err)
	}
	return res, nil
}

// settled returns the VM after the use case under way on it, if any, is over.
func (m *Manager) settled(ctx context.Context, ref string) (VM, error) {
	v, err := m.vms.FindVM(ctx, ref)
	if err != nil || (v.State != api.StateStarting && v.State != api.StatePausing) {
		return v, err
	}
	release, err := m.locks.acquire(ctx, v.ID)
	if err != nil {
		return VM{}, err
	}
	release()
	return m.vms.FindVM(ctx, v.ID)
}
