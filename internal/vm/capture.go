package vm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/field"
	"github.com/pandovm/pando/internal/snapshot"
)

// SnapshotParams names a new snapshot.
type SnapshotParams struct {
	Slug        string
	DisplayName string
	// Seed is where the snapshot's id comes from; empty means a random one.
	Seed string
	// AutoDelete and TTL are in seconds; nil and -1 mean never.
	AutoDelete, TTL *int64
}

func (p SnapshotParams) check() error {
	return errors.Join(field.CheckSlug(p.Slug), field.CheckDisplayName(p.DisplayName), snapshot.CheckTimers(p.AutoDelete, p.TTL))
}

// Snapshot saves a running or paused VM, which goes on as it was. It returns
// the snapshot, usable at once, and how long the VM stood still.
func (m *Manager) Snapshot(ctx context.Context, ref string, p SnapshotParams) (s snapshot.Snapshot, pause time.Duration, err error) {
	if err := p.check(); err != nil {
		return s, 0, err
	}
	err = m.locked(ctx, ref, func(ctx context.Context, v VM) error {
		if v.State != api.StateRunning && v.State != api.StatePaused {
			return wrongState(v, "snapshot")
		}
		s, pause, err = m.capture(ctx, v, p)
		return err
	})
	return s, pause, err
}

func (m *Manager) capture(ctx context.Context, v VM, p SnapshotParams) (snapshot.Snapshot, time.Duration, error) {
	s := m.snapshotOf(v, p)
	if err := m.snapshots.InsertSnapshot(ctx, s); err != nil {
		return s, 0, err
	}
	c, err := m.node.Snapshot(ctx, v.ID, s.ID)
	if err != nil {
		err = fmt.Errorf("snapshot vm %s: %w", v.ID, err)
		return s, 0, errors.Join(err, m.snapshots.DeleteSnapshot(ctx, s.ID))
	}
	s, err = m.snapshots.UpdateSnapshot(ctx, s.ID, func(s *snapshot.Snapshot) error {
		s.Bytes, s.CreatedAt = c.Bytes, c.At
		return nil
	})
	m.SnapshotChanged(s)
	m.background.run(func(ctx context.Context) { m.awaitDurable(ctx, s.ID) })
	return s, c.Pause, err
}

func (m *Manager) snapshotOf(v VM, p SnapshotParams) snapshot.Snapshot {
	now := m.now()
	s := snapshot.Snapshot{
		ID: SnapshotID(p.Seed), Slug: p.Slug, DisplayName: p.DisplayName,
		SourceVMID: v.ID, SourceVMSlug: v.Slug, SourceVMDisplayName: v.DisplayName,
		Resources: v.Resources, Image: v.Image, Ancestry: append([]string{v.ID}, v.Ancestry...),
		CreatedAt: now, UpdatedAt: now,
	}
	s.SetTimers(p.AutoDelete, p.TTL)
	return s
}

// awaitDurable marks a snapshot once its files are checksummed and on disk.
// A snapshot that cannot become durable is removed: it is gone, never wrong.
func (m *Manager) awaitDurable(ctx context.Context, id string) {
	err := m.node.AwaitDurable(ctx, id)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		err = m.markDurable(ctx, id)
	} else {
		err = errors.Join(err, m.node.DeleteSnapshot(ctx, id), m.snapshots.DeleteSnapshot(ctx, id))
	}
	if err != nil {
		m.log.Error("make snapshot durable", "snapshot_id", id, "error", err)
	}
}

func (m *Manager) markDurable(ctx context.Context, id string) error {
	_, err := m.snapshots.UpdateSnapshot(ctx, id, func(s *snapshot.Snapshot) error {
		s.Durable = true
		return nil
	})
	return err
}
