package memory_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pandovm/pando/internal/layer"
	"github.com/pandovm/pando/internal/memory"
)

// benchQEMU starts QEMU as VMs have it, the emulator's buffer of 256 MiB
// included, and makes ownMiB of its RAM its own.
func benchQEMU(b *testing.B, dir string, size int64, ownMiB int) *qemu {
	b.Helper()
	q := startQEMU(b, dir, size).(*qemu)
	dirty(b, q, ownMiB)
	return q
}

// dirty writes something else into every page of ownMiB.
func dirty(b *testing.B, q *qemu, ownMiB int) {
	b.Helper()
	for i := range ownMiB {
		q.sayOK("memset 0x%x 0x100000 0x%02x", q.floor()+int64(i)<<20, 1+i%255)
	}
}

// BenchmarkFork measures what a fork adds to the pause of a VM with that many
// own pages: the call, not the capture that follows.
func BenchmarkFork(b *testing.B) {
	for _, own := range []int{20, 200, 400} {
		b.Run(fmt.Sprintf("own-%dMB", own), func(b *testing.B) {
			q := benchQEMU(b, b.TempDir(), 1<<30, own)
			for b.Loop() {
				frozen, err := q.control().Fork(b.Context(), q.size)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := frozen.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkCapture measures the writing of a layer from a frozen process.
func BenchmarkCapture(b *testing.B) {
	for _, fs := range []struct{ name, dir string }{{"disk", ""}, {"tmpfs", "/dev/shm"}} {
		for _, own := range []int{20, 200, 400} {
			b.Run(fmt.Sprintf("%s/own-%dMB", fs.name, own), func(b *testing.B) {
				dir, err := os.MkdirTemp(fs.dir, "pando-bench-")
				if err != nil {
					b.Fatal(err)
				}
				defer os.RemoveAll(dir)
				store, err := layer.Open(filepath.Join(dir, "layers"))
				if err != nil {
					b.Fatal(err)
				}
				q := benchQEMU(b, b.TempDir(), 1<<30, own)
				b.SetBytes(int64(own) << 20)
				for b.Loop() {
					captureOnce(b, q, store)
				}
			})
		}
	}
}

func captureOnce(b *testing.B, q *qemu, store *layer.Store) {
	b.Helper()
	b.StopTimer()
	frozen, err := q.control().Fork(b.Context(), q.size)
	if err != nil {
		b.Fatal(err)
	}
	d, err := store.Create(layer.KindMemory)
	if err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
	if _, _, err := frozen.Capture(b.Context(), memory.Map{Size: q.size}, d); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	if err := frozen.Close(); err != nil {
		b.Fatal(err)
	}
	if err := d.Discard(); err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
}

// BenchmarkLay measures the mapping of many extents.
func BenchmarkLay(b *testing.B) {
	for _, n := range []int64{64, 1024, 4096, 8192} {
		b.Run(fmt.Sprintf("extents-%d", n), func(b *testing.B) {
			store, dir := newStore(b)
			m := comb(b, store, 256<<20, n)
			v := newVictim(b, dir, m.Size)
			for b.Loop() {
				if err := v.control().Lay(b.Context(), m, opener(store)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkForkOfExtents measures the fork of a process with many mappings.
func BenchmarkForkOfExtents(b *testing.B) {
	for _, n := range []int64{64, 1024, 4096, 8192} {
		b.Run(fmt.Sprintf("extents-%d", n), func(b *testing.B) {
			store, dir := newStore(b)
			m := comb(b, store, 256<<20, n)
			v := newVictim(b, dir, m.Size)
			if err := v.control().Lay(b.Context(), m, opener(store)); err != nil {
				b.Fatal(err)
			}
			for at := int64(0); at < m.Size; at += m.Size / 2048 {
				v.fill(at, memory.PageSize, 1)
			}
			for b.Loop() {
				frozen, err := v.control().Fork(b.Context(), v.size)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := frozen.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// comb makes a layer and a map of n extents with gaps between them.
func comb(t testing.TB, store *layer.Store, size, n int64) memory.Map {
	t.Helper()
	d, err := store.Create(layer.KindMemory)
	if err != nil {
		t.Fatal(err)
	}
	m := memory.Map{Size: size, Layers: []layer.ID{d.ID()}}
	page := make([]byte, memory.PageSize)
	for i := range n {
		modelFill(page, uint64(i))
		if _, err := d.File().Write(page); err != nil {
			t.Fatal(err)
		}
		m.Extents = append(m.Extents, memory.Extent{
			Offset: i * (size / n), Length: memory.PageSize, LayerOffset: i * memory.PageSize,
		})
	}
	if _, err := d.Seal(); err != nil {
		t.Fatal(err)
	}
	store.Hold("comb", d.ID())
	return m
}
