package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/disk"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/qemu"
	"github.com/pandovm/pando/internal/vm"
)

// What the domain lets people ask for, QEMU can do: these do not compile otherwise.
const (
	_ = uint(qemu.MaxCPUs - vm.MaxCPUs)
	_ = uint(qemu.MaxMemoryMiB - vm.MaxMemoryMiB)
)

// growDeadline is how long the guest may take for each thing that it gets.
const growDeadline = 60 * time.Second

// Size returns what a VM has, or will have at its next start.
func (n *Node) Size(_ context.Context, id string) (api.Resources, error) {
	m, err := n.machine(id)
	if err != nil {
		return api.Resources{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rec.size(), nil
}

// Resize makes a VM at least as large as want: a running one at once, any other
// at its next start. The size that it has, or will have, is returned with an
// error too.
func (n *Node) Resize(ctx context.Context, id string, want api.Resources) (api.Resources, error) {
	m, err := n.machine(id)
	if err != nil {
		return api.Resources{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	want = atLeast(want, m.rec.size())
	if err := n.hasRoom(m.rec.size(), want); err != nil {
		return m.rec.size(), err
	}
	if l := m.live.Load(); l != nil {
		err = n.growLive(ctx, m, l, want)
	} else {
		err = m.growLater(want)
	}
	return m.rec.size(), err
}

// atLeast returns the larger of two sizes, field by field.
func atLeast(a, b api.Resources) api.Resources {
	return api.Resources{CPU: max(a.CPU, b.CPU), Memory: max(a.Memory, b.Memory), Storage: max(a.Storage, b.Storage)}
}

// hasRoom refuses what the host does not have.
func (n *Node) hasRoom(have, want api.Resources) error {
	if need := int64(want.Memory-have.Memory) << 20; need > 0 {
		free, err := availableMemory()
		if err != nil {
			return err
		}
		if free < need {
			return short(api.ReasonNoMemory, "memory", need, free).Hint("pause or delete other vms: pando vm ls")
		}
	}
	if need := int64(want.Storage-have.Storage) << 20; need > 0 {
		free, err := disk.FreeBytes(n.cfg.Dir)
		if err != nil {
			return err
		}
		if free < need {
			return short(api.ReasonDiskFull, "storage", need, free).Hint("free space in %s, or delete snapshots: pando snapshot ls", n.cfg.Dir)
		}
	}
	return nil
}

func short(reason api.Reason, field string, need, free int64) *fault.Error {
	f := fault.Conflict(reason, "%s: the host has %d MiB left, the vm would need %d MiB more", field, free>>20, need>>20)
	f.Field, f.Needed, f.Available = field, need, free
	return f
}

// availableMemory is what the kernel says can be used without swapping.
func availableMemory() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("look at the host's memory: %w", err)
	}
	for line := range bytes.Lines(text) {
		if fields := bytes.Fields(line); len(fields) == 3 && string(fields[0]) == "MemAvailable:" {
			kb, err := strconv.ParseInt(string(fields[1]), 10, 53)
			return kb << 10, err
		}
	}
	return 0, errors.New("look at the host's memory: no MemAvailable in /proc/meminfo")
}

// growLater notes the size of a VM that does not run.
func (m *machine) growLater(want api.Resources) error {
	if want.Storage > m.rec.size().Storage {
		return fault.Conflict(api.ReasonWrongState, "storage: the disk of vm %s can grow only while it runs", m.id).
			Hint("start it first: pando vm start %s", m.id)
	}
	was := m.rec.Machine.Grow
	m.rec.Machine.Grow = Growth{CPUs: want.CPU, MemoryMiB: want.Memory}
	if err := m.save(true); err != nil {
		m.rec.Machine.Grow = was
		return err
	}
	return nil
}

// settle gives a machine that boots everything from the start.
func (m *Machine) settle(size api.Resources) {
	m.CPUs, m.MemoryMiB, m.AddedMiB, m.Grow = size.CPU, size.Memory, 0, Growth{}
}

// growAtStart gives a VM that was saved what was asked for meanwhile. If that
// fails, it runs as it was saved, and the next start or resize tries again: to
// wake up matters more.
func (n *Node) growAtStart(ctx context.Context, m *machine, l *live) {
	if m.rec.Machine.Grow == (Growth{}) {
		return
	}
	if err := n.growLive(ctx, m, l, m.rec.size()); err != nil {
		n.log.Warn("vm was started smaller than it should be", "vm_id", m.id, "error", err)
	}
}

// growLive makes a running VM as large as want, and has the guest use it. The
// record follows step by step. The caller holds m.mu.
func (n *Node) growLive(ctx context.Context, m *machine, l *live, want api.Resources) error {
	ctx = context.WithoutCancel(ctx)
	if err := n.cfg.Jail.Limit(m.home(), limits(want)); err != nil {
		return fmt.Errorf("raise limits: %w", err)
	}
	n.stopFlattening(m)
	defer n.flattenLater(m)
	for _, step := range []struct {
		field string
		grow  func(context.Context, *machine, *live, api.Resources) error
	}{{"storage", n.growDisk}, {"cpu", n.growCPUs}, {"memory", n.growMemory}} {
		if err := n.growStep(ctx, m, l, want, step.grow); err != nil {
			return stuck(step.field, err)
		}
	}
	m.rec.Machine.Grow = Growth{}
	if err := m.save(true); err != nil {
		return err
	}
	return n.growGuest(ctx, m, l)
}

func (n *Node) growStep(ctx context.Context, m *machine, l *live, want api.Resources, grow func(context.Context, *machine, *live, api.Resources) error) error {
	ctx, cancel := l.whileAlive(ctx, growDeadline)
	defer cancel()
	return grow(ctx, m, l, want)
}

// stuck is the error of a step that failed.
func stuck(field string, err error) error {
	if fault.As(err) != nil {
		return err
	}
	f := fault.Conflict(api.ReasonWrongState, "%s: the running vm could not be given more", field).
		Hint("repeat it, or stop the vm, resize it and start it again")
	f.Field = field
	return f.With(err)
}

// growDisk records the size first: a disk larger than its file is harmless, the
// other way round a later overlay would cut it off.
func (n *Node) growDisk(ctx context.Context, m *machine, l *live, want api.Resources) error {
	was := m.rec.Disk.SizeBytes
	size := int64(want.Storage) << 20
	if size <= was {
		return nil
	}
	m.rec.Disk.SizeBytes = size
	if err := m.save(true); err != nil {
		m.rec.Disk.SizeBytes = was
		return err
	}
	if err := l.monitor.ResizeDisk(ctx, m.rec.Node, size); err != nil {
		m.rec.Disk.SizeBytes = was
		return errors.Join(err, m.save(true))
	}
	return nil
}

func (n *Node) growCPUs(ctx context.Context, m *machine, l *live, want api.Resources) error {
	if want.CPU <= m.rec.Machine.CPUs {
		return nil
	}
	err := l.monitor.AddCPUs(ctx, want.CPU)
	if err != nil {
		// Some may have been added.
		return errors.Join(err, n.settleSize(ctx, m, l))
	}
	m.rec.Machine.CPUs = want.CPU
	return m.save(true)
}

func (n *Node) growMemory(ctx context.Context, m *machine, l *live, want api.Resources) error {
	added := want.Memory - m.rec.Machine.MemoryMiB
	if added <= m.rec.Machine.AddedMiB {
		return nil
	}
	err := l.monitor.AddMemory(ctx, n.qemuMachine(m, false), added)
	if err != nil {
		// The guest may have taken some, and may take more later.
		return errors.Join(err, n.settleSize(context.WithoutCancel(ctx), m, l))
	}
	return m.added(added)
}

// added records how much memory was added, and that the map of the memory reaches
// further.
func (m *machine) added(mib int) error {
	mm, err := m.rec.memoryMap()
	if err != nil {
		return err
	}
	m.rec.Machine.AddedMiB = mib
	if m.rec.Memory.Map, err = mm.Grown(m.rec.Machine.ramBytes()).MarshalBinary(); err != nil {
		return err
	}
	return m.save(true)
}

// growGuest has the guest take into use what its machine has. The caller holds m.mu.
func (n *Node) growGuest(ctx context.Context, m *machine, l *live) error {
	ctx, cancel := l.whileAlive(ctx, growDeadline)
	defer cancel()
	k := l.link.Load()
	if k == nil || closed(k.Done()) {
		if _, err := n.handshake(ctx, m, l, nil, confirmDeadline); err != nil {
			return err
		}
		if k = l.link.Load(); k == nil {
			return errors.New("the guest hung up")
		}
	}
	size := m.rec.size()
	return k.Grow(ctx, guest.Growth{CPUs: size.CPU, MemoryBytes: int64(size.Memory) << 20, DiskBytes: m.rec.Disk.SizeBytes})
}

// settleSize brings the record in line with the machine that runs: a daemon may
// have ended, or an order failed, between the one and the other.
func (n *Node) settleSize(ctx context.Context, m *machine, l *live) error {
	cpus, err := l.monitor.CPUs(ctx)
	if err != nil {
		return fmt.Errorf("count cpus: %w", err)
	}
	added, _, err := l.monitor.AddedMiB(ctx)
	if err != nil {
		return fmt.Errorf("ask for added memory: %w", err)
	}
	size, err := l.monitor.DiskBytes(ctx, m.rec.Node)
	if err != nil {
		return fmt.Errorf("ask for the size of the disk: %w", err)
	}
	if size > 0 && size < m.rec.Disk.SizeBytes {
		if err := l.monitor.ResizeDisk(ctx, m.rec.Node, m.rec.Disk.SizeBytes); err != nil {
			return fmt.Errorf("grow the disk: %w", err)
		}
	}
	m.rec.Machine.CPUs = cpus
	if added > m.rec.Machine.AddedMiB {
		return m.added(added)
	}
	return m.save(true)
}
