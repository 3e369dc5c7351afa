package vm

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/field"
	"github.com/pandovm/pando/internal/snapshot"
)

// CreateParams says what a new VM is made from and called.
type CreateParams struct {
	// SnapshotRef is a snapshot id, a slug or an image name; empty means the default image.
	SnapshotRef string
	Slug        string
	// ReassignSlug takes Slug from the VM that has it, in the moment in which the
	// new VM is handed out.
	ReassignSlug bool
	DisplayName  string
	Metadata     map[string]string
	Timers       TimerChanges
	// AutomaticRestart is true unless it says false.
	AutomaticRestart *bool
	Placement        []AntiAffinity
	// Identity is "new" unless it says "keep".
	Identity api.Identity
	// Seed is where the VM's id comes from; empty means a random one.
	Seed string
	// Attach, if set, adds what belongs to the VM once it has a record and before
	// it runs. If it fails, the VM is not made.
	Attach func(ctx context.Context, id string) error
}

func (p CreateParams) check() error {
	return errors.Join(field.CheckSlug(p.Slug), checkReassign(p.ReassignSlug, p.Slug), field.CheckDisplayName(p.DisplayName),
		checkMetadata(p.Metadata), checkIdentity(p.Identity), p.Timers.check(), checkPlacement(p.Placement))
}

// Create makes a VM from a snapshot and returns it once its guest has
// confirmed the epoch. If it fails, nothing is left.
func (m *Manager) Create(ctx context.Context, p CreateParams) (VM, error) {
	if err := p.check(); err != nil {
		return VM{}, err
	}
	s, err := m.source(ctx, p.SnapshotRef)
	if err != nil {
		return VM{}, err
	}
	ctx = context.WithoutCancel(ctx)
	v := m.fromSnapshot(s, p)
	if err := m.vms.InsertVM(ctx, v); err != nil {
		return VM{}, err
	}
	release, err := m.locks.acquire(ctx, v.ID)
	if err != nil {
		return VM{}, err
	}
	defer release()
	if p.Attach != nil {
		if err := p.Attach(ctx, v.ID); err != nil {
			return VM{}, m.discard(ctx, v.ID, err)
		}
	}
	defer m.rearm(ctx, v.ID)
	// Before it is used, so that a timer does not delete it meanwhile.
	m.touch(ctx, s.ID)
	r, err := m.node.Restore(ctx, Restore{
		VMID: v.ID, Generation: v.Generation, SnapshotID: s.ID, Hostname: hostname(p.Slug, v.ID), Identity: p.Identity,
	})
	if err != nil {
		return VM{}, m.discard(ctx, v.ID, fmt.Errorf("create vm from %s: %w", s.ID, err))
	}
	if p.ReassignSlug {
		if err := m.takeSlug(ctx, v.ID, p.Slug); err != nil {
			return VM{}, errors.Join(err, m.remove(ctx, v.ID))
		}
	}
	return m.confirmed(ctx, v.ID, "", r)
}

// takeSlug gives a VM the slug of another one.
func (m *Manager) takeSlug(ctx context.Context, id, slug string) error {
	_, err := m.vms.UpdateVM(ctx, id, func(v *VM) error {
		v.Slug, v.TakeSlug = slug, true
		return nil
	})
	return err
}

func (m *Manager) fromSnapshot(s snapshot.Snapshot, p CreateParams) VM {
	now := m.now()
	v := VM{
		ID: ID(p.Seed, 0), Slug: p.Slug, DisplayName: p.DisplayName, State: api.StateStarting,
		Resources: s.Resources, SnapshotID: s.ID, SnapshotSlug: s.Slug, Image: s.Image,
		Ancestry: s.Ancestry, Generation: 1, Metadata: maps.Clone(p.Metadata),
		AutomaticRestart: p.AutomaticRestart == nil || *p.AutomaticRestart, Placement: p.Placement,
		CreatedAt: now, UpdatedAt: now,
	}
	p.Timers.apply(&v.Timers)
	if p.ReassignSlug {
		v.Slug = "" // The VM that has it keeps it until the new one runs.
	}
	return v
}

// discard removes the record of a VM that could not be made.
func (m *Manager) discard(ctx context.Context, id string, cause error) error {
	return errors.Join(cause, m.vms.DeleteVM(ctx, id))
}

// touch notes that a snapshot was used. Failing to note it fails nothing.
func (m *Manager) touch(ctx context.Context, id string) {
	s, err := m.snapshots.UpdateSnapshot(ctx, id, func(s *snapshot.Snapshot) error {
		s.LastUsedAt = m.now()
		return nil
	})
	if err == nil {
		m.SnapshotChanged(s)
	} else {
		m.log.Warn("note use of snapshot", "snapshot_id", id, "error", err)
	}
}
