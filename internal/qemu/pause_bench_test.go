package qemu_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/qemu"
)

// BenchmarkPause measures each step of a capture's pause, without the memory,
// on a QEMU without a guest. One iteration is one capture onto a new overlay,
// after the guest has written 1 MB. Steps without a number are not in the pause.
func BenchmarkPause(b *testing.B) {
	l := newLab(b)
	m := l.machine(b, "a")
	m.MemoryMiB, m.Paused = 1024, false
	m.Disk = l.qcow2(b, "base.qcow2")
	template, err := os.ReadFile(l.qcow2(b, "template.qcow2", "-u", "-b", m.Disk, "-F", "qcow2"))
	if err != nil {
		b.Fatal(err)
	}
	p := l.start(b, m)
	steps := stopwatch{}
	node, top := qemu.DiskNode, m.Disk
	for i := 0; b.Loop(); i++ {
		next := fmt.Sprintf("overlay%d", i)
		path := filepath.Join(l.dir, next)
		if err := os.WriteFile(path, template, 0o600); err != nil {
			b.Fatal(err)
		}
		p.io(b, fmt.Sprintf("write -P %d 0 1M", i%200+1))
		state := memfile(b)
		var saving *qemu.Saving
		steps.time(b, "add-overlay", func() error { return p.monitor.AddOverlay(b.Context(), path, next) })
		steps.time(b, "prepare-save", func() (err error) { saving, err = p.monitor.PrepareSave(b.Context(), state); return err })
		steps.time(b, "write-back", func() error { return qemu.WriteBack(top) })
		steps.time(b, "1-stop", func() error { return p.monitor.Stop(b.Context()) })
		steps.time(b, "2-switch", func() error { return p.monitor.SwitchOverlay(b.Context(), node, next) })
		steps.time(b, "3-save", func() error { return saving.Run(b.Context()) })
		steps.time(b, "4-cont", func() error { return p.monitor.Cont(b.Context()) })
		if i == 0 {
			info, err := state.Stat()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(info.Size()), "state-bytes")
		}
		_ = state.Close()
		steps.time(b, "stream", func() error { return p.monitor.Stream(b.Context(), next, "", "") })
		node, top = next, path
	}
	steps.report(b)
}

// memfile is a file in memory.
func memfile(tb testing.TB) *os.File {
	tb.Helper()
	fd, err := unix.MemfdCreate("state", unix.MFD_CLOEXEC)
	if err != nil {
		tb.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "state")
}
