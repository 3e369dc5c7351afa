package memory

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestPass writes random sets of random pages of this very process, and reads
// the RAM back from the file through the extents.
func TestPass(t *testing.T) {
	t.Parallel()
	const pages = 2000
	random := rand.New(rand.NewPCG(5, 6))
	for round := range 30 {
		ram := randomRAM(t, random, pages)
		set := newPageSet(pages)
		for range 1 + random.IntN(60) {
			from := random.Int64N(pages)
			set.addRange(from, min(pages, from+1+random.Int64N(1+random.Int64N(300))))
		}
		gap := []int64{0, 1, 4, 20, 64, 200}[random.IntN(6)]
		// What is not read has to be zero where a gap may be bridged by zeros.
		for from, to := range complement(set).runs() {
			clear(ram[from*PageSize : to*PageSize])
		}
		p := runPass(t, ram, set, gap)
		if !bytes.Equal(readBack(t, p, pages), ram) {
			t.Fatalf("round %d: the RAM reads back differently", round)
		}
		for i, e := range p.extents[1:] {
			if last := p.extents[i]; e.Offset-last.Offset-last.Length <= gap*PageSize {
				t.Fatalf("round %d: extents %d and %d are near enough to be one", round, i, i+1)
			}
		}
		runtime.KeepAlive(ram)
	}
}

func runPass(t *testing.T, ram []byte, set *pageSet, gap int64) *pass {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "layer"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	r, err := newReader(&Frozen{Pid: os.Getpid(), spans: []span{{length: int64(len(ram)), address: uint64(uintptr(unsafe.Pointer(&ram[0])))}}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	p := &pass{reader: r, file: file, zeroGap: gap}
	if err := p.run(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	return p
}

// randomRAM returns page-aligned memory, part of it zero.
func randomRAM(t *testing.T, random *rand.Rand, pages int64) []byte {
	t.Helper()
	ram, err := unix.Mmap(-1, 0, int(pages*PageSize), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(ram) })
	for at := int64(0); at < pages; {
		length := min(1+random.Int64N(1+random.Int64N(200)), pages-at)
		if random.IntN(3) > 0 {
			for i := range length {
				ram[(at+i)*PageSize+random.Int64N(PageSize)] = byte(1 + random.IntN(255))
			}
		}
		at += length
	}
	return ram
}

func complement(s *pageSet) *pageSet {
	c := newPageSet(s.n)
	for from := s.nextClear(0); from < s.n; {
		to := s.nextSet(from)
		c.addRange(from, to)
		from = s.nextClear(to)
	}
	return c
}

func readBack(t *testing.T, p *pass, pages int64) []byte {
	t.Helper()
	info, err := p.file.Stat()
	if err != nil || info.Size() != p.end {
		t.Fatalf("the file has %d bytes, want %d (%v)", info.Size(), p.end, err)
	}
	got := make([]byte, pages*PageSize)
	for _, e := range p.extents {
		if _, err := p.file.ReadAt(got[e.Offset:e.Offset+e.Length], e.LayerOffset); err != nil {
			t.Fatal(err)
		}
	}
	return got
}
