package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/jail"
	"github.com/pandovm/pando/internal/memory"
	"github.com/pandovm/pando/internal/qemu"
)

// machine is one VM on this node.
type machine struct {
	id    string
	paths vmPaths
	// spare is set while nobody has asked for the VM yet; guarded by the node's mu.
	spare bool

	// mu orders the operations on the VM and guards rec and lost.
	mu  sync.Mutex
	rec record
	// lost says that the process was killed while no daemon was there.
	lost bool

	// live is the running process and what is connected to it; nil without one.
	// It is read without mu, so that commands do not wait for a capture.
	live atomic.Pointer[live]
	// flatten shortens the disk chain in the background.
	flatten flattening
}

// live is one run of a VM's process.
type live struct {
	process jail.Process
	monitor *qemu.Monitor
	control *memory.Control

	// linkMu orders the handshakes with the agent; link is the present one.
	linkMu sync.Mutex
	link   atomic.Pointer[guest.Link]

	// resets counts the times that the guest was reset; greeted is its value at
	// the last handshake, guarded by the machine's mu. One reboot is often
	// several resets.
	resets  atomic.Int64
	greeted int64

	// ordered is set before the node ends the process, so that the watcher does
	// not report the end as a surprise.
	ordered atomic.Bool
	// gone is closed when the process has ended; exit then says how.
	gone chan struct{}
	exit jail.Exit
}

// home names the VM's folder and its cgroup: the id that it was started under,
// which for a former spare is not the one that it has now.
func (m *machine) home() string { return filepath.Base(m.paths.dir) }

// makeFolder creates the VM's folder; run belongs to the VM's uid.
func (m *machine) makeFolder() error {
	if err := os.MkdirAll(m.paths.dir, 0o711); err != nil {
		return fmt.Errorf("create vm folder: %w", err)
	}
	if err := os.Mkdir(m.paths.run(), 0o700); err != nil {
		return fmt.Errorf("create vm folder: %w", err)
	}
	// Overlays name the layers below them as ../layers/…: see disk.BackingName.
	if err := os.Symlink(filepath.Join("..", "..", "layers"), m.paths.layers()); err != nil {
		return fmt.Errorf("create vm folder: %w", err)
	}
	return m.own(m.paths.run())
}

// own gives a file to the VM's uid.
func (m *machine) own(path string) error {
	if m.rec.UID == os.Getuid() {
		return nil
	}
	if err := os.Chown(path, m.rec.UID, m.rec.UID); err != nil {
		return fmt.Errorf("give file to vm: %w", err)
	}
	return nil
}

// save writes the record. The caller holds mu.
func (m *machine) save(durable bool) error {
	return writeSealed(m.paths.record(), m.rec, durable)
}

// hangUp closes the connections to the process, which runs on.
func (l *live) hangUp() error {
	var errs []error
	if k := l.link.Swap(nil); k != nil {
		errs = append(errs, k.Close())
	}
	if l.control != nil {
		errs = append(errs, l.control.Close())
	}
	if l.monitor != nil {
		errs = append(errs, l.monitor.Close())
	}
	return errors.Join(errs...)
}
