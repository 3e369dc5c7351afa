// Package bench measures the product from outside, on real VMs of the default
// image: what a client of the API waits for, how long a source stands still,
// what an idle child costs in memory. "make bench" runs it.
package bench

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/memory"
	"github.com/pandovm/pando/internal/testlab"
)

// lab starts a daemon and makes sure that the image has been brought to it.
func lab(b *testing.B) *testlab.Lab {
	b.Helper()
	return labWith(b)
}

func labWith(b *testing.B, args ...string) *testlab.Lab {
	b.Helper()
	l := testlab.New(b, args...)
	v := l.Create(testlab.Debian)
	l.Run(v.ID, "true")
	remove(b, l, v.ID)
	return l
}

func remove(b *testing.B, l *testlab.Lab, ids ...string) {
	b.Helper()
	for _, id := range ids {
		if err := l.Client.VMs.Delete(context.WithoutCancel(b.Context()), id); err != nil {
			b.Fatal(err)
		}
	}
}

// firstCommand is what a client runs to see that a VM is there.
func firstCommand(b *testing.B, l *testlab.Lab, id string) {
	b.Helper()
	res, err := l.Client.VMs.Exec(b.Context(), id, api.ExecRequest{Command: "echo ready"})
	if err != nil || res.Stdout != "ready\n" {
		b.Fatalf("first command: %v, %+v", err, res)
	}
}

// own makes so many MB of a VM's memory its own: incompressible, in no file.
func own(l *testlab.Lab, id string, megabytes int) {
	l.Run(id, fmt.Sprintf("head -c %dM /dev/urandom > /dev/shm/ballast", megabytes))
}

// Creates that come one by one, a few seconds apart, find a spare.
func BenchmarkCreateToFirstExec(b *testing.B) {
	l := labWith(b, "--spares", "1")
	s := newSeries(b, "create-to-first-exec", "ms")
	for b.Loop() {
		time.Sleep(spareTime)
		start := time.Now()
		v := l.Create(testlab.Debian)
		firstCommand(b, l, v.ID)
		s.add(time.Since(start))
		remove(b, l, v.ID)
	}
	s.report()
}

// spareTime is long enough for the next spare to be ready.
const spareTime = 6 * time.Second

// Creates for which no spare is ready, as when many come at once.
func BenchmarkCreateWithoutSpare(b *testing.B) {
	l := lab(b)
	s := newSeries(b, "create-without-spare", "ms")
	for b.Loop() {
		start := time.Now()
		v := l.Create(testlab.Debian)
		firstCommand(b, l, v.ID)
		s.add(time.Since(start))
		remove(b, l, v.ID)
	}
	s.report()
}

func BenchmarkForkPause(b *testing.B) {
	for _, megabytes := range []int{20, 200, 400} {
		b.Run(fmt.Sprintf("own=%dMB", megabytes), func(b *testing.B) {
			l := lab(b)
			source := l.Create(testlab.Debian)
			own(l, source.ID, megabytes)
			s := newSeries(b, fmt.Sprintf("fork-pause-%dMB", megabytes), "ms")
			for b.Loop() {
				res, err := l.Client.VMs.Fork(b.Context(), source.ID, api.ForkVMRequest{})
				if err != nil || res.Forks[0].Error != nil {
					b.Fatalf("fork: %v, %+v", err, res)
				}
				s.addMillis(res.PauseMs)
				remove(b, l, res.Forks[0].VM.ID)
			}
			s.report()
		})
	}
}

func BenchmarkForkToFirstExec(b *testing.B) {
	for _, megabytes := range []int{20, 200} {
		b.Run(fmt.Sprintf("own=%dMB", megabytes), func(b *testing.B) {
			l := lab(b)
			source := l.Create(testlab.Debian)
			own(l, source.ID, megabytes)
			s := newSeries(b, fmt.Sprintf("fork-to-first-exec-%dMB", megabytes), "ms")
			for b.Loop() {
				start := time.Now()
				child := l.Fork(source.ID, 1)[0]
				firstCommand(b, l, child.ID)
				s.add(time.Since(start))
				remove(b, l, child.ID)
			}
			s.report()
		})
	}
}

// Ten children of one fork; the clock stops when the last has run a command.
func BenchmarkForkTen(b *testing.B) {
	l := lab(b)
	source := l.Create(testlab.Debian)
	own(l, source.ID, 20)
	s := newSeries(b, "fork-ten-all-exec", "ms")
	for b.Loop() {
		start := time.Now()
		children := l.Fork(source.ID, 10)
		var wg sync.WaitGroup
		for _, c := range children {
			wg.Go(func() {
				if _, err := l.Client.VMs.Exec(b.Context(), c.ID, api.ExecRequest{Command: "echo ready"}); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		s.add(time.Since(start))
		for _, c := range children {
			remove(b, l, c.ID)
		}
	}
	s.report()
}

func BenchmarkResumeToFirstExec(b *testing.B) {
	l := lab(b)
	v := l.Create(testlab.Debian)
	own(l, v.ID, 20)
	resume := newSeries(b, "resume-to-first-exec", "ms")
	pause := newSeries(b, "pause", "ms")
	for b.Loop() {
		start := time.Now()
		if _, err := l.Client.VMs.Pause(b.Context(), v.ID); err != nil {
			b.Fatal(err)
		}
		pause.add(time.Since(start))
		start = time.Now()
		if _, err := l.Client.VMs.Start(b.Context(), v.ID); err != nil {
			b.Fatal(err)
		}
		firstCommand(b, l, v.ID)
		resume.add(time.Since(start))
	}
	pause.report()
	resume.report()
}

func BenchmarkSnapshot(b *testing.B) {
	l := lab(b)
	v := l.Create(testlab.Debian)
	own(l, v.ID, 20)
	s := newSeries(b, "snapshot", "ms")
	for b.Loop() {
		start := time.Now()
		res, err := l.Client.VMs.Snapshot(b.Context(), v.ID, api.CreateSnapshotRequest{})
		if err != nil {
			b.Fatal(err)
		}
		s.add(time.Since(start))
		if err := l.Client.Snapshots.Delete(b.Context(), res.SnapshotID); err != nil {
			b.Fatal(err)
		}
	}
	s.report()
}

// What an idle child has for itself alone, a moment after its first command:
// Private_Clean and Private_Dirty of its process, not its resident size.
func BenchmarkUniqueMemoryPerChild(b *testing.B) {
	l := lab(b)
	source := l.Create(testlab.Debian)
	own(l, source.ID, 20)
	s := newSeries(b, "unique-memory-per-child", "MB")
	for b.Loop() {
		children := l.Fork(source.ID, 4)
		for _, c := range children {
			firstCommand(b, l, c.ID)
		}
		time.Sleep(5 * time.Second)
		for _, c := range children {
			bytes, err := memory.Unique(l.QEMU(c.ID))
			if err != nil {
				b.Fatal(err)
			}
			s.addValue(float64(bytes) / 1e6)
			remove(b, l, c.ID)
		}
	}
	s.report()
}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := writeReport(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
