package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/disk"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/layer"
	"github.com/pandovm/pando/internal/memory"
	"github.com/pandovm/pando/internal/qemu"
)

// frozen is one moment of a running VM: its device state and disk are layers
// already, its memory is still to be read from the frozen copy.
type frozen struct {
	at    time.Time
	pause time.Duration
	// manifest lacks the memory until readMemory.
	manifest Manifest
	ram      *memory.Frozen
	base     memory.Map
	bases    []layer.Layer
}

// freeze stops the VM for as long as it takes to save the device state, to
// switch the disk to a new overlay and to fork its process, and lets it go on.
// Everything that can be done before or after the stop is. The caller holds m.mu.
func (n *Node) freeze(ctx context.Context, m *machine, l *live) (*frozen, error) {
	n.stopFlattening(m)
	s, err := n.prepareFreeze(ctx, m, l)
	if err != nil {
		return nil, err
	}
	defer s.close()
	f := &frozen{base: s.base, bases: m.rec.Memory.Layers}
	if err := s.stopAndGo(ctx, f); err != nil {
		return nil, errors.Join(err, s.settle(ctx))
	}
	if err := s.settle(ctx); err != nil {
		return nil, errors.Join(err, f.ram.Close())
	}
	f.manifest = m.rec.Manifest
	f.manifest.Memory, f.manifest.CapturedAt = Memory{}, f.at
	if f.manifest.State, err = s.state.Seal(); err != nil {
		return nil, errors.Join(fmt.Errorf("keep device state: %w", err), f.ram.Close())
	}
	s.kept = true
	return f, nil
}

// freezer is a freeze under way.
type freezer struct {
	n        *Node
	m        *machine
	l        *live
	base     memory.Map
	state    *layer.Draft
	save     *qemu.Saving
	kept     bool
	switched bool
}

// prepareFreeze does what does not need the VM to stand still.
func (n *Node) prepareFreeze(ctx context.Context, m *machine, l *live) (*freezer, error) {
	s := &freezer{n: n, m: m, l: l}
	var err error
	if s.base, err = m.rec.memoryMap(); err != nil {
		return nil, err
	}
	if err := n.room(l); err != nil {
		return nil, err
	}
	if s.state, err = n.layers.Create(layer.KindState); err != nil {
		return nil, fmt.Errorf("create device state: %w", err)
	}
	if err := s.prepareDisk(ctx); err != nil {
		return nil, errors.Join(err, s.settle(ctx), s.state.Discard())
	}
	if s.save, err = l.monitor.PrepareSave(ctx, s.state.File()); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare device state: %w", err), s.settle(ctx), s.state.Discard())
	}
	return s, nil
}

// prepareDisk notes the switch in the record and opens the next overlay.
func (s *freezer) prepareDisk(ctx context.Context) error {
	m := s.m
	m.rec.Switching = layer.NewID()
	if err := m.save(false); err != nil {
		return err
	}
	next := m.paths.overlay(m.rec.Top + 1)
	if err := s.n.disks.Overlay(ctx, next, m.rec.Switching, m.rec.Disk.SizeBytes); err != nil {
		return fmt.Errorf("create overlay: %w", err)
	}
	if err := m.own(next); err != nil {
		return err
	}
	return s.l.monitor.AddOverlay(ctx, next, diskNode(m.rec.Top+1))
}

// stopAndGo is the pause. Whatever fails in it, the VM goes on.
func (s *freezer) stopAndGo(ctx context.Context, f *frozen) (err error) {
	// What the guest has written is on its way to the disk before the stop waits for it.
	if err := qemu.WriteBack(s.m.paths.overlay(s.m.rec.Top)); err != nil {
		return fmt.Errorf("write the disk back: %w", err)
	}
	start := time.Now()
	f.at = s.n.cfg.Now()
	if err := s.l.monitor.Stop(ctx); err != nil {
		return fmt.Errorf("stop vm: %w", err)
	}
	defer func() {
		err = errors.Join(err, s.l.monitor.Cont(context.WithoutCancel(ctx)))
		f.pause = time.Since(start)
		if err != nil && f.ram != nil {
			err = errors.Join(err, f.ram.Close())
		}
	}()
	if err := s.l.monitor.SwitchOverlay(ctx, s.m.rec.Node, diskNode(s.m.rec.Top+1)); err != nil {
		return fmt.Errorf("switch disk overlay: %w", err)
	}
	s.switched = true
	if err := s.save.Run(ctx); err != nil {
		return fmt.Errorf("save device state: %w", err)
	}
	if f.ram, err = s.l.control.Fork(ctx, s.base.Size); err != nil {
		return fmt.Errorf("freeze memory: %w", err)
	}
	return nil
}

