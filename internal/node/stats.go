package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/pandovm/pando/internal/layer"
	"github.com/pandovm/pando/internal/memory"
	"github.com/pandovm/pando/internal/vm"
)

// Usage says what a VM uses on this host at this moment. It orders nothing and
// waits for nobody. A VM whose process ends meanwhile uses neither processor
// nor memory.
func (n *Node) Usage(_ context.Context, id string) (vm.Usage, error) {
	m, err := n.machine(id)
	if err != nil {
		return vm.Usage{}, err
	}
	var u vm.Usage
	if l := m.live.Load(); l != nil {
		if u, err = l.usage(); err != nil {
			return vm.Usage{}, fmt.Errorf("measure vm %s: %w", id, err)
		}
	}
	if u.DiskBytes, err = n.diskUse(m); err != nil {
		return vm.Usage{}, fmt.Errorf("measure vm %s: %w", id, err)
	}
	return u, nil
}

// usage measures the process.
func (l *live) usage() (vm.Usage, error) {
	cpu, err := l.process.CPUTime()
	var use memory.Use
	if err == nil {
		use, err = memory.Measure(l.process.PID)
	}
	// Asked last: as long as the process is alive, the numbers are its own.
	if !l.process.Alive() {
		return vm.Usage{}, nil
	}
	if err != nil {
		return vm.Usage{}, err
	}
	return vm.Usage{CPUTime: cpu, MemoryShared: use.Shared(), MemoryUnique: use.Unique}, nil
}

// diskUse is what the VM's overlays and the layers that nobody else holds take.
func (n *Node) diskUse(m *machine) (int64, error) {
	total, err := n.layers.Sole(m.id)
	if err != nil {
		return 0, err
	}
	overlays, _ := filepath.Glob(filepath.Join(m.paths.run(), "disk-*.qcow2")) // the pattern is valid
	for _, path := range overlays {
		size, err := layer.Allocated(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it has become a layer meanwhile
			return 0, err
		}
		total += size
	}
	return total, nil
}
