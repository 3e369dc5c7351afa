package vm

import (
	"context"
	"errors"
	"fmt"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// The largest sizes that a VM can grow to.
const (
	MaxCPUs = 16
	// MaxMemoryMiB and MemoryStepMiB bound the memory and say what it is a
	// multiple of.
	MaxMemoryMiB  = 64 << 10
	MemoryStepMiB = 4
	MaxStorageMiB = 8 << 20
)

// ResizeParams says what a VM shall have. Nil leaves it as it is.
type ResizeParams struct {
	CPU *int
	// Memory and Storage are in MiB.
	Memory, Storage *int
}

// Resize makes a VM larger. A running VM gets everything at once, a paused one
// its CPUs and memory when it resumes, a stopped one when it boots; the disk can
// grow only while the VM runs. If it fails half-way, the VM's record says what
// was reached, and the error what was not; the same request can be repeated.
func (m *Manager) Resize(ctx context.Context, ref string, p ResizeParams) (v VM, err error) {
	err = m.locked(ctx, ref, func(ctx context.Context, was VM) error {
		want, err := p.over(was.Resources)
		if err != nil {
			return err
		}
		if err := resizable(was, want); err != nil {
			return err
		}
		v, err = m.resize(ctx, was, want)
		return err
	})
	return v, err
}

func (m *Manager) resize(ctx context.Context, was VM, want api.Resources) (VM, error) {
	have, err := m.node.Resize(ctx, was.ID, want)
	if err != nil {
		err = fmt.Errorf("resize vm %s: %w", was.ID, reached(err, was.Resources, have))
	}
	if have == (api.Resources{}) || have == was.Resources {
		return was, err
	}
	v, recordErr := m.sized(ctx, was.ID, have)
	return v, errors.Join(err, recordErr)
}

// reached adds to the error of a resize what it reached before.
func reached(err error, was, have api.Resources) error {
	f := fault.As(err)
	if f == nil || have == was || have == (api.Resources{}) {
		return err
	}
	told := f.With(err)
	told.Message = fmt.Sprintf("%s; until then the vm got to %d cpus, %d MiB of memory and %d MiB of storage", f.Message, have.CPU, have.Memory, have.Storage)
	return told
}

// sized records the size that a VM has.
func (m *Manager) sized(ctx context.Context, id string, have api.Resources) (VM, error) {
	return m.vms.UpdateVM(ctx, id, func(v *VM) error {
		v.Resources, v.UpdatedAt = have, m.now()
		return nil
	})
}

// over returns the size that p makes of have.
func (p ResizeParams) over(have api.Resources) (api.Resources, error) {
	want := have
	err := errors.Join(
		grown("cpu", "", p.CPU, &want.CPU, MaxCPUs),
		grown("memory", " MiB", p.Memory, &want.Memory, MaxMemoryMiB),
		grown("storage", " MiB", p.Storage, &want.Storage, MaxStorageMiB),
	)
	if err != nil {
		return have, err
	}
	if add := want.Memory - have.Memory; add%MemoryStepMiB != 0 {
		return have, fault.BadField("memory", "it grows in steps of %d MiB", MemoryStepMiB).
			Hint("ask for %d", have.Memory+(add/MemoryStepMiB+1)*MemoryStepMiB)
	}
	return want, nil
}

// grown puts the size asked for in the place of the present one.
func grown(field, unit string, asked, size *int, most int) error {
	switch {
	case asked == nil || *asked == *size:
		return nil
	case *asked < *size:
		return fault.BadField(field, "%d%s is less than the %d%s that the vm has; it can only grow", *asked, unit, *size, unit).
			Hint("for a smaller vm, create one from a smaller image")
	case *asked > most:
		return fault.BadField(field, "%d%s is more than %d%s", *asked, unit, most, unit).Hint("ask for at most %d", most)
	}
	*size = *asked
	return nil
}

// resizable refuses what the VM's state does not allow.
func resizable(v VM, want api.Resources) error {
	switch v.State {
	case api.StateRunning:
		return nil
	case api.StatePaused, api.StateStopped:
		if want.Storage == v.Resources.Storage {
			return nil
		}
		return fault.Conflict(api.ReasonWrongState, "storage: the disk of vm %s can grow only while it runs; it is %s", v.ID, v.State).
			Hint("start it first: pando vm start %s", v.ID)
	case api.StateStarting, api.StatePausing:
	}
	return wrongState(v, "resize")
}