// settle brings the record in line with the disk after the pause: either the
// old overlay is a layer now, or the new one is dropped.
func (s *freezer) settle(ctx context.Context) error {
	if s.m.rec.Switching == "" {
		return nil
	}
	if s.switched {
		return s.n.finishSwitch(s.m)
	}
	_ = s.l.monitor.RemoveOverlay(ctx, diskNode(s.m.rec.Top+1)) // it may not have been added
	_ = os.Remove(s.m.paths.overlay(s.m.rec.Top + 1))           // nor created
	s.m.rec.Switching = ""
	return s.m.save(false)
}

// close gives back the device state unless the freeze kept it.
func (s *freezer) close() {
	if !s.kept {
		_ = s.state.Discard() // the error that matters is being returned
	}
}

// finishSwitch turns overlay Top into the layer that it was announced as.
func (n *Node) finishSwitch(m *machine) error {
	l, err := n.layers.Adopt(m.paths.overlay(m.rec.Top), m.rec.Switching, layer.KindDisk)
	if err != nil {
		return fmt.Errorf("keep disk layer: %w", err)
	}
	return n.switchedTo(m, l)
}

// switchedTo records that a layer lies under a new overlay.
func (n *Node) switchedTo(m *machine, l layer.Layer) error {
	n.layers.Hold(m.id, l.ID)
	m.rec.Disk.Chain = append(slices.Clip(m.rec.Disk.Chain), l)
	m.rec.Top++
	m.rec.Node, m.rec.Switching = diskNode(m.rec.Top), ""
	return m.save(false)
}

// readMemory writes the frozen memory into a layer and completes the manifest.
// The frozen copy is gone afterwards.
func (n *Node) readMemory(ctx context.Context, f *frozen) (Manifest, int64, error) {
	draft, err := n.layers.Create(layer.KindMemory)
	if err != nil {
		return Manifest{}, 0, errors.Join(fmt.Errorf("create memory layer: %w", err), f.ram.Close())
	}
	mm, stats, err := f.ram.Capture(ctx, f.base, draft)
	// Ending the frozen copy takes as long as it is large; nobody waits for it.
	n.watchers.Go(func() {
		if err := f.ram.Close(); err != nil {
			n.log.Warn("end frozen memory", "error", err)
		}
	})
	if err != nil {
		err = errors.Join(fmt.Errorf("write memory layer: %w", err), draft.Discard())
		return Manifest{}, 0, errors.Join(err, n.layers.Forget(f.manifest.State.ID))
	}
	l, err := draft.Seal()
	if err != nil {
		return Manifest{}, 0, fmt.Errorf("write memory layer: %w", err)
	}
	man := f.manifest
	if man.Memory.Map, err = mm.MarshalBinary(); err != nil {
		return Manifest{}, 0, err
	}
	man.Memory.Layers = named(mm.Layers, append(slices.Clip(f.bases), l))
	return man, stats.WrittenBytes + man.State.Bytes, nil
}

// named returns the layers with those ids, in their order.
func named(ids []layer.ID, from []layer.Layer) []layer.Layer {
	byID := map[layer.ID]layer.Layer{}
	for _, l := range from {
		byID[l.ID] = l
	}
	out := make([]layer.Layer, len(ids))
	for i, id := range ids {
		out[i] = byID[id]
	}
	return out
}

// spareBytes is what must be left on the disk after a capture.
const spareBytes = 64 << 20

// room refuses a capture that the disk cannot take.
func (n *Node) room(l *live) error {
	own, err := memory.Unique(l.process.PID)
	if err != nil {
		return fmt.Errorf("measure memory: %w", err)
	}
	free, err := disk.FreeBytes(n.cfg.Dir)
	if err != nil {
		return err
	}
	if need := own + spareBytes; free < need {
		f := fault.Conflict(api.ReasonDiskFull, "the host's disk is too full to save the memory: it needs up to %d bytes and has %d", need, free).
			Hint("free space in %s, or delete snapshots: pando snapshot ls", n.cfg.Dir)
		f.Needed, f.Available = need, free
		return f
	}
	return nil
}
