package vm

import (
	"context"
	"errors"
	"maps"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/field"
)

// UpdateParams are new values for what a VM's owner may set; nil leaves a field
// as it is.
type UpdateParams struct {
	// Slug and DisplayName are removed by "".
	Slug, DisplayName *string
	// ReassignSlug takes Slug from the VM that has it.
	ReassignSlug     bool
	Timers           TimerChanges
	AutomaticRestart *bool
	// Metadata is merged into what there is; "" as a value removes the key.
	Metadata map[string]string
}

func (p UpdateParams) check() error {
	slug, name := "", ""
	if p.Slug != nil {
		slug = *p.Slug
	}
	if p.DisplayName != nil {
		name = *p.DisplayName
	}
	return errors.Join(field.CheckSlug(slug), checkReassign(p.ReassignSlug, slug), field.CheckDisplayName(name),
		p.Timers.check(), checkMetadata(p.Metadata))
}

func checkReassign(reassign bool, slug string) error {
	if reassign && slug == "" {
		return fault.BadField("reassignSlug", "needs a slug to reassign").Hint(`send "slug" with it`)
	}
	return nil
}

// Update changes the settings of a VM in whatever state, and returns it. It is
// no use of the VM: an idle timer runs on. Timers whose moment has passed act at
// once.
func (m *Manager) Update(ctx context.Context, ref string, p UpdateParams) (v VM, err error) {
	if err := p.check(); err != nil {
		return VM{}, err
	}
	err = m.locked(ctx, ref, func(ctx context.Context, was VM) error {
		if v, err = m.vms.UpdateVM(ctx, was.ID, func(v *VM) error { return m.change(v, p) }); err != nil {
			return err
		}
		return m.dropStopped(ctx, v)
	})
	return v, err
}

func (m *Manager) change(v *VM, p UpdateParams) error {
	if p.Slug != nil {
		v.Slug, v.TakeSlug = *p.Slug, p.ReassignSlug
	}
	if p.DisplayName != nil {
		v.DisplayName = *p.DisplayName
	}
	if v.Timers.Idle == nil && m.begun.After(v.UsedAt) {
		// Nothing was written down while there was no timer.
		v.UsedAt = m.begun
	}
	p.Timers.apply(&v.Timers)
	if p.AutomaticRestart != nil {
		v.AutomaticRestart = *p.AutomaticRestart
	}
	if !v.AutomaticRestart {
		v.cancelRestart()
	}
	v.mergeMetadata(p.Metadata)
	return checkMetadata(v.Metadata)
}

func (v *VM) mergeMetadata(changes map[string]string) {
	if len(changes) == 0 {
		return
	}
	merged := maps.Clone(v.Metadata)
	if merged == nil {
		merged = map[string]string{}
	}
	for key, value := range changes {
		if value == "" {
			delete(merged, key)
		} else {
			merged[key] = value
		}
	}
	v.Metadata = merged
}

// dropStopped deletes an ephemeral VM that has stopped and will not be started
// again. The caller holds the VM's lock.
func (m *Manager) dropStopped(ctx context.Context, v VM) error {
	if v.State != api.StateStopped || !v.ephemeral() || !v.RestartAt.IsZero() {
		return nil
	}
	m.log.Info("ephemeral vm has stopped", "vm_id", v.ID, "reason", v.StateReason)
	return m.remove(ctx, v.ID)
}
