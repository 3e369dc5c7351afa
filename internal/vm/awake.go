package vm

import (
	"context"

	"github.com/pandovm/pando/api"
)

// Awake returns the VM with that id or slug once it runs: it waits for a use
// case that is under way on it, and resumes it if it is paused. A stopped VM is
// fault CONFLICT: only its owner knows whether it should boot. So is one that
// has spent the time that it may run. It counts as use of the VM; many callers
// share one resume.
func (m *Manager) Awake(ctx context.Context, ref string) (VM, error) {
	v, err := m.vms.FindVM(ctx, ref)
	if err != nil {
		return VM{}, err
	}
	// First the use, then the state: a timer that pauses looks at them in the
	// other order.
	m.Active(v.ID)
	if v, err = m.settled(ctx, v); err != nil {
		return VM{}, err
	}
	if v.State == api.StatePaused {
		if v, err = m.Start(ctx, v.ID); err != nil {
			return VM{}, err
		}
	}
	if v.State != api.StateRunning {
		return VM{}, wrongState(v, "this")
	}
	return v, nil
}

// settled returns the VM as it is now, or after the use case under way on it is over.
func (m *Manager) settled(ctx context.Context, v VM) (VM, error) {
	var err error
	if v.Timers.Idle != nil {
		// A pause may have begun since it was read.
		if v, err = m.vms.FindVM(ctx, v.ID); err != nil {
			return VM{}, err
		}
	}
	if v.State != api.StateStarting && v.State != api.StatePausing {
		return v, nil
	}
	release, err := m.locks.acquire(ctx, v.ID)
	if err != nil {
		return VM{}, err
	}
	release()
	return m.vms.FindVM(ctx, v.ID)
}
