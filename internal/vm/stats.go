package vm

import (
	"context"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// Usage is what a VM uses on its host. Processor and memory are zero while no
// process runs.
type Usage struct {
	// CPUTime is the processor time of the present process, guest and emulation.
	CPUTime time.Duration
	// MemoryShared is memory that the VM has in common with its relatives,
	// MemoryUnique what it has for itself. In bytes.
	MemoryShared, MemoryUnique int64
	// DiskBytes is what deleting the VM would free on the host's disk.
	DiskBytes int64
}

// Stats is a VM with what it uses.
type Stats struct {
	VM
	Usage

	// At is when it was measured.
	At time.Time
}

// Uptime is how long the present run has lasted; 0 if the VM does not run.
func (s Stats) Uptime() time.Duration {
	if s.RunningSince.IsZero() {
		return 0
	}
	return s.At.Sub(s.RunningSince)
}

// Stats measures one VM. It wakes nothing and waits for no use case.
func (m *Manager) Stats(ctx context.Context, ref string) (Stats, error) {
	v, err := m.vms.FindVM(ctx, ref)
	if err != nil {
		return Stats{}, err
	}
	return m.measure(ctx, v)
}

// AllStats measures every VM, newest first.
func (m *Manager) AllStats(ctx context.Context) ([]Stats, error) {
	vms, _, err := m.vms.ListVMs(ctx, Filter{})
	if err != nil {
		return nil, err
	}
	all := make([]Stats, 0, len(vms))
	for _, v := range vms {
		s, err := m.measure(ctx, v)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// measure takes a VM that the node does not have, not yet or not any more, for
// one that uses nothing.
func (m *Manager) measure(ctx context.Context, v VM) (Stats, error) {
	u, err := m.node.Usage(ctx, v.ID)
	if f := fault.As(err); f != nil && f.Code == api.CodeNotFound {
		err = nil
	}
	return Stats{VM: v, Usage: u, At: m.now()}, err
}
