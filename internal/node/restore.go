package node

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/layer"
	"github.com/pandovm/pando/internal/link"
	"github.com/pandovm/pando/internal/memory"
	"github.com/pandovm/pando/internal/vm"
)

// birth says who a new VM is.
type birth struct {
	id         string
	generation int64
	hostname   string
	identity   api.Identity
}

// memoryPromise waits until the memory of a saved machine is complete and
// returns the manifest that names it.
type memoryPromise func(context.Context) (Manifest, error)

// kept is the promise of a machine that was saved earlier.
func kept(man Manifest) memoryPromise {
	return func(context.Context) (Manifest, error) { return man, nil }
}

// identityFor makes the identity that the guest takes on; nil keeps what it has.
func (b birth) identityFor() (*link.Identity, error) {
	if b.identity == api.IdentityKeep {
		return nil, nil //nolint:nilnil // nil is the link's word for "unchanged"
	}
	id, err := guest.NewIdentity(b.hostname)
	if err != nil {
		return nil, fmt.Errorf("make identity: %w", err)
	}
	return id, nil
}

// Restore makes a VM from a saved machine and returns once its epoch is confirmed.
func (n *Node) Restore(ctx context.Context, o vm.Restore) (vm.Running, error) {
	b := birth{id: o.VMID, generation: o.Generation, hostname: o.Hostname, identity: o.Identity}
	defer n.refill(o.SnapshotID)
	if s := n.takeSpare(o.SnapshotID, b.id); s != nil {
		return n.employ(ctx, s, b)
	}
	m, err := n.add(b.id)
	if err != nil {
		return vm.Running{}, err
	}
	man, err := n.holdSnapshot(o.SnapshotID, b.id)
	if err == nil {
		err = errors.Join(n.fits(man), n.intact(ctx, man))
	}
	if err != nil {
		return vm.Running{}, errors.Join(err, n.remove(m))
	}
	return n.bear(ctx, m, b, man, kept(man))
}

// bear starts a new VM from a saved machine whose disk is complete. Its memory
// may still be on its way: ram waits for it while QEMU starts. The layers
// of the manifest are held by the VM. On error nothing of the VM is left.
func (n *Node) bear(ctx context.Context, m *machine, b birth, man Manifest, ram memoryPromise) (vm.Running, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := n.tryBear(ctx, m, b, man, ram)
	if err != nil {
		return vm.Running{}, errors.Join(err, n.remove(m))
	}
	return r, nil
}

func (n *Node) tryBear(ctx context.Context, m *machine, b birth, man Manifest, ram memoryPromise) (vm.Running, error) {
	identity, err := n.conceive(ctx, m, b, man)
	if err != nil {
		return vm.Running{}, err
	}
	return n.wake(ctx, m, identity, ram)
}

// conceive gives a new VM its record, its overlay and its identity.
func (n *Node) conceive(ctx context.Context, m *machine, b birth, man Manifest) (*link.Identity, error) {
	m.rec.Manifest, m.rec.Generation, m.rec.Top = man, b.generation, 1
	if err := n.freshOverlay(ctx, m); err != nil {
		return nil, err
	}
	return b.identityFor()
}

// top returns the id of the uppermost layer of a chain.
func top(chain []layer.Layer) layer.ID { return chain[len(chain)-1].ID }

// freshOverlay creates the empty overlay Top on the VM's chain, owned by the VM.
func (n *Node) freshOverlay(ctx context.Context, m *machine) error {
	path := m.paths.overlay(m.rec.Top)
	if err := n.disks.Overlay(ctx, path, top(m.rec.Disk.Chain), m.rec.Disk.SizeBytes); err != nil {
		return fmt.Errorf("create overlay: %w", err)
	}
	return m.own(path)
}

// wake restores a saved machine into a new process and hands it out after the
// epoch. On error the process is gone and the record is as it was on disk.
func (n *Node) wake(ctx context.Context, m *machine, identity *link.Identity, ram memoryPromise) (vm.Running, error) {
	r, l, err := n.rouse(ctx, m, identity, ram)
	if err != nil {
		return vm.Running{}, err
	}
	return r, n.handOut(m, l)
}

// rouse is wake without the handing out.
func (n *Node) rouse(ctx context.Context, m *machine, identity *link.Identity, ram memoryPromise) (vm.Running, *live, error) {
	leave, err := n.enter(ctx)
	if err != nil {
		return vm.Running{}, nil, err
	}
	defer leave()
	l, err := n.spawn(ctx, m, true)
	if err != nil {
		return vm.Running{}, nil, err
	}
	r, err := n.load(ctx, m, l, identity, ram)
	if err != nil {
		return vm.Running{}, nil, errors.Join(err, n.kill(l))
	}
	n.growAtStart(ctx, m, l)
	return r, l, nil
}

