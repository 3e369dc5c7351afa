package vm

import (
	"context"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// Watch records the ends of VMs that nobody ordered and lets the timers act,
// until ctx ends.
func (m *Manager) Watch(ctx context.Context) {
	for {
		rings, stop := m.nextAlarm()
		select {
		case s := <-m.node.Sightings():
			// Not in line: a use case that holds the VM's lock must not hold up the others.
			m.background.run(func(ctx context.Context) { m.sighted(ctx, s) })
		case <-rings:
		case <-m.agenda.changed:
		case <-ctx.Done():
			stop()
			return
		}
		stop()
	}
}

// Background runs work beside the use cases; its context ends with Close.
func (m *Manager) Background(work func(ctx context.Context)) { m.background.run(work) }

// Close ends the background work and waits for it. VMs are left as they are.
func (m *Manager) Close() { m.background.close() }

func (m *Manager) sighted(ctx context.Context, s Sighting) {
	err := m.locked(ctx, s.VMID, func(ctx context.Context, v VM) error {
		// A sighting of an earlier run says nothing about this one.
		if v.Generation != s.Generation || v.State == stateOf(s.Presence) {
			return nil
		}
		m.log.Info("vm ended", "vm_id", s.VMID, "state", stateOf(s.Presence), "reason", s.Reason)
		var ran time.Duration
		if !v.RunningSince.IsZero() {
			ran = m.now().Sub(v.RunningSince)
		}
		v, err := m.settle(ctx, v.ID, s.Presence, s.Reason)
		if err != nil || v.State != api.StateStopped {
			return err
		}
		return m.ended(ctx, v, s.Cause, s.Reason, ran)
	})
	if f := fault.As(err); f != nil && f.Code == api.CodeNotFound {
		return
	}
	if err != nil && ctx.Err() == nil {
		m.log.Error("record the end of a vm", "vm_id", s.VMID, "error", err)
	}
}
