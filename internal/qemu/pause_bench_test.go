package qemu_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/qemu"
)

// BenchmarkPause measures each step of a capture's pause, without the memory,
// on a QEMU without a guest. One iteration is one capture onto a new overlay.
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
	steps := map[string]time.Duration{}
	step := func(name string, do func() error) {
		begin := time.Now()
		if err := do(); err != nil {
			b.Fatal(name, err)
		}
		steps[name] += time.Since(begin)
	}
	node := qemu.DiskNode
	for i := 0; b.Loop(); i++ {
		next := fmt.Sprintf("overlay%d", i)
		path := filepath.Join(l.dir, next)
		if err := os.WriteFile(path, template, 0o600); err != nil {
			b.Fatal(err)
		}
		state := memfile(b)
		var saving *qemu.Saving
		step("prepare-overlay", func() error { return p.monitor.AddOverlay(context.Background(), path, next) })
		step("prepare-save", func() (err error) { saving, err = p.monitor.PrepareSave(context.Background(), state); return err })
		step("1-stop", func() error { return p.monitor.Stop(context.Background()) })
		step("2-switch", func() error { return p.monitor.SwitchOverlay(context.Background(), node, next) })
		step("3-save", func() error { return saving.Run(context.Background()) })
		step("4-cont", func() error { return p.monitor.Cont(context.Background()) })
		if i == 0 {
			info, _ := state.Stat()
			b.ReportMetric(float64(info.Size()), "state-bytes")
		}
		_ = state.Close()
		step("stream", func() error { return p.monitor.Stream(context.Background(), next, qemu.DiskNode, m.Disk) })
		node = next
	}
	for name, total := range steps {
		b.ReportMetric(float64(total.Microseconds())/float64(b.N)/1000, name+"-ms")
	}
}

func memfile(tb testing.TB) *os.File {
	tb.Helper()
	fd, err := unix.MemfdCreate("state", unix.MFD_CLOEXEC)
	if err != nil {
		tb.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "state")
}
