package node

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/pandovm/pando/internal/disk"
	"github.com/pandovm/pando/internal/layer"
)

// flattening shortens the disk chain of a running VM: everything between the
// base image and the overlay is copied into the overlay, while the VM runs.
// A capture interrupts it; it starts over afterwards.
type flattening struct {
	mu     sync.Mutex
	cancel context.CancelFunc
	// done is closed when QEMU no longer works on the chain; err is then set.
	done chan struct{}
	err  error
}

// hardDepth is the chain length at which a capture waits for the flattening
// instead of interrupting it, so that no chain grows without bound.
const hardDepth = 4 * disk.MaxDepth

// flattenLater starts the flattening if the chain is too long. The caller holds m.mu.
func (n *Node) flattenLater(m *machine) {
	l := m.live.Load()
	if len(m.rec.Disk.Chain) <= disk.MaxDepth || l == nil {
		return
	}
	m.flatten.mu.Lock()
	defer m.flatten.mu.Unlock()
	if m.flatten.done != nil {
		return
	}
	ctx, cancel := context.WithCancel(n.life)
	done := make(chan struct{})
	m.flatten.cancel, m.flatten.done = cancel, done
	node := m.rec.Node
	n.watchers.Go(func() {
		err := n.stream(ctx, l, node)
		m.flatten.mu.Lock()
		m.flatten.err = err
		m.flatten.mu.Unlock()
		close(done)
		n.finishFlattening(m, done)
	})
}

// stream copies the chain above its base into the overlay.
func (n *Node) stream(ctx context.Context, l *live, node string) error {
	chain, err := l.monitor.Chain(ctx)
	if err != nil {
		return err
	}
	if len(chain) < 2 {
		return fmt.Errorf("the chain has %d files", len(chain))
	}
	base := chain[len(chain)-1]
	name := n.disks.BackingName(layer.ID(filepath.Base(base.File)))
	return l.monitor.Stream(ctx, node, base.Name, name)
}

// finishFlattening records the result when no capture did so before.
func (n *Node) finishFlattening(m *machine, done chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flatten.mu.Lock()
	same := m.flatten.done == done
	m.flatten.mu.Unlock()
	if same {
		n.collectFlattening(m)
	}
}

// stopFlattening interrupts the flattening, or waits for it where the chain
// must not grow any more, and records what it reached. The caller holds m.mu.
func (n *Node) stopFlattening(m *machine) {
	m.flatten.mu.Lock()
	cancel, done := m.flatten.cancel, m.flatten.done
	m.flatten.mu.Unlock()
	if done == nil {
		return
	}
	if len(m.rec.Disk.Chain) < hardDepth {
		cancel()
	}
	<-done
	n.collectFlattening(m)
}

// collectFlattening brings the record in line with the chain. The caller holds m.mu.
func (n *Node) collectFlattening(m *machine) {
	m.flatten.mu.Lock()
	err := m.flatten.err
	m.flatten.cancel()
	m.flatten.cancel, m.flatten.done, m.flatten.err = nil, nil, nil
	m.flatten.mu.Unlock()
	if err != nil {
		n.log.Debug("chain was not flattened", "vm_id", m.id, "error", err)
		return
	}
	m.rec.Disk.Chain = m.rec.Disk.Chain[:1:1]
	if err := m.save(true); err != nil {
		n.log.Error("record flattened chain", "vm_id", m.id, "error", err)
		return
	}
	if err := n.layers.Replace(m.id, idsOf(m.rec.layers())...); err != nil {
		n.log.Error("release flattened layers", "vm_id", m.id, "error", err)
	}
}
