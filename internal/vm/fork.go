package vm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/field"
)

// ForkParams says how many children to make and what they are called.
type ForkParams struct {
	Count int
	// Slug is a prefix: "try" gives try-1, try-2, …
	Slug        string
	DisplayName string
	// Metadata of the children; nil means the source's.
	Metadata map[string]string
	Identity api.Identity
	// Seed is where the children's ids come from, in order; empty means random ones.
	Seed string
}

func (p ForkParams) check() error {
	err := errors.Join(checkCount(p.Count), field.CheckSlug(p.Slug), field.CheckDisplayName(p.DisplayName), checkMetadata(p.Metadata), checkIdentity(p.Identity))
	if err != nil || p.Slug == "" {
		return err
	}
	return field.CheckSlug(fmt.Sprintf("%s-%d", p.Slug, p.Count))
}

// ForkOutcome is the result of a fork, a child per entry in the order of the numbers.
type ForkOutcome struct {
	// Pause is how long the source stood still.
	Pause    time.Duration
	Children []ForkedChild
}

// ForkedChild is a VM, or the reason why this one child was not made.
type ForkedChild struct {
	VM  VM
	Err error
}

// Fork captures a running VM once and starts Count exact copies of it. The
// source goes on at once. A paused VM stays paused: its copies continue from
// the moment that was saved. An error means that no child exists; a child that
// fails alone has its own Err.
func (m *Manager) Fork(ctx context.Context, ref string, p ForkParams) (ForkOutcome, error) {
	if err := p.check(); err != nil {
		return ForkOutcome{}, err
	}
	var out ForkOutcome
	err := m.locked(ctx, ref, func(ctx context.Context, v VM) error {
		if v.State != api.StateRunning && v.State != api.StatePaused {
			return wrongState(v, "fork")
		}
		var err error
		out, err = m.fork(ctx, v, p)
		return err
	})
	return out, err
}

func (m *Manager) fork(ctx context.Context, source VM, p ForkParams) (ForkOutcome, error) {
	children := m.children(source, p)
	if err := m.insertAll(ctx, children); err != nil {
		return ForkOutcome{}, err
	}
	if err := m.copyRules(ctx, source, children); err != nil {
		return ForkOutcome{}, errors.Join(err, m.dropAll(ctx, children))
	}
	order := Fork{VMID: source.ID, Identity: p.Identity}
	for _, c := range children {
		order.Children = append(order.Children, ForkChild{VMID: c.ID, Generation: c.Generation, Hostname: hostname(c.Slug, c.ID)})
	}
	for _, c := range children {
		defer m.rearm(ctx, c.ID)
	}
	spread := m.node.Fork
	if source.State == api.StatePaused {
		spread = m.forkSaved
	}
	res, err := spread(ctx, order)
	if err != nil {
		return ForkOutcome{}, errors.Join(fmt.Errorf("fork vm %s: %w", source.ID, err), m.dropAll(ctx, children))
	}
	return m.forked(ctx, children, res), nil
}

// forkSaved makes children of a paused VM through a snapshot that only they
// know of.
func (m *Manager) forkSaved(ctx context.Context, o Fork) (ForkResult, error) {
	saved := SnapshotID("")
	c, err := m.node.Snapshot(ctx, o.VMID, saved)
	if err != nil {
		return ForkResult{}, err
	}
	res := ForkResult{CapturedAt: c.At, Children: make([]ChildResult, len(o.Children))}
	var wg sync.WaitGroup
	for i, child := range o.Children {
		wg.Go(func() {
			res.Children[i].Running, res.Children[i].Err = m.node.Restore(ctx, Restore{
				VMID: child.VMID, Generation: child.Generation, SnapshotID: saved, Hostname: child.Hostname, Identity: o.Identity,
			})
		})
	}
	wg.Wait()
	if err := m.node.DeleteSnapshot(ctx, saved); err != nil {
		// The next start of the daemon removes what no record names.
		m.log.Error("remove the snapshot of a fork", "vm_id", o.VMID, "snapshot_id", saved, "error", err)
	}
	return res, nil
}

// forked records what became of each child.
func (m *Manager) forked(ctx context.Context, children []VM, res ForkResult) ForkOutcome {
	out := ForkOutcome{Pause: res.Pause, Children: make([]ForkedChild, len(children))}
	for i, c := range children {
		out.Children[i] = m.forkedChild(ctx, c.ID, res.CapturedAt, res.Children[i])
	}
	return out
}

func (m *Manager) forkedChild(ctx context.Context, id string, at time.Time, r ChildResult) ForkedChild {
	if r.Err != nil {
		return ForkedChild{Err: m.discard(ctx, id, r.Err)}
	}
	v, err := m.vms.UpdateVM(ctx, id, func(v *VM) error {
		v.ForkedAt = at
		return nil
	})
	if err == nil {
		v, err = m.confirmed(ctx, id, "", r.Running)
	}
	return ForkedChild{VM: v, Err: err}
}

func (m *Manager) children(source VM, p ForkParams) []VM {
	now := m.now()
	children := make([]VM, p.Count)
	for i := range children {
		children[i] = VM{
			ID: ID(p.Seed, i), DisplayName: p.DisplayName, State: api.StateStarting,
			Resources: source.Resources, Image: source.Image,
			ParentID: source.ID, Ancestry: append([]string{source.ID}, source.Ancestry...),
			Generation: 1, Metadata: maps.Clone(p.Metadata), CreatedAt: now, UpdatedAt: now,
			// The placement is not the children's: they are where their source is.
			Timers: source.Timers, AutomaticRestart: source.AutomaticRestart,
		}
		if p.Metadata == nil {
			children[i].Metadata = maps.Clone(source.Metadata)
		}
		if p.Slug != "" {
			children[i].Slug = fmt.Sprintf("%s-%d", p.Slug, i+1)
		}
	}
	return children
}

// copyRules gives the children the rules of their source, which go with them.
func (m *Manager) copyRules(ctx context.Context, source VM, children []VM) error {
	if m.rules == nil {
		return nil
	}
	ids := make([]string, len(children))
	for i, c := range children {
		ids[i] = c.ID
	}
	if err := m.rules.CopyRules(ctx, source.ID, ids); err != nil {
		return fmt.Errorf("copy rules of vm %s: %w", source.ID, err)
	}
	return nil
}

// insertAll records all children or none.
func (m *Manager) insertAll(ctx context.Context, children []VM) error {
	for i, c := range children {
		if err := m.vms.InsertVM(ctx, c); err != nil {
			return errors.Join(err, m.dropAll(ctx, children[:i]))
		}
	}
	return nil
}

func (m *Manager) dropAll(ctx context.Context, children []VM) error {
	var errs []error
	for _, c := range children {
		errs = append(errs, m.vms.DeleteVM(ctx, c.ID))
	}
	return errors.Join(errs...)
}
