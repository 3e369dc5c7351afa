package node

import (
	"context"
	"sync"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/vm"
)

// running returns the VM and its process, or the reason why there is none.
func (n *Node) running(id string) (*machine, *live, error) {
	m, err := n.machine(id)
	if err != nil {
		return nil, nil, err
	}
	l := m.live.Load()
	if l == nil {
		return nil, nil, fault.Conflict(api.ReasonWrongState, "vm %s does not run", id).Hint("start it: pando vm start %s", id)
	}
	return m, l, nil
}

// Fork captures a running VM once and starts the children from it. While the
// memory is written out, the children's processes start already.
func (n *Node) Fork(ctx context.Context, o vm.Fork) (vm.ForkResult, error) {
	m, l, err := n.running(o.VMID)
	if err != nil {
		return vm.ForkResult{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := n.freeze(ctx, m, l)
	if err != nil {
		return vm.ForkResult{}, err
	}
	w := n.hatchery(ctx, f)
	res := vm.ForkResult{CapturedAt: f.at, Pause: f.pause, Children: make([]vm.ChildResult, len(o.Children))}
	var wg sync.WaitGroup
	for i, c := range o.Children {
		b := birth{id: c.VMID, generation: c.Generation, hostname: c.Hostname, identity: o.Identity}
		wg.Go(func() { res.Children[i].Running, res.Children[i].Err = n.hatch(ctx, w, b) })
	}
	wg.Wait()
	// The capture may outlast children that failed at once.
	<-w.done
	n.flattenLater(m)
	return res, n.layers.Drop(w.owner)
}

// brood is a frozen moment that children are being made from. It holds the
// layers until every child holds them itself.
type brood struct {
	owner  string
	disk   Manifest
	done   chan struct{}
	man    Manifest
	err    error
	frozen *frozen
}

// hatchery starts to write out the memory and holds what the children need.
func (n *Node) hatchery(ctx context.Context, f *frozen) *brood {
	w := &brood{owner: "fork-" + string(f.manifest.State.ID), disk: f.manifest, done: make(chan struct{}), frozen: f}
	n.layers.Hold(w.owner, idsOf(f.manifest.layers())...)
	go func() {
		defer close(w.done)
		if w.man, _, w.err = n.readMemory(ctx, f); w.err == nil {
			n.layers.Hold(w.owner, idsOf(w.man.layers())...)
		}
	}()
	return w
}

func (w *brood) memory(ctx context.Context) (Manifest, error) {
	select {
	case <-w.done:
		return w.man, w.err
	case <-ctx.Done():
		return Manifest{}, context.Cause(ctx)
	}
}

// hatch makes one child.
func (n *Node) hatch(ctx context.Context, w *brood, b birth) (vm.Running, error) {
	m, err := n.add(b.id)
	if err != nil {
		return vm.Running{}, err
	}
	n.layers.Hold(b.id, idsOf(w.disk.layers())...)
	return n.bear(ctx, m, b, w.disk, w.memory)
}
