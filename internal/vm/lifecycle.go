package vm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// StopGrace is how long a guest may take to shut down before it is ended.
const StopGrace = 30 * time.Second

// Start resumes a paused VM or boots a stopped one; a running one stays as it
// is. It waits for a pause under way. It counts as use of the VM. A VM that has
// spent the time that it may run is fault CONFLICT.
func (m *Manager) Start(ctx context.Context, ref string) (v VM, err error) {
	err = m.locked(ctx, ref, func(ctx context.Context, was VM) error {
		m.Active(was.ID)
		switch was.State {
		case api.StatePaused, api.StateStopped:
			v, err = m.start(ctx, was)
		case api.StateRunning:
			v = was
		case api.StateStarting, api.StatePausing:
			err = wrongState(was, "start")
		}
		return err
	})
	return v, err
}

// start begins a run that somebody asked for.
func (m *Manager) start(ctx context.Context, was VM) (VM, error) {
	if err := was.checkBudget(m.now()); err != nil {
		return VM{}, err
	}
	if was.State == api.StatePaused {
		return m.run(ctx, was, "", m.node.Resume)
	}
	v, err := m.run(ctx, was, "", m.node.Boot)
	if err != nil || v.Restarts == 0 {
		return v, err
	}
	return m.vms.UpdateVM(ctx, v.ID, func(v *VM) error { v.cancelRestart(); return nil })
}

// run starts a run by resuming or booting, and goes back to where it was if
// the guest does not confirm. reason is what the state then says.
func (m *Manager) run(
	ctx context.Context, was VM, reason string, begin func(context.Context, string, int64) (Running, error),
) (VM, error) {
	v, err := m.begin(ctx, was.ID)
	if err != nil {
		return VM{}, err
	}
	r, err := begin(ctx, v.ID, v.Generation)
	if err != nil {
		_, back := m.move(ctx, v.ID, was.State, "the last start failed")
		return VM{}, errors.Join(fmt.Errorf("start vm %s: %w", v.ID, err), back)
	}
	return m.confirmed(ctx, v.ID, reason, r)
}

// Pause saves memory, devices and disk and ends the process. If it cannot save,
// the VM goes on running and the error says why.
func (m *Manager) Pause(ctx context.Context, ref string) (v VM, err error) {
	err = m.locked(ctx, ref, func(ctx context.Context, was VM) error {
		if was.State == api.StatePaused {
			v = was
			return nil
		}
		v, err = m.pause(ctx, was, "", nil)
		return err
	})
	return v, err
}

// pause saves a running VM. A timer gives its reason, and still, which says
// whether it holds: a use of the VM that began before the state changed calls
// the pause off, later ones see the state and wait. The caller holds the VM's
// lock.
func (m *Manager) pause(ctx context.Context, was VM, reason string, still func() bool) (VM, error) {
	if _, err := m.move(ctx, was.ID, api.StatePausing, ""); err != nil {
		return VM{}, err
	}
	if still != nil && !still() {
		return m.move(ctx, was.ID, api.StateRunning, was.StateReason)
	}
	if err := m.node.Pause(ctx, was.ID); err != nil {
		return VM{}, m.unpaused(ctx, was.ID, err)
	}
	return m.move(ctx, was.ID, api.StatePaused, reason)
}

// unpaused settles a VM that could not be paused by what the node sees of it.
func (m *Manager) unpaused(ctx context.Context, id string, cause error) error {
	cause = fmt.Errorf("pause vm %s: %w", id, cause)
	p, err := m.node.Presence(ctx, id)
	if err != nil {
		return errors.Join(cause, err)
	}
	_, err = m.settle(ctx, id, p, "the last pause failed")
	return errors.Join(cause, err)
}

// Stop shuts the guest down and keeps the disk. A stopped VM stays as it is and
// is not restarted after a crash. An ephemeral VM is deleted; what is returned
// is then the last that was seen of it.
func (m *Manager) Stop(ctx context.Context, ref string) (v VM, err error) {
	err = m.locked(ctx, ref, func(ctx context.Context, was VM) error {
		if v, err = m.stop(ctx, was); err != nil {
			return err
		}
		return m.dropStopped(ctx, v)
	})
	return v, err
}

func (m *Manager) stop(ctx context.Context, was VM) (VM, error) {
	if was.State == api.StateStopped {
		if was.RestartAt.IsZero() {
			return was, nil
		}
		return m.vms.UpdateVM(ctx, was.ID, func(v *VM) error { v.cancelRestart(); return nil })
	}
	if !CanEnter(was.State, api.StateStopped) {
		return VM{}, wrongState(was, "stop")
	}
	if err := m.node.Stop(ctx, was.ID, StopGrace); err != nil {
		return VM{}, fmt.Errorf("stop vm %s: %w", was.ID, err)
	}
	return m.move(ctx, was.ID, api.StateStopped, "stopped by request")
}

// StopAll stops every VM that runs.
func (m *Manager) StopAll(ctx context.Context) error {
	running, _, err := m.vms.ListVMs(ctx, Filter{State: api.StateRunning})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for _, v := range running {
		wg.Go(func() {
			_, err := m.Stop(ctx, v.ID)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Delete removes a VM and everything of it, from whatever state. Its children
// and snapshots are not affected.
func (m *Manager) Delete(ctx context.Context, ref string) error {
	return m.locked(ctx, ref, func(ctx context.Context, v VM) error { return m.remove(ctx, v.ID) })
}

// remove deletes a VM whose lock the caller holds.
func (m *Manager) remove(ctx context.Context, id string) error {
	if err := m.journal.BeginIntent(ctx, m.deleteIntent(id)); err != nil {
		return err
	}
	return m.finishDelete(ctx, id)
}

func (m *Manager) deleteIntent(id string) Intent {
	return Intent{ID: "delete/" + id, Kind: IntentDelete, VMID: id, CreatedAt: m.now()}
}

// finishDelete does what a delete intent says; it can be repeated.
func (m *Manager) finishDelete(ctx context.Context, id string) error {
	if err := m.node.Delete(ctx, id); err != nil {
		return fmt.Errorf("delete vm %s: %w", id, err)
	}
	err := m.vms.DeleteVM(ctx, id)
	if f := fault.As(err); f != nil && f.Code == api.CodeNotFound {
		err = nil
	}
	if err != nil {
		return err
	}
	return m.journal.EndIntent(ctx, "delete/"+id)
}
