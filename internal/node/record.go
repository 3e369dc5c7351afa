package node

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/pandovm/pando/internal/jail"
	"github.com/pandovm/pando/internal/layer"
)

// phase is what a VM's files mean.
type phase string

const (
	// phaseStarting: a process was started and has not confirmed its epoch. The
	// next daemon ends it and goes back to Fallback.
	phaseStarting phase = "starting"
	// phaseRunning: the process may be alive, and its memory is lost without it.
	phaseRunning phase = "running"
	// phasePaused: the manifest's state and memory are complete; no process.
	phasePaused phase = "paused"
	// phaseStopped: only the disk counts.
	phaseStopped phase = "stopped"
)

// record is everything that must survive the daemon to find a VM again.
type record struct {
	// Manifest is what the VM runs from: the memory map that lies under its own
	// pages, the chain under its overlay. When paused it is what it resumes from.
	Manifest
	ID         string `json:"id"`
	Generation int64  `json:"generation"`
	UID        int    `json:"uid"`
	Phase      phase  `json:"phase"`
	// Fallback is the phase to go back to from phaseStarting; empty for a VM that
	// did not exist before.
	Fallback phase        `json:"fallback,omitempty"`
	Process  jail.Process `json:"process"`
	// Epoch counts the handshakes with the agent.
	Epoch int64 `json:"epoch"`
	// Top numbers the overlay that the VM writes to: run/disk-<Top>.qcow2.
	Top int `json:"top"`
	// Node is QEMU's name for that overlay.
	Node string `json:"node,omitempty"`
	// Switching is the id under which overlay Top becomes a layer while overlay
	// Top+1 takes its place; empty outside of a capture. It is written before
	// the switch, so that the next daemon can finish it.
	Switching layer.ID `json:"switching,omitempty"`
}

// paths of one VM. Everything in run belongs to the VM's uid; the rest to the node.
type vmPaths struct{ dir string }

func (p vmPaths) run() string    { return filepath.Join(p.dir, "run") }
func (p vmPaths) record() string { return filepath.Join(p.dir, "record.json") }
func (p vmPaths) layers() string { return filepath.Join(p.dir, "layers") }
func (p vmPaths) log() string    { return filepath.Join(p.dir, "qemu.log") }
func (p vmPaths) overlay(n int) string {
	return filepath.Join(p.run(), fmt.Sprintf("disk-%d.qcow2", n))
}

// diskNode is QEMU's name for overlay n, if it took over while QEMU ran.
func diskNode(n int) string { return fmt.Sprintf("disk%d", n) }

func readRecord(path string) (record, error) {
	var r record
	data, err := os.ReadFile(path)
	if err != nil {
		return r, fmt.Errorf("read record: %w", err)
	}
	if err := unseal(data, &r); err != nil {
		return r, fmt.Errorf("read record %s: %w", path, err)
	}
	return r, nil
}

// writeSealed replaces a file atomically. With durable set it has reached the
// disk when the call returns.
func writeSealed(path string, body any, durable bool) error {
	data, err := seal(body)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if _, err = f.Write(data); err == nil && durable {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil && durable {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}
