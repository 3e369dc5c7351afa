package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/pandovm/pando/internal/jail"
	"github.com/pandovm/pando/internal/layer"
	"github.com/pandovm/pando/internal/qemu"
)

// adoptAll finds the VMs that an earlier daemon left and takes them over.
func (n *Node) adoptAll(ctx context.Context) error {
	entries, err := os.ReadDir(filepath.Join(n.cfg.Dir, "vms"))
	if err != nil {
		return fmt.Errorf("list vms: %w", err)
	}
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for _, e := range entries {
		wg.Go(func() {
			if err := n.adopt(ctx, e.Name()); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("take over vm %s: %w", e.Name(), err))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// adopt takes over one VM, whatever was under way when the last daemon ended.
func (n *Node) adopt(ctx context.Context, home string) error {
	m := &machine{paths: vmPaths{filepath.Join(n.cfg.Dir, "vms", home)}}
	rec, err := readRecord(m.paths.record())
	if errors.Is(err, os.ErrNotExist) {
		// It was being removed, or never got as far as a process.
		return errors.Join(os.RemoveAll(m.paths.dir), n.cfg.Jail.Remove(home))
	}
	if err != nil {
		return err
	}
	m.id, m.rec = rec.ID, rec
	n.mu.Lock()
	n.machines[m.id] = m
	n.mu.Unlock()
	n.layers.Hold(m.id, idsOf(rec.layers())...)
	if rec.Phase == phaseRunning && rec.Process.Alive() {
		return n.takeOver(ctx, m)
	}
	return n.lay(ctx, m)
}

// takeOver connects to a VM that runs. A guest that does not answer now is
// asked again at the next command.
func (n *Node) takeOver(ctx context.Context, m *machine) error {
	l := &live{process: m.rec.Process, gone: make(chan struct{})}
	n.watchers.Go(func() { n.reap(l) })
	ctx, cancel := context.WithTimeout(ctx, adoptDeadline)
	defer cancel()
	if err := n.connect(ctx, l, n.qemuMachine(m, false)); err != nil {
		n.log.Warn("running vm cannot be reached; ending it", "vm_id", m.id, "error", err)
		return errors.Join(n.kill(l), n.lay(ctx, m))
	}
	if err := errors.Join(n.settleSwitch(ctx, m, l), n.settleSize(ctx, m, l)); err != nil {
		return err
	}
	if err := l.monitor.Cont(ctx); err != nil {
		return fmt.Errorf("let the vm run: %w", err)
	}
	if _, err := n.handshake(ctx, m, l, nil, adoptDeadline); err != nil {
		n.log.Warn("guest does not answer yet", "vm_id", m.id, "error", err)
	}
	return n.handOut(m, l)
}

// settleSwitch finishes or undoes the change of overlay that a capture was in.
func (n *Node) settleSwitch(ctx context.Context, m *machine, l *live) error {
	if m.rec.Switching == "" {
		return nil
	}
	node, err := l.monitor.TopNode(ctx)
	if err != nil {
		return fmt.Errorf("ask for the disk overlay: %w", err)
	}
	s := &freezer{n: n, m: m, l: l, switched: node == diskNode(m.rec.Top+1)}
	return s.settle(ctx)
}

// lay brings a VM without a living process to rest: stopped, paused, or gone
// if it was never handed out.
func (n *Node) lay(ctx context.Context, m *machine) error {
	if err := m.endLeftover(ctx); err != nil {
		return err
	}
	switch m.rec.Phase {
	case phaseStarting:
		return n.fallBack(m)
	case phaseRunning:
		m.rec.Phase = phaseStopped
		// QEMU removes its socket when it ends in order.
		m.lost = exists(qemu.Machine{Dir: m.paths.run()}.QMPSocket())
	case phasePaused, phaseStopped:
	}
	return errors.Join(n.recoverSwitch(m), m.save(true), n.cfg.Jail.Remove(m.home()))
}

// endLeftover ends the process that the record names, if it still runs.
func (m *machine) endLeftover(ctx context.Context) error {
	if m.rec.Process.PID == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killDeadline)
	defer cancel()
	if err := errors.Join(m.rec.Process.Kill(), m.rec.Process.Wait(ctx)); err != nil {
		return fmt.Errorf("end leftover process: %w", err)
	}
	m.rec.Process = jail.Process{}
	return nil
}

// fallBack undoes a start that was not confirmed.
func (n *Node) fallBack(m *machine) error {
	if m.rec.Fallback == "" {
		return n.remove(m)
	}
	if m.rec.Fallback == phasePaused {
		if err := os.Remove(m.paths.overlay(m.rec.Top)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove overlay: %w", err)
		}
	}
	m.rec.Phase, m.rec.Fallback = m.rec.Fallback, ""
	return errors.Join(m.save(true), n.cfg.Jail.Remove(m.home()))
}

// recoverSwitch finishes a change of overlay after the process has ended. It
// is finished even where it had not begun: an empty overlay on the old one is
// the same disk.
func (n *Node) recoverSwitch(m *machine) error {
	if m.rec.Switching == "" {
		return nil
	}
	moved := exists(n.layers.Path(m.rec.Switching))
	if !moved && m.rec.Phase != phasePaused && !exists(m.paths.overlay(m.rec.Top+1)) {
		m.rec.Switching = ""
		return m.save(true)
	}
	if moved {
		return n.acceptSwitch(m)
	}
	return n.finishSwitch(m)
}

// acceptSwitch records a change of overlay whose file was moved already.
func (n *Node) acceptSwitch(m *machine) error {
	st, err := os.Stat(n.layers.Path(m.rec.Switching))
	if err != nil {
		return fmt.Errorf("look at disk layer: %w", err)
	}
	return n.switchedTo(m, layer.Layer{ID: m.rec.Switching, Kind: layer.KindDisk, Bytes: st.Size()})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
