package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/vm"
)

// saved is one saved machine of this node.
type saved struct {
	man Manifest
	// durable is closed once the manifest is on disk, or err says why it is not.
	durable chan struct{}
	err     error
}

const manifestSuffix = ".json"

func (n *Node) manifestPath(id string) string {
	return filepath.Join(n.cfg.Dir, "snapshots", id+manifestSuffix)
}

// loadSnapshots reads every manifest and holds its layers. A manifest that
// cannot be read is reported and left for a person to look at: its layers are
// unknown, so nothing can be restored from it.
func (n *Node) loadSnapshots() error {
	entries, err := os.ReadDir(filepath.Join(n.cfg.Dir, "snapshots"))
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), manifestSuffix)
		if !ok {
			continue
		}
		if err := n.loadSnapshot(id); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) loadSnapshot(id string) error {
	done := make(chan struct{})
	close(done)
	s := &saved{durable: done}
	man, err := readManifest(n.manifestPath(id))
	if err != nil {
		n.log.Error("manifest is damaged", "snapshot_id", id, "error", err)
		s.err = corrupt(err)
	} else {
		n.layers.Hold(id, idsOf(man.layers())...)
	}
	s.man = man
	n.snapshots[id] = s
	return nil
}

func readManifest(path string) (Manifest, error) {
	var man Manifest
	data, err := os.ReadFile(path)
	if err != nil {
		return man, fmt.Errorf("read manifest: %w", err)
	}
	if err := unseal(data, &man); err != nil {
		return man, fmt.Errorf("read manifest %s: %w", path, err)
	}
	if err := man.validate(); err != nil {
		return man, fmt.Errorf("read manifest %s: %w", path, err)
	}
	return man, nil
}

// holdSnapshot returns a saved machine and holds its layers for owner, so that
// deleting the snapshot does not take them away.
func (n *Node) holdSnapshot(id, owner string) (Manifest, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.snapshots[id]
	if s == nil {
		return Manifest{}, fault.NotFound("snapshot", id)
	}
	if closed(s.durable) && s.err != nil {
		return Manifest{}, s.err
	}
	n.layers.Hold(owner, idsOf(s.man.layers())...)
	return s.man, nil
}

// Snapshot saves a running or paused VM. The snapshot can be used at once and
// becomes durable in the background.
func (n *Node) Snapshot(ctx context.Context, vmID, id string) (vm.Captured, error) {
	m, err := n.machine(vmID)
	if err != nil {
		return vm.Captured{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.live.Load()
	if l == nil {
		return n.snapshotPaused(m, id)
	}
	f, err := n.freeze(ctx, m, l)
	if err != nil {
		return vm.Captured{}, err
	}
	man, written, err := n.readMemory(ctx, f)
	if err != nil {
		return vm.Captured{}, err
	}
	if err := n.keep(id, man); err != nil {
		return vm.Captured{}, err
	}
	n.flattenLater(m)
	return vm.Captured{At: f.at, Pause: f.pause, Bytes: written + man.Disk.Chain[len(man.Disk.Chain)-1].Bytes}, nil
}

// snapshotPaused shares what the pause has saved already.
func (n *Node) snapshotPaused(m *machine, id string) (vm.Captured, error) {
	if m.rec.Phase != phasePaused {
		return vm.Captured{}, fault.Conflict(api.ReasonWrongState, "vm %s has no memory to save", m.id).
			Hint("start it: pando vm start %s", m.id)
	}
	return vm.Captured{At: m.rec.CapturedAt}, n.keep(id, m.rec.Manifest)
}

// keep makes a saved machine known and starts to make it durable.
func (n *Node) keep(id string, man Manifest) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.layers.Hold(id, idsOf(man.layers())...)
	s := &saved{man: man, durable: make(chan struct{})}
	n.snapshots[id] = s
	n.watchers.Go(func() { n.publish(id, s) })
	return nil
}

// publish brings the layers to the disk and then, last, the manifest.
func (n *Node) publish(id string, s *saved) {
	man, err := n.syncAll(n.life, s.man)
	n.mu.Lock()
	defer n.mu.Unlock()
	defer close(s.durable)
	if err == nil && n.snapshots[id] != s {
		err = errors.New("the snapshot was deleted meanwhile")
	}
	if err == nil {
		s.man = man
		err = writeSealed(n.manifestPath(id), man, true)
	}
	s.err = err
}

// AwaitDurable returns once the snapshot is on disk, or why it is not.
func (n *Node) AwaitDurable(ctx context.Context, id string) error {
	n.mu.Lock()
	s := n.snapshots[id]
	n.mu.Unlock()
	if s == nil {
		return fault.NotFound("snapshot", id)
	}
	select {
	case <-s.durable:
		return s.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// DeleteSnapshot removes a saved machine; layers that others hold stay.
func (n *Node) DeleteSnapshot(_ context.Context, id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.snapshots, id)
	if err := os.Remove(n.manifestPath(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove manifest: %w", err)
	}
	return n.layers.Drop(id)
}

// Snapshots lists the ids of all saved machines that are on disk.
func (n *Node) Snapshots(context.Context) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ids := make([]string, 0, len(n.snapshots))
	for id, s := range n.snapshots {
		if closed(s.durable) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
