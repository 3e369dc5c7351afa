package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/disk"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/jail"
	"github.com/pandovm/pando/internal/layer"
	"github.com/pandovm/pando/internal/qemu"
	"github.com/pandovm/pando/internal/vm"
)

// Deadlines for what a healthy guest and QEMU do in a fraction of the time,
// even under emulation on a loaded host.
const (
	startDeadline   = 60 * time.Second
	confirmDeadline = 60 * time.Second
	bootDeadline    = 5 * time.Minute
	adoptDeadline   = 10 * time.Second
	killDeadline    = 10 * time.Second
)

// Config is what a Node needs.
type Config struct {
	// Dir is the data folder. It is created if it does not exist.
	Dir string
	// Host is what the probe found.
	Host qemu.Host
	Jail *jail.Jail
	// Library is the path of the memory library.
	Library string
	// Agent is what guests get that ask for another agent.
	Agent guest.Agent
	// FirstUID is the first of a range of uids, one per VM; 0 leaves VMs the
	// daemon's own uid, which is all that an unprivileged daemon can do.
	FirstUID int
	// Spares is how many VMs of each base image in use are kept ready.
	Spares int
	Now    func() time.Time
	Log    *slog.Logger
}

// Node runs the VMs of one host. It is safe for concurrent use.
type Node struct {
	cfg    Config
	layers *layer.Store
	disks  *disk.Driver
	log    *slog.Logger

	sightings chan vm.Sighting
	// starts bounds how many VMs are being restored at once: each needs a core.
	starts chan struct{}
	life   context.Context //nolint:containedctx // the node's own lifetime: ends the watchers at Close
	end    context.CancelFunc
	// watchers are the goroutines that Close waits for.
	watchers sync.WaitGroup

	mu        sync.Mutex
	machines  map[string]*machine
	snapshots map[string]*saved
	spares    spares
}

// Open opens or creates the data folder, finds the VMs that are still running
// and takes them over, and removes layers that nothing needs.
func Open(ctx context.Context, cfg Config) (*Node, error) {
	for _, d := range []string{"snapshots", "vms"} {
		if err := os.MkdirAll(filepath.Join(cfg.Dir, d), 0o711); err != nil {
			return nil, fmt.Errorf("create data folder: %w", err)
		}
	}
	layers, err := layer.Open(filepath.Join(cfg.Dir, "layers"))
	if err != nil {
		return nil, fmt.Errorf("open layers: %w", err)
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	n := &Node{
		cfg: cfg, layers: layers, disks: disk.New(layers), log: cfg.Log,
		sightings: make(chan vm.Sighting), starts: make(chan struct{}, runtime.NumCPU()+1),
		life: life, end: end,
		machines: map[string]*machine{}, snapshots: map[string]*saved{},
		spares: newSpares(life),
	}
	if err := errors.Join(n.loadSnapshots(), n.adoptAll(ctx)); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	if err := n.sweep(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// sweep removes the layers that nothing needs. While a manifest is damaged
// nobody knows which layers it needs, so everything stays.
func (n *Node) sweep() error {
	if id := n.damaged(); id != "" {
		n.log.Warn("layers are not swept because a manifest is damaged", "snapshot_id", id)
		return nil
	}
	gone, err := n.layers.Sweep()
	if err != nil {
		return fmt.Errorf("sweep layers: %w", err)
	}
	if len(gone) > 0 {
		n.log.Info("removed layers that nothing needs", "count", len(gone))
	}
	return nil
}

// damaged returns the id of a snapshot whose manifest cannot be read, or "".
func (n *Node) damaged() string {
	for id, s := range n.snapshots {
		if s.err != nil {
			return id
		}
	}
	return ""
}

// Close lets go of the VMs, which run on.
func (n *Node) Close() error {
	err := n.closeSpares()
	n.end()
	n.watchers.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	errs := []error{err}
	for _, m := range n.machines {
		if l := m.live.Load(); l != nil {
			errs = append(errs, l.hangUp())
		}
	}
	return errors.Join(errs...)
}

// Sightings delivers the ends of processes that nobody ordered.
func (n *Node) Sightings() <-chan vm.Sighting { return n.sightings }

// report delivers a sighting unless the node is closing.
func (n *Node) report(s vm.Sighting) {
	select {
	case n.sightings <- s:
	case <-n.life.Done():
	}
}

func (n *Node) hardware() Hardware {
	return Hardware{
		Accelerator: string(n.cfg.Host.Accel), Type: n.cfg.Host.MachineType,
		CPUModel: n.cfg.Host.CPUModel, QEMU: n.cfg.Host.Version, Layout: n.cfg.Host.Layout(),
	}
}

// machine returns the VM with that id.
func (n *Node) machine(id string) (*machine, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.machines[id]
	if m == nil {
		return nil, fault.NotFound("vm", id)
	}
	return m, nil
}

// add makes room for a new VM: its folder, its uid and its place in the list.
func (n *Node) add(id string) (*machine, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.machines[id] != nil {
		return nil, fmt.Errorf("add vm %s: it exists", id)
	}
	m := &machine{id: id, paths: vmPaths{filepath.Join(n.cfg.Dir, "vms", id)}}
	m.rec.ID, m.rec.UID = id, n.freeUID()
	if err := m.makeFolder(); err != nil {
		return nil, err
	}
	n.machines[id] = m
	return m, nil
}

// freeUID returns the lowest uid of the range that no VM has. The caller holds mu.
func (n *Node) freeUID() int {
	if n.cfg.FirstUID == 0 {
		return os.Getuid()
	}
	taken := map[int]bool{}
	for _, m := range n.machines {
		taken[m.rec.UID] = true
	}
	uid := n.cfg.FirstUID
	for taken[uid] {
		uid++
	}
	return uid
}

// remove forgets a VM, its files and what it held.
func (n *Node) remove(m *machine) error {
	// The record goes first: without it the folder is a leftover that the next
	// start removes, whatever is still in it.
	err := os.Remove(m.paths.record())
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	err = errors.Join(err, os.RemoveAll(m.paths.dir), n.layers.Drop(m.id), n.cfg.Jail.Remove(m.home()))
	n.mu.Lock()
	delete(n.machines, m.id)
	n.mu.Unlock()
	if err != nil {
		return fmt.Errorf("remove vm %s: %w", m.id, err)
	}
	return nil
}

// VMs lists the ids of all VMs on this node.
func (n *Node) VMs(context.Context) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ids := make([]string, 0, len(n.machines))
	for id, m := range n.machines {
		if !m.spare {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Presence says what the VM is right now.
func (n *Node) Presence(_ context.Context, id string) (vm.Presence, error) {
	m, err := n.machine(id)
	if f := fault.As(err); f != nil && f.Code == api.CodeNotFound {
		return vm.PresenceAbsent, nil
	}
	if err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.live.Load() != nil:
		return vm.PresenceRunning, nil
	case m.rec.Phase == phasePaused:
		return vm.PresencePaused, nil
	case m.lost:
		return vm.PresenceCrashed, nil
	}
	return vm.PresenceStopped, nil
}

// enter waits for a place among the VMs that are being started.
func (n *Node) enter(ctx context.Context) (leave func(), err error) {
	select {
	case n.starts <- struct{}{}:
		return func() { <-n.starts }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a free place to start: %w", context.Cause(ctx))
	}
}
