package qemu_test

import (
	"testing"
	"time"
)

// BenchmarkRestore measures what a restore spends in QEMU, without its memory:
// from the start of the process to a running guest.
func BenchmarkRestore(b *testing.B) {
	l := newLab(b)
	m := l.machine(b, "a")
	m.MemoryMiB, m.Paused = 1024, false
	m.Disk = l.qcow2(b, "base.qcow2")
	source := l.start(b, m)
	state := memfile(b)
	defer state.Close()
	if err := source.monitor.Stop(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := source.monitor.SaveState(b.Context(), state); err != nil {
		b.Fatal(err)
	}
	_ = source.cmd.Process.Kill()
	<-source.ended
	steps := stopwatch{}
	m.Incoming = true
	for b.Loop() {
		var p *proc
		steps.time(b, "1-spawn", func() error { p = l.start(b, m); return nil })
		steps.time(b, "2-load", func() error { return p.monitor.LoadState(b.Context(), state) })
		steps.time(b, "3-cont", func() error { return p.monitor.Cont(b.Context()) })
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	steps.report(b)
}

// stopwatch adds up the time of each step of a benchmark.
type stopwatch map[string]time.Duration

func (s stopwatch) time(b *testing.B, step string, do func() error) {
	b.Helper()
	begin := time.Now()
	if err := do(); err != nil {
		b.Fatal(step, err)
	}
	s[step] += time.Since(begin)
}

func (s stopwatch) report(b *testing.B) {
	b.Helper()
	for step, total := range s {
		b.ReportMetric(float64(total.Microseconds())/float64(b.N)/1000, step+"-ms")
	}
}
