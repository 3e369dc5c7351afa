package vm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pandovm/pando/api"
)

const (
	// maxRestarts is how often in a row a VM is booted again that crashes soon.
	maxRestarts = 5
	// soundRun is how long a run must last for a crash not to count as one in a row.
	soundRun = 5 * time.Minute
	// restartDelay doubles with each crash in a row; the first restart is at once.
	restartDelay = 2 * time.Second
)

// failure reports whether an end of a VM is one to restart it after.
func (c Cause) failure() bool { return c == CauseCrashed || c == CausePanicked }

// ended deals with a VM that was running and has stopped by itself, and is
// recorded so. The caller holds its lock.
func (m *Manager) ended(ctx context.Context, v VM, cause Cause, reason string, ran time.Duration) error {
	if !cause.failure() || !v.AutomaticRestart {
		return m.dropStopped(ctx, v)
	}
	v, err := m.planRestart(ctx, v.ID, reason, ran)
	if err != nil {
		return err
	}
	if v.RestartAt.IsZero() {
		return m.dropStopped(ctx, v)
	}
	if m.now().Before(v.RestartAt) {
		return nil
	}
	return m.restart(ctx, v)
}

// planRestart decides when a VM that failed is booted again; a zero RestartAt
// means never. ran is how long it had run.
func (m *Manager) planRestart(ctx context.Context, id, reason string, ran time.Duration) (VM, error) {
	return m.vms.UpdateVM(ctx, id, func(v *VM) error {
		now := m.now()
		if ran >= soundRun {
			v.Restarts = 0
		}
		switch {
		case v.spent(now):
			v.RestartAt, v.StateReason = time.Time{}, reason+"; not restarted because "+fieldMaxRunTotal+" is spent"
		case v.Restarts >= maxRestarts:
			v.RestartAt = time.Time{}
			v.StateReason = fmt.Sprintf("%s; given up after %d restarts in a row", reason, v.Restarts)
		default:
			delay := restartDelay << v.Restarts >> 1
			if v.Restarts == 0 {
				delay = 0
			}
			v.Restarts++
			v.RestartAt, v.StateReason = now.Add(delay), reason
		}
		v.UpdatedAt = now
		return nil
	})
}

// restart boots a VM that failed, and plans the next attempt if that fails too.
// The caller holds its lock.
func (m *Manager) restart(ctx context.Context, v VM) error {
	if v.State != api.StateStopped {
		_, err := m.vms.UpdateVM(ctx, v.ID, func(v *VM) error { v.cancelRestart(); return nil })
		return err
	}
	cause, attempt := v.StateReason, v.Restarts
	m.log.Info("restart vm", "vm_id", v.ID, "attempt", attempt, "reason", cause)
	_, err := m.run(ctx, v, "restarted: "+cause, m.node.Boot)
	if err == nil {
		return nil
	}
	m.log.Warn("restart of vm failed", "vm_id", v.ID, "attempt", attempt, "error", err)
	v, err = m.planRestart(ctx, v.ID, cause, 0)
	if err != nil || !v.RestartAt.IsZero() {
		return err
	}
	return errors.Join(err, m.dropStopped(ctx, v))
}

// cancelRestart forgets a restart that was planned.
func (v *VM) cancelRestart() { v.RestartAt, v.Restarts = time.Time{}, 0 }
