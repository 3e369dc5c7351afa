package vm

import (
	"context"
	"fmt"
	"time"
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
	v, err := m.Awake(ctx, ref)
	if err != nil {
		return ExecResult{}, err
	}
	defer m.Busy(v.ID)()
	res, err := m.node.Exec(ctx, v.ID, Exec{
		Command: p.Command, User: p.User, Env: p.Env, Stdin: p.Stdin, Timeout: p.Timeout, MaxOutput: MaxOutputBytes,
	})
	if err != nil {
		return ExecResult{}, fmt.Errorf("exec in vm %s: %w", v.ID, err)
	}
	return res, nil
}
