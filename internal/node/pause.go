package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pandovm/pando/internal/jail"
	"github.com/pandovm/pando/internal/layer"
)

// Pause saves memory, devices and disk durably and then ends the process. On
// error the VM goes on running.
func (n *Node) Pause(ctx context.Context, id string) error {
	m, l, err := n.running(id)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n.stopFlattening(m)
	man, err := n.standStill(ctx, m, l)
	if err == nil {
		err = n.settleOn(m, man)
	}
	if err != nil {
		err = errors.Join(err, n.layers.Forget(idsOf(man.layers())...))
		return errors.Join(err, l.monitor.Cont(context.WithoutCancel(ctx)))
	}
	return n.park(m, l)
}

// settleOn makes the record say that the VM is paused. From then on it is, even
// if the daemon is killed before the process is ended.
func (n *Node) settleOn(m *machine, man Manifest) error {
	was := m.rec
	m.rec.Manifest, m.rec.Phase, m.rec.Switching = man, phasePaused, layer.NewID()
	if err := m.save(true); err != nil {
		m.rec = was
		return err
	}
	// A layer that could not be removed goes at the next start; the pause holds.
	if err := n.layers.Replace(m.id, idsOf(man.layers())...); err != nil {
		n.log.Error("release layers", "vm_id", m.id, "error", err)
	}
	return nil
}

// standStill stops the VM and saves its memory and devices. The VM stays stopped.
func (n *Node) standStill(ctx context.Context, m *machine, l *live) (Manifest, error) {
	base, err := m.rec.memoryMap()
	if err != nil {
		return Manifest{}, err
	}
	if err := n.room(l); err != nil {
		return Manifest{}, err
	}
	draft, err := n.layers.Create(layer.KindState)
	if err != nil {
		return Manifest{}, fmt.Errorf("create device state: %w", err)
	}
	f := &frozen{at: n.cfg.Now(), base: base, bases: m.rec.Memory.Layers, manifest: m.rec.Manifest}
	if err := n.holdStill(ctx, l, draft, f); err != nil {
		return Manifest{}, errors.Join(err, draft.Discard())
	}
	if f.manifest.State, err = draft.Seal(); err != nil {
		return Manifest{}, errors.Join(fmt.Errorf("keep device state: %w", err), f.ram.Close())
	}
	f.manifest.CapturedAt = f.at
	man, _, err := n.readMemory(ctx, f)
	if err != nil {
		return man, err
	}
	return n.syncAll(ctx, man)
}

func (n *Node) holdStill(ctx context.Context, l *live, draft *layer.Draft, f *frozen) error {
	save, err := l.monitor.PrepareSave(ctx, draft.File())
	if err != nil {
		return fmt.Errorf("prepare device state: %w", err)
	}
	if err := l.monitor.Stop(ctx); err != nil {
		return fmt.Errorf("stop vm: %w", err)
	}
	if err := save.Run(ctx); err != nil {
		return fmt.Errorf("save device state: %w", err)
	}
	if f.ram, err = l.control.Fork(ctx, f.base.Size); err != nil {
		return fmt.Errorf("freeze memory: %w", err)
	}
	return nil
}

// park ends the process of a VM that is saved and turns its overlay into a
// layer, so that the saved disk cannot change any more.
func (n *Node) park(m *machine, l *live) error {
	m.live.Store(nil)
	if err := n.kill(l); err != nil {
		return err
	}
	m.rec.Process = jail.Process{}
	return errors.Join(n.finishSwitch(m), n.cfg.Jail.Remove(m.home()))
}

// syncAll brings every layer of a manifest to the disk, with its checksum.
func (n *Node) syncAll(ctx context.Context, man Manifest) (Manifest, error) {
	var errs []error
	one := func(l layer.Layer) layer.Layer {
		if l.ID == "" || l.SHA256 != "" {
			return l
		}
		synced, err := n.layers.Sync(ctx, l)
		errs = append(errs, err)
		return synced
	}
	each := func(ls []layer.Layer) []layer.Layer {
		out := make([]layer.Layer, len(ls))
		for i, l := range ls {
			out[i] = one(l)
		}
		return out
	}
	man.State = one(man.State)
	man.Memory.Layers = each(man.Memory.Layers)
	man.Disk.Chain = each(man.Disk.Chain)
	if err := errors.Join(errs...); err != nil {
		return man, fmt.Errorf("bring layers to the disk: %w", err)
	}
	return man, nil
}

// Stop shuts the guest down, or ends it when grace has passed. A paused VM
// loses its saved memory and keeps its disk.
func (n *Node) Stop(ctx context.Context, id string, grace time.Duration) error {
	m, err := n.machine(id)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n.stopFlattening(m)
	if m.rec.Phase == phasePaused {
		return n.forgetMemory(ctx, m)
	}
	if l := m.live.Load(); l != nil {
		l.ordered.Store(true)
		n.askToPowerOff(ctx, l, grace)
		if err := n.kill(l); err != nil {
			return err
		}
		m.live.Store(nil)
	}
	m.rec.Phase, m.rec.Process = phaseStopped, jail.Process{}
	return errors.Join(m.save(true), n.cfg.Jail.Remove(m.home()))
}

// askToPowerOff waits until the guest has shut down, or until grace is over.
func (n *Node) askToPowerOff(ctx context.Context, l *live, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if k := l.link.Load(); k == nil || k.Poweroff(ctx) != nil {
		return
	}
	select {
	case <-l.gone:
	case <-ctx.Done():
	}
}

// forgetMemory turns a paused VM into a stopped one.
func (n *Node) forgetMemory(ctx context.Context, m *machine) error {
	m.rec.Memory, m.rec.State, m.rec.Token = Memory{}, layer.Layer{}, nil
	m.rec.Phase = phaseStopped
	m.rec.Top++
	if err := n.freshOverlay(ctx, m); err != nil {
		return err
	}
	if err := m.save(true); err != nil {
		return err
	}
	return n.layers.Replace(m.id, idsOf(m.rec.layers())...)
}

// Delete ends the process and removes everything of the VM; idempotent.
func (n *Node) Delete(_ context.Context, id string) error {
	n.mu.Lock()
	m := n.machines[id]
	n.mu.Unlock()
	if m == nil {
		return nil
	}
	// Ending the process first cuts short whatever is waiting for the guest.
	if l := m.live.Load(); l != nil {
		l.ordered.Store(true)
		if err := l.process.Kill(); err != nil {
			return fmt.Errorf("end qemu: %w", err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n.stopFlattening(m)
	if l := m.live.Swap(nil); l != nil {
		if err := n.kill(l); err != nil {
			return err
		}
	}
	return n.remove(m)
}