// load fills a waiting QEMU with a saved machine, lets it go and shakes hands.
func (n *Node) load(ctx context.Context, m *machine, l *live, identity *link.Identity, ram memoryPromise) (vm.Running, error) {
	man, err := ram(ctx)
	if err != nil {
		return vm.Running{}, err
	}
	m.rec.Manifest = man
	if err := n.layers.Replace(m.id, idsOf(man.layers())...); err != nil {
		return vm.Running{}, fmt.Errorf("hold layers: %w", err)
	}
	mm, err := man.memoryMap()
	if err != nil {
		return vm.Running{}, corrupt(err)
	}
	if err := l.control.Lay(ctx, mm, n.openLayer); err != nil {
		return vm.Running{}, fmt.Errorf("lay memory: %w", err)
	}
	if err := n.loadState(ctx, l, man.State); err != nil {
		return vm.Running{}, err
	}
	if err := l.monitor.Cont(ctx); err != nil {
		return vm.Running{}, fmt.Errorf("let the vm run: %w", err)
	}
	return n.handshake(ctx, m, l, identity, confirmDeadline)
}

func (n *Node) openLayer(id layer.ID) (*os.File, error) { return os.Open(n.layers.Path(id)) }

func (n *Node) loadState(ctx context.Context, l *live, state layer.Layer) error {
	f, err := n.openLayer(state.ID)
	if err != nil {
		return corrupt(err)
	}
	defer func() { _ = f.Close() }()
	if err := l.monitor.LoadState(ctx, f); err != nil {
		return fmt.Errorf("load device state: %w", err)
	}
	return nil
}

// corrupt is the error of a saved machine whose parts do not fit together.
func corrupt(err error) error {
	return fault.Conflict(api.ReasonSnapshotCorrupt, "the saved machine is damaged").
		Hint("delete it and start from another snapshot").With(err)
}

// Resume restores a paused VM in place. On error it stays paused.
func (n *Node) Resume(ctx context.Context, id string, generation int64) (vm.Running, error) {
	m, err := n.machine(id)
	if err != nil {
		return vm.Running{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rec.Phase != phasePaused {
		return vm.Running{}, fault.Conflict(api.ReasonWrongState, "vm %s is not paused", id)
	}
	if err := errors.Join(n.fits(m.rec.Manifest), n.intact(ctx, m.rec.Manifest)); err != nil {
		return vm.Running{}, err
	}
	paused := m.rec
	r, err := n.resume(ctx, m, generation)
	if err != nil {
		return vm.Running{}, errors.Join(err, n.restoreRecord(m, paused))
	}
	return r, nil
}

// resume runs on a fresh overlay: the saved disk stays as the saved memory
// knows it, so a resume that fails can be tried again.
func (n *Node) resume(ctx context.Context, m *machine, generation int64) (vm.Running, error) {
	saved := m.rec.Manifest
	m.rec.Generation = generation
	m.rec.Top++
	if err := n.freshOverlay(ctx, m); err != nil {
		return vm.Running{}, err
	}
	return n.wake(ctx, m, nil, kept(saved))
}

// restoreRecord puts a VM back to what it was before a start that failed.
func (n *Node) restoreRecord(m *machine, was record) error {
	var err error
	if m.rec.Top != was.Top {
		err = os.Remove(m.paths.overlay(m.rec.Top))
	}
	m.rec = was
	return errors.Join(err, n.layers.Replace(m.id, idsOf(was.layers())...), m.save(true))
}

// Boot starts a stopped VM from its disk.
func (n *Node) Boot(ctx context.Context, id string, generation int64) (vm.Running, error) {
	m, err := n.machine(id)
	if err != nil {
		return vm.Running{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	stopped := m.rec
	m.rec.Generation = generation
	m.rec.Machine.Hardware = n.hardware()
	r, err := n.boot(ctx, m)
	if err != nil {
		return vm.Running{}, errors.Join(err, n.restoreRecord(m, stopped))
	}
	return r, nil
}

func (n *Node) boot(ctx context.Context, m *machine) (vm.Running, error) {
	leave, err := n.enter(ctx)
	if err != nil {
		return vm.Running{}, err
	}
	defer leave()
	m.rec.Machine.settle(m.rec.size())
	if m.rec.Memory.Map, err = (memory.Map{Size: m.rec.Machine.ramBytes()}).MarshalBinary(); err != nil {
		return vm.Running{}, err
	}
	m.rec.Memory.Layers, m.rec.State, m.rec.Token = nil, layer.Layer{}, nil
	l, err := n.spawn(ctx, m, false)
	if err != nil {
		return vm.Running{}, err
	}
	r, err := n.handshake(ctx, m, l, nil, bootDeadline)
	if err != nil {
		return vm.Running{}, errors.Join(err, n.kill(l))
	}
	return r, n.handOut(m, l)
}
