package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/image"
	"github.com/pandovm/pando/internal/kernel"
	"github.com/pandovm/pando/internal/layer"
)

// settleDeadline is how long the services of a new image may take to start.
const settleDeadline = 5 * time.Minute

// Bake makes a base image out of a root file system: a cold boot, until the
// guest has settled, and a capture. o.Dir then holds a manifest and its layers.
func (n *Node) Bake(ctx context.Context, o image.BakeOrder) (err error) {
	m, err := n.add("bake-" + uuid.NewString())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Delete(context.WithoutCancel(ctx), m.id)) }()
	if err := n.coldBoot(ctx, m, o); err != nil {
		return fmt.Errorf("bake %s: %w", o.Image, err)
	}
	o.Step("settle")
	if err := n.settleGuest(ctx, m, o.Warm); err != nil {
		return fmt.Errorf("bake %s: %w", o.Image, err)
	}
	o.Step("capture")
	id := "bake-" + uuid.NewString()
	if _, err := n.Snapshot(ctx, m.id, id); err != nil {
		return fmt.Errorf("bake %s: %w", o.Image, err)
	}
	defer func() { err = errors.Join(err, n.DeleteSnapshot(context.WithoutCancel(ctx), id)) }()
	if err := n.AwaitDurable(ctx, id); err != nil {
		return fmt.Errorf("bake %s: %w", o.Image, err)
	}
	return n.export(id, o.Dir)
}

// coldBoot brings the parts of the machine into layers and boots it.
func (n *Node) coldBoot(ctx context.Context, m *machine, o image.BakeOrder) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	o.Step("import")
	if err := n.assemble(ctx, m, o); err != nil {
		return err
	}
	o.Step("boot")
	if err := n.freshOverlay(ctx, m); err != nil {
		return err
	}
	_, err := n.boot(ctx, m)
	return err
}

func (n *Node) assemble(ctx context.Context, m *machine, o image.BakeOrder) error {
	vmlinux, err := n.importFile(o.Kernel, layer.KindKernel, func(w, r *os.File) error { return unpackKernel(ctx, w, r) })
	if err != nil {
		return err
	}
	initrd, err := n.importFile(o.Initrd, layer.KindInitrd, copyFile)
	if err != nil {
		return err
	}
	root, err := n.disks.FromRaw(ctx, o.RawDisk)
	if err != nil {
		return fmt.Errorf("import disk: %w", err)
	}
	m.rec.Top = 1
	m.rec.Machine = Machine{
		Hardware: n.hardware(), CPUs: o.Resources.CPU, MemoryMiB: o.Resources.Memory,
		Kernel: vmlinux, Initrd: initrd, Append: o.Append,
	}
	m.rec.Disk = Disk{SizeBytes: int64(o.Resources.Storage) << 20, Chain: []layer.Layer{root}}
	n.layers.Hold(m.id, idsOf(m.rec.layers())...)
	return nil
}

// importFile writes a file into a layer through fill.
func (n *Node) importFile(path string, k layer.Kind, fill func(w, r *os.File) error) (layer.Layer, error) {
	f, err := os.Open(path)
	if err != nil {
		return layer.Layer{}, fmt.Errorf("import %s: %w", k, err)
	}
	defer func() { _ = f.Close() }()
	d, err := n.layers.Create(k)
	if err != nil {
		return layer.Layer{}, fmt.Errorf("import %s: %w", k, err)
	}
	if err := fill(d.File(), f); err != nil {
		return layer.Layer{}, errors.Join(fmt.Errorf("import %s: %w", k, err), d.Discard())
	}
	return d.Seal()
}

func copyFile(w, r *os.File) error {
	_, err := io.Copy(w, r)
	return err
}

// unpackKernel stores the kernel unpacked where it can be booted so: QEMU then
// holds no copy of it, and the guest does not unpack it at each boot.
func unpackKernel(ctx context.Context, w, r *os.File) error {
	err := kernel.Unpack(ctx, r, w)
	if !errors.Is(err, kernel.ErrUnsupported) {
		return err
	}
	if err := w.Truncate(0); err != nil {
		return err
	}
	if _, err := w.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return copyFile(w, r)
}

// settleGuest waits until the guest's services have started, and runs what the
// image wants warm: its pages are then in memory in every VM made from it.
func (n *Node) settleGuest(ctx context.Context, m *machine, warm []string) error {
	ctx, cancel := context.WithTimeout(ctx, settleDeadline)
	defer cancel()
	k, err := n.linked(ctx, m, m.live.Load())
	if err != nil {
		return err
	}
	if err := awaitSettled(ctx, k); err != nil {
		return err
	}
	for _, text := range warm {
		r, err := n.Exec(ctx, m.id, command.Order{Command: text, Timeout: time.Minute, MaxOutput: 4 << 10})
		if err != nil {
			return fmt.Errorf("run %q: %w", text, err)
		}
		if r.ExitCode == nil || *r.ExitCode != 0 {
			return fmt.Errorf("run %q: it failed: %s%s", text, r.Stdout, r.Stderr)
		}
	}
	return k.Sync(ctx)
}

func awaitSettled(ctx context.Context, k *guest.Link) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := k.Settled(ctx)
		if err != nil {
			return fmt.Errorf("ask whether the guest has settled: %w", err)
		}
		if s.Settled && len(s.Failed) > 0 {
			return fmt.Errorf("units %v failed", s.Failed)
		}
		if s.Settled {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the guest has not settled, its state is %q: %w", s.State, context.Cause(ctx))
		}
	}
}

// manifestName is the manifest's name in the folder of an image.
const manifestName = "manifest.json"

// export puts a saved machine into a folder of its own.
func (n *Node) export(id, dir string) error {
	n.mu.Lock()
	man := n.snapshots[id].man
	n.mu.Unlock()
	out, err := layer.Open(filepath.Join(dir, "layers"))
	if err != nil {
		return fmt.Errorf("export image: %w", err)
	}
	for _, l := range man.layers() {
		if err := out.Link(n.layers.Path(l.ID), l); err != nil {
			return fmt.Errorf("export image: %w", err)
		}
	}
	return writeSealed(filepath.Join(dir, manifestName), man, true)
}

// Import makes the saved machine in the folder of an image known under id. Its
// layers are linked, so the image can be removed without harm to its VMs.
func (n *Node) Import(ctx context.Context, dir, id string) error {
	// Images are what new VMs are made from again and again: they have spares.
	n.allowSpares(id)
	n.mu.Lock()
	known := n.snapshots[id] != nil
	n.mu.Unlock()
	if known {
		return nil
	}
	man, err := readManifest(filepath.Join(dir, manifestName))
	if err != nil {
		return corrupt(err)
	}
	n.layers.Hold(id, idsOf(man.layers())...)
	for _, l := range man.layers() {
		if err := n.layers.Link(filepath.Join(dir, "layers", string(l.ID)), l); err != nil {
			return errors.Join(fmt.Errorf("import image: %w", err), n.layers.Drop(id))
		}
	}
	if err := n.keep(id, man); err != nil {
		return err
	}
	return n.AwaitDurable(ctx, id)
}
