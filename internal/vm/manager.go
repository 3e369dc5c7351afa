package vm

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/snapshot"
)

// Manager runs the use cases. It is safe for concurrent use.
type Manager struct {
	vms       Repository
	snapshots snapshot.Repository
	journal   Journal
	node      Node
	images    Images
	rules     Rules
	now       func() time.Time
	log       *slog.Logger

	locks locks
	// usage and agenda are what the timers go by; begun is when this daemon took over.
	usage  usage
	agenda *agenda
	alarm  Alarm
	begun  time.Time
	// background counts the work that outlives a call; Close waits for it.
	background group
}

// Deps is what a Manager needs.
type Deps struct {
	VMs       Repository
	Snapshots snapshot.Repository
	Journal   Journal
	Node      Node
	Images    Images
	// Rules are the rules that name VMs; nil means that there are none.
	Rules Rules
	Now   func() time.Time
	// Alarm is the clock's bell; nil means the system's. It goes with Now.
	Alarm Alarm
	Log   *slog.Logger
}

// NewManager returns a Manager. Call Recover before the first use case.
func NewManager(d Deps) *Manager {
	if d.Alarm == nil {
		d.Alarm = systemAlarm
	}
	return &Manager{
		vms: d.VMs, snapshots: d.Snapshots, journal: d.Journal, node: d.Node, images: d.Images, rules: d.Rules,
		now: d.Now, log: d.Log, agenda: newAgenda(), alarm: d.Alarm, begun: d.Now(),
	}
}

// Get returns the VM with that id or slug.
func (m *Manager) Get(ctx context.Context, ref string) (VM, error) {
	return m.vms.FindVM(ctx, ref)
}

// List returns a page of VMs, newest first, and the number per state.
func (m *Manager) List(ctx context.Context, f Filter) ([]VM, map[api.State]int, error) {
	return m.vms.ListVMs(ctx, f)
}

// TotalRunTime is how long the VM has run until now.
func (v VM) TotalRunTime(now time.Time) time.Duration {
	if v.RunningSince.IsZero() {
		return v.RunTime
	}
	return v.RunTime + now.Sub(v.RunningSince)
}

// locked runs change while no other use case changes the VM. The effects are
// detached from the caller: a client that goes away does not leave them half done.
func (m *Manager) locked(ctx context.Context, ref string, change func(ctx context.Context, v VM) error) error {
	v, err := m.vms.FindVM(ctx, ref)
	if err != nil {
		return err
	}
	release, err := m.locks.acquire(ctx, v.ID)
	if err != nil {
		return err
	}
	defer release()
	defer m.rearm(ctx, v.ID)
	// The VM may have changed or gone while we waited.
	if v, err = m.vms.FindVM(ctx, v.ID); err != nil {
		return err
	}
	return change(context.WithoutCancel(ctx), v)
}

// move enters a state and keeps the run-time account right.
func (m *Manager) move(ctx context.Context, id string, to api.State, reason string) (VM, error) {
	return m.vms.UpdateVM(ctx, id, func(v *VM) error {
		if err := v.enter(to, reason); err != nil {
			return err
		}
		m.account(v)
		return nil
	})
}

// account opens or closes the present run after a change of state.
func (m *Manager) account(v *VM) {
	now := m.now()
	v.UpdatedAt = now
	switch {
	case v.State == api.StateRunning && v.RunningSince.IsZero():
		v.RunningSince, v.RestingSince = now, time.Time{}
	case v.State == api.StatePaused || v.State == api.StateStopped:
		v.RunTime = v.TotalRunTime(now)
		v.RunningSince = time.Time{}
		if v.RestingSince.IsZero() {
			v.RestingSince = now
		}
	}
}

// begin moves the VM to starting under a new generation.
func (m *Manager) begin(ctx context.Context, id string) (VM, error) {
	return m.vms.UpdateVM(ctx, id, func(v *VM) error {
		if err := v.enter(api.StateStarting, ""); err != nil {
			return err
		}
		v.Generation++
		v.UpdatedAt = m.now()
		return nil
	})
}

// confirmed records that the guest has confirmed its epoch. reason says why it
// was started if nobody asked for it.
func (m *Manager) confirmed(ctx context.Context, id, reason string, r Running) (VM, error) {
	return m.vms.UpdateVM(ctx, id, func(v *VM) error {
		if err := v.enter(api.StateRunning, reason); err != nil {
			return err
		}
		v.AgentVersion, v.RestartAt = r.AgentVersion, time.Time{}
		m.account(v)
		return nil
	})
}

// hostname is what the guest calls itself: the slug, else a short form of the id.
func hostname(slug, id string) string {
	if slug != "" {
		return slug
	}
	return "vm-" + strings.ReplaceAll(strings.TrimPrefix(id, "vm-"), "-", "")[:12]
}

// source finds the snapshot that a create starts from: an image by name, else
// a snapshot by id or slug.
func (m *Manager) source(ctx context.Context, ref string) (snapshot.Snapshot, error) {
	s, isImage, err := m.images.Resolve(ctx, ref)
	if err != nil || isImage {
		return s, err
	}
	s, err = m.snapshots.FindSnapshot(ctx, ref)
	if f := fault.As(err); f != nil && f.Code == api.CodeNotFound {
		return s, &fault.Error{
			Code: api.CodeNotFound, Field: "snapshotId",
			Message: "snapshotId: no snapshot or image is called " + strconv.Quote(ref),
			Remedy:  "see what there is: pando snapshot ls, pando image ls",
		}
	}
	return s, err
}
