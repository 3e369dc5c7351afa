package vm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/snapshot"
)

// Alarm rings once, after d; stop gives it up. It is a clock that tests can move.
type Alarm func(d time.Duration) (rings <-chan time.Time, stop func())

func systemAlarm(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

const (
	// longestSleep is how far a step of the host's clock can put a timer off.
	longestSleep = 10 * time.Minute
	// retryPause is how long a timer waits that could not act.
	retryPause = time.Minute
)

// Busy says that somebody uses the VM, until release is called: it does not
// count as idle meanwhile. Calls may overlap; release is idempotent.
func (m *Manager) Busy(id string) (release func()) {
	s, tell := m.usage.enter(id, m.now(), 1)
	m.noteUse(id, tell)
	return sync.OnceFunc(func() { m.noteUse(id, m.usage.leave(s, m.now())) })
}

// Active says that the VM is used at this moment.
func (m *Manager) Active(id string) {
	_, tell := m.usage.enter(id, m.now(), 0)
	m.noteUse(id, tell)
}

// noteUse writes down that the VM is used now, beside whoever uses it.
func (m *Manager) noteUse(id string, tell bool) {
	if !tell {
		return
	}
	now := m.now()
	m.background.run(func(ctx context.Context) {
		if err := m.vms.NoteUse(ctx, id, now); err != nil && ctx.Err() == nil {
			m.log.Warn("note use of vm", "vm_id", id, "error", err)
		}
	})
}

// lastUse is since when nobody uses a VM; zero while somebody does.
func (m *Manager) lastUse(v VM) time.Time {
	busy, last := m.usage.see(v.ID)
	if busy {
		return time.Time{}
	}
	if last.IsZero() && !v.UsedAt.IsZero() && v.Timers.Idle != nil {
		last = v.UsedAt.Add(grain(*v.Timers.Idle))
	}
	if v.RunningSince.After(last) {
		last = v.RunningSince
	}
	return last
}

// Outlook is what the timers will do to a VM if nothing else happens to it.
func (m *Manager) Outlook(v VM) Outlook { return v.outlook(m.lastUse(v)) }

// arm puts the next moment of a VM on the agenda.
func (m *Manager) arm(v VM) {
	now := m.now()
	var idle time.Duration
	if v.Timers.Idle != nil && v.State == api.StateRunning {
		idle = *v.Timers.Idle
	}
	busy, tell := m.usage.watch(v.ID, idle, now)
	m.noteUse(v.ID, tell)
	o := m.Outlook(v)
	next := o.Pause.before(o.Delete).before(Due{At: v.RestartAt})
	if busy && idle > 0 {
		next = next.before(Due{At: now.Add(grain(idle))})
	}
	m.agenda.set(subject{id: v.ID}, next.At)
}

// rearm puts the next moment of a VM on the agenda after it may have changed.
func (m *Manager) rearm(ctx context.Context, id string) {
	v, err := m.vms.FindVM(context.WithoutCancel(ctx), id)
	switch {
	case err == nil:
		m.arm(v)
	case isNotFound(err):
		m.usage.forget(id)
		m.agenda.set(subject{id: id}, time.Time{})
	default:
		m.log.Error("find the next moment of a vm", "vm_id", id, "error", err)
	}
}

func isNotFound(err error) bool {
	f := fault.As(err)
	return f != nil && f.Code == api.CodeNotFound
}

// SnapshotChanged puts the next moment of a snapshot on the agenda.
func (m *Manager) SnapshotChanged(s snapshot.Snapshot) {
	m.agenda.set(subject{snapshot: true, id: s.ID}, s.DeleteAt())
}

// armAll fills the agenda from the records.
func (m *Manager) armAll(ctx context.Context) error {
	vms, _, err := m.vms.ListVMs(ctx, Filter{})
	if err != nil {
		return err
	}
	for _, v := range vms {
		m.arm(v)
	}
	snapshots, _, err := m.snapshots.ListSnapshots(ctx, snapshot.Filter{})
	for _, s := range snapshots {
		m.SnapshotChanged(s)
	}
	return err
}

// nextAlarm lets act what is due, beside its caller, and returns an alarm for
// what is due next.
func (m *Manager) nextAlarm() (rings <-chan time.Time, stop func()) {
	now := m.now()
	due, next := m.agenda.take(now)
	for _, s := range due {
		m.background.run(func(ctx context.Context) { m.attend(ctx, s) })
	}
	sleep := longestSleep
	if !next.IsZero() {
		sleep = min(sleep, next.Sub(now))
	}
	return m.alarm(sleep)
}

// attend does what is due for a VM or a snapshot.
func (m *Manager) attend(ctx context.Context, s subject) {
	var err error
	if s.snapshot {
		err = m.attendSnapshot(ctx, s)
	} else {
		err = m.locked(ctx, s.id, func(ctx context.Context, v VM) error {
			err := m.attendVM(ctx, v)
			if err != nil {
				m.agenda.postpone(s, m.now().Add(retryPause))
			}
			return err
		})
	}
	if err != nil && !isNotFound(err) && ctx.Err() == nil {
		m.log.Error("act on a timer", "id", s.id, "error", err)
	}
}

func (m *Manager) attendVM(ctx context.Context, v VM) error {
	o, now := m.Outlook(v), m.now()
	switch {
	case o.Delete.passed(now):
		m.log.Info("timer deletes vm", "vm_id", v.ID, "reason", o.Delete.reason)
		return m.remove(ctx, v.ID)
	case o.Pause.passed(now):
		m.log.Info("timer pauses vm", "vm_id", v.ID, "reason", o.Pause.reason)
		_, err := m.pause(ctx, v, o.Pause.reason, func() bool { return m.Outlook(v).Pause.passed(now) })
		return err
	case Due{At: v.RestartAt}.passed(now):
		return m.restart(ctx, v)
	}
	return nil
}

// attendSnapshot deletes a snapshot whose time has come.
func (m *Manager) attendSnapshot(ctx context.Context, s subject) error {
	r, err := m.snapshots.FindSnapshot(ctx, s.id)
	if err != nil {
		return err
	}
	if at := r.DeleteAt(); at.IsZero() || m.now().Before(at) {
		m.SnapshotChanged(r)
		return nil
	}
	m.log.Info("timer deletes snapshot", "snapshot_id", r.ID)
	ctx = context.WithoutCancel(ctx)
	err = errors.Join(m.snapshots.DeleteSnapshot(ctx, r.ID), m.node.DeleteSnapshot(ctx, r.ID))
	if err != nil {
		m.agenda.postpone(s, m.now().Add(retryPause))
		m.SnapshotChanged(r)
		return fmt.Errorf("delete snapshot %s: %w", r.ID, err)
	}
	return nil
}
