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
// is. It waits for a pause under way.
func (m *Manager) Start(ctx context.Context, ref string) (v VM, err error) {
	err = m.locked(ctx, ref, func(ctx context.Context, was VM) error {
		switch was.State {
		case api.StatePaused:
			v, err = m.run(ctx, was, m.node.Resume)
		case api.StateStopped:
			v, err = m.run(ctx, was, m.node.Boot)
		case api.StateRunning:
			v = was
		case api.StateStarting, api.StatePausing:
			err = wrongState(was, "start")
		}
		return err
	})
	return v, err
}

// run starts a run by resuming or booting, and goes back to where it was if
// the guest does not confirm.
func (m *Manager) run(ctx context.Context, was VM, begin func(context.Context, string, int64) (Running, error)) (VM, error) {
	v, err := m.begin(ctx, was.ID)
	if err != nil {
		return VM{}, err
	}
	r, err := begin(ctx, v.ID, v.Generation)
	if err != nil {
		_, back := m.move(ctx, v.ID, was.State, "the last start failed")
		return VM{}, errors.Join(fmt.Errorf("start vm %s: %w", v.ID, err), back)
	}
	return m.confirmed(ctx, v.ID, r)
}

// Pause saves memory, devices and disk and ends the process. If it cannot save,
// the VM goes on running and the error says why.
func (m *Manager) Pause(ctx context.Context, ref string) (v VM, err error) {
	err = m.locked(ctx, ref, func(ctx context.Context, was VM) error {
		if was.State == api.StatePaused {
			v = was
			return nil
		}
		if _, err = m.move(ctx, was.ID, api.StatePausing, ""); err != nil {
			return err
		}
		if err = m.node.Pause(ctx, was.ID); err != nil {
			return m.unpaused(ctx, was.ID, err)
		}
		v, err = m.move(ctx, was.ID, api.StatePaused, "")
		return err
	})
	return v, err
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

// Stop shuts the guest down and keeps the disk. A stopped VM stays as it is.
func (m *Manager) Stop(ctx context.Context, ref string) (v VM, err error) {
	err = m.locked(ctx, ref, func(ctx context.Context, was VM) error {
		if was.State == api.StateStopped {
			v = was
			return nil
		}
		if !CanEnter(was.State, api.StateStopped) {
			return wrongState(was, "stop")
		}
		if err = m.node.Stop(ctx, was.ID, StopGrace); err != nil {
			return fmt.Errorf("stop vm %s: %w", was.ID, err)
		}
		v, err = m.move(ctx, was.ID, api.StateStopped, "stopped by request")
		return err
	})
	return v, err
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
	return m.locked(ctx, ref, func(ctx context.Context, v VM) error {
		if err := m.journal.BeginIntent(ctx, m.deleteIntent(v.ID)); err != nil {
			return err
		}
		return m.finishDelete(ctx, v.ID)
	})
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
