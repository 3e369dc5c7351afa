package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/jail"
	"github.com/pandovm/pando/internal/layer"
	"github.com/pandovm/pando/internal/memory"
	"github.com/pandovm/pando/internal/qemu"
)

// spawn starts the VM's QEMU and connects to it. With incoming set it waits,
// stopped, for a saved machine; else it boots from the disk.
func (n *Node) spawn(ctx context.Context, m *machine, incoming bool) (*live, error) {
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	if err := m.clearRun(); err != nil {
		return nil, err
	}
	q := n.qemuMachine(m, incoming)
	if err := q.Validate(); err != nil {
		return nil, err
	}
	m.rec.Node = qemu.DiskNode
	process, err := n.startProcess(ctx, m, q)
	if err != nil {
		return nil, fmt.Errorf("start qemu: %w", err)
	}
	l := &live{process: process, gone: make(chan struct{})}
	n.watchers.Go(func() { n.reap(l) })
	if err := errors.Join(m.noteStart(process), n.connect(ctx, l, q)); err != nil {
		return nil, errors.Join(fmt.Errorf("start qemu: %w%s", err, m.lastWords()), n.kill(l))
	}
	return l, nil
}

// startProcess starts QEMU in its jail. What it prints goes to the VM's log.
func (n *Node) startProcess(ctx context.Context, m *machine, q qemu.Machine) (jail.Process, error) {
	out, err := os.OpenFile(m.paths.log(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return jail.Process{}, fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = out.Close() }() // the process has its own copy
	spec := n.jailSpec(m, q)
	spec.Stdout, spec.Stderr = out, out
	return n.cfg.Jail.Start(ctx, spec)
}

// noteStart records the process, so that the next daemon can find and end it.
func (m *machine) noteStart(p jail.Process) error {
	m.rec.Process, m.rec.Fallback, m.rec.Phase = p, m.rec.Phase, phaseStarting
	return m.save(false)
}

// reap waits for the process and says so by closing gone. When the node closes
// the process is left alone.
func (n *Node) reap(l *live) {
	exit, err := l.process.WaitExit(n.life)
	if err == nil {
		l.exit = exit
		close(l.gone)
	}
}

// connect dials QEMU's monitor and the memory library. It gives up as soon as
// the process ends.
func (n *Node) connect(ctx context.Context, l *live, q qemu.Machine) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-l.gone:
			cancel(errors.New("qemu ended"))
		case <-ctx.Done():
		}
	}()
	var err error
	if l.monitor, err = qemu.Connect(ctx, q.QMPSocket()); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	if l.control, err = memory.DialControl(ctx, q.MemorySocket()); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}

// kill ends the process by order and waits until it is gone.
func (n *Node) kill(l *live) error {
	l.ordered.Store(true)
	err := errors.Join(l.process.Kill(), l.hangUp())
	select {
	case <-l.gone:
	case <-time.After(killDeadline):
		err = errors.Join(err, fmt.Errorf("it is still there after %s", killDeadline))
	}
	if err != nil {
		return fmt.Errorf("end qemu: %w", err)
	}
	return nil
}

// clearRun removes the sockets and logs of an earlier run.
func (m *machine) clearRun() error {
	q := qemu.Machine{Dir: m.paths.run()}
	for _, p := range []string{q.QMPSocket(), q.AgentSocket(), q.MemorySocket(), q.RAMFile(), q.AddedRAMFile()} {
		if err := os.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("clear run folder: %w", err)
		}
	}
	return nil
}

func (n *Node) qemuMachine(m *machine, incoming bool) qemu.Machine {
	r := &m.rec
	return qemu.Machine{
		ID: m.home(), Dir: m.paths.run(), CPUs: r.Machine.CPUs, MemoryMiB: r.Machine.MemoryMiB,
		AddedMemory: r.Machine.AddedMiB > 0,
		Accel:       n.cfg.Host.Accel, CPUModel: r.Machine.CPUModel, Type: r.Machine.Type,
		Kernel: n.layers.Path(r.Machine.Kernel.ID), Initrd: n.layers.Path(r.Machine.Initrd.ID),
		Append: r.Machine.Append, Firmware: n.cfg.Host.Firmware, Disk: m.paths.overlay(r.Top),
		MemoryLibrary: n.cfg.Library, Incoming: incoming,
	}
}

// processes is how many threads and processes QEMU may have: vCPUs, disk
// workers, and the frozen child of a capture.
const processes = 256

// overheadBytes is what QEMU may use beside the guest's RAM.
const overheadBytes = 768 << 20

func (n *Node) jailSpec(m *machine, q qemu.Machine) jail.Spec {
	return jail.Spec{
		Argv: append([]string{n.cfg.Host.Binary}, q.Args()...), Env: q.Env(),
		UID: m.rec.UID, GID: m.rec.UID, Mounts: n.mounts(m), Devices: q.Devices(), Dir: m.paths.run(), Cgroup: m.home(),
		Limits: limits(m.rec.size()),
	}
}

// limits are those of a VM of that size.
func limits(size api.Resources) jail.Limits {
	return jail.Limits{
		// While a capture is read, the pages that the source rewrites exist twice.
		MemoryBytes: 2*int64(size.Memory)<<20 + overheadBytes, CPUs: size.CPU, Processes: processes,
	}
}

// mounts lists the only files that the process can see beside the system's libraries.
func (n *Node) mounts(m *machine) []jail.Mount {
	mounts := []jail.Mount{
		{Source: m.paths.run(), Target: m.paths.run(), Writable: true},
		{Source: n.cfg.Library, Target: n.cfg.Library},
	}
	for _, l := range onlySet([]layer.Layer{m.rec.Machine.Kernel, m.rec.Machine.Initrd}) {
		p := n.layers.Path(l.ID)
		mounts = append(mounts, jail.Mount{Source: p, Target: p})
	}
	// The overlay looks for its chain in a folder beside its own.
	for _, l := range m.rec.Disk.Chain {
		mounts = append(mounts, jail.Mount{Source: n.layers.Path(l.ID), Target: filepath.Join(m.paths.layers(), string(l.ID))})
	}
	return mounts
}

// lastWords returns the end of what QEMU printed, to go into an error.
func (m *machine) lastWords() string {
	const most = 2 << 10
	data, err := os.ReadFile(m.paths.log())
	if err != nil || len(data) == 0 {
		return ""
	}
	return fmt.Sprintf(" (qemu said: %q)", data[max(0, len(data)-most):])
}

// fits checks that a saved machine can run on this host, before anything starts.
func (n *Node) fits(m Manifest) error {
	have := n.hardware()
	for _, c := range []struct{ what, saved, host string }{
		{"accelerator", m.Machine.Accelerator, have.Accelerator},
		{"machine type", m.Machine.Type, have.Type},
		{"cpu model", m.Machine.CPUModel, have.CPUModel},
		{"qemu version", m.Machine.QEMU, have.QEMU},
		{"device layout", m.Machine.Layout, have.Layout},
	} {
		if c.saved != c.host {
			return fault.Conflict(api.ReasonSnapshotIncompatible, "the snapshot was made with %s %q, this host has %q", c.what, c.saved, c.host).
				Hint("restore it on a host with the same %s, or start from an image: pando image ls", c.what)
		}
	}
	return nil
}

// intact checks every file of a saved machine, before anything starts.
func (n *Node) intact(ctx context.Context, m Manifest) error {
	for _, l := range m.layers() {
		if err := n.layers.Verify(ctx, l); err != nil {
			return err
		}
	}
	return nil
}
