package vm

import (
	"context"
	"errors"
	"fmt"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/snapshot"
)

// Recover settles what a daemon that ended left behind: it finishes the
// intents, brings every record in line with what the node sees, and removes
// what no record names, and finds out what the timers have to do. It runs before the first use case.
func (m *Manager) Recover(ctx context.Context) error {
	return errors.Join(m.finishIntents(ctx), m.settleVMs(ctx), m.settleSnapshots(ctx), m.armAll(ctx))
}

func (m *Manager) finishIntents(ctx context.Context) error {
	intents, err := m.journal.OpenIntents(ctx)
	if err != nil {
		return fmt.Errorf("read intents: %w", err)
	}
	var errs []error
	for _, i := range intents {
		if i.Kind == IntentDelete {
			errs = append(errs, m.finishDelete(ctx, i.VMID))
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) settleVMs(ctx context.Context) error {
	records, _, err := m.vms.ListVMs(ctx, Filter{})
	if err != nil {
		return err
	}
	known := map[string]bool{}
	var errs []error
	for _, v := range records {
		known[v.ID] = true
		errs = append(errs, m.settleVM(ctx, v))
	}
	return errors.Join(append(errs, m.removeStrangers(ctx, known))...)
}

func (m *Manager) settleVM(ctx context.Context, v VM) error {
	p, err := m.node.Presence(ctx, v.ID)
	if err != nil {
		return fmt.Errorf("look for vm %s: %w", v.ID, err)
	}
	// A VM that never confirmed its first epoch was never handed out.
	if p == PresenceAbsent && v.State == api.StateStarting && v.Generation == 1 {
		return m.vms.DeleteVM(ctx, v.ID)
	}
	was := v.State
	v, err = m.settle(ctx, v.ID, p, reasonFound(p))
	if err == nil && p != PresenceAbsent {
		err = m.settleSize(ctx, v)
	}
	if err != nil || p != PresenceCrashed || !v.AutomaticRestart || was != api.StateRunning {
		return err
	}
	// The restart waits on the agenda: after a loss of the host there are many.
	_, err = m.planRestart(ctx, v.ID, v.StateReason, soundRun)
	return err
}

// settleSize records what a resize reached that a daemon did not live to record.
func (m *Manager) settleSize(ctx context.Context, v VM) error {
	have, err := m.node.Size(ctx, v.ID)
	if err != nil {
		return fmt.Errorf("ask for the size of vm %s: %w", v.ID, err)
	}
	if have == v.Resources {
		return nil
	}
	_, err = m.sized(ctx, v.ID, have)
	return err
}

func reasonFound(p Presence) string {
	if p == PresenceCrashed {
		return "its process was killed, or the host went down, while no daemon ran"
	}
	return "found so when the daemon started"
}

// settle writes the state that the presence means, whatever the table says:
// what the node sees is a fact, not a wish.
func (m *Manager) settle(ctx context.Context, id string, p Presence, reason string) (VM, error) {
	state := stateOf(p)
	return m.vms.UpdateVM(ctx, id, func(v *VM) error {
		if v.State == state {
			return nil
		}
		v.State, v.StateReason = state, reason
		m.account(v)
		return nil
	})
}

func stateOf(p Presence) api.State {
	switch p {
	case PresenceRunning:
		return api.StateRunning
	case PresencePaused:
		return api.StatePaused
	case PresenceStopped, PresenceCrashed, PresenceAbsent:
	}
	return api.StateStopped
}

func (m *Manager) removeStrangers(ctx context.Context, known map[string]bool) error {
	ids, err := m.node.VMs(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		if !known[id] {
			m.log.Warn("remove vm that no record names", "vm_id", id)
			errs = append(errs, m.node.Delete(ctx, id))
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) settleSnapshots(ctx context.Context) error {
	held, err := m.node.Snapshots(ctx)
	if err != nil {
		return err
	}
	onNode := map[string]bool{}
	var errs []error
	for _, id := range held {
		onNode[id] = true
		errs = append(errs, m.settleStray(ctx, id))
	}
	private, _, err := m.snapshots.ListSnapshots(ctx, snapshot.Filter{})
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, s := range private {
		errs = append(errs, m.settleSnapshot(ctx, s, onNode[s.ID]))
	}
	return errors.Join(errs...)
}

// settleStray removes a saved machine that no record names.
func (m *Manager) settleStray(ctx context.Context, id string) error {
	_, err := m.snapshots.FindSnapshot(ctx, id)
	if f := fault.As(err); f != nil && f.Code == api.CodeNotFound {
		return m.node.DeleteSnapshot(ctx, id)
	}
	return err
}

// settleSnapshot removes the record of a snapshot that did not become durable
// before the daemon ended, and marks one that did.
func (m *Manager) settleSnapshot(ctx context.Context, s snapshot.Snapshot, held bool) error {
	switch {
	case !held:
		m.log.Warn("remove snapshot that was not durable", "snapshot_id", s.ID)
		return m.snapshots.DeleteSnapshot(ctx, s.ID)
	case !s.Durable:
		return m.markDurable(ctx, s.ID)
	}
	return nil
}
