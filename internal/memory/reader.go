package memory

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
)

// Bits of an entry of /proc/PID/pagemap.
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageOfFile  = 1 << 61

	pagemapEntry = 8
	pagemapChunk = 64 << 10
)

// ownPages returns the pages that are not, or no longer, those of a layer or
// untouched. Pages of anonymous memory that were only read are among them: they
// turn out to be zero when they are read.
func (f *Frozen) ownPages(ctx context.Context) (*pageSet, error) {
	file, err := os.Open(procPath(f.Pid, "pagemap"))
	if err != nil {
		return nil, fmt.Errorf("open page map: %w", err)
	}
	defer file.Close() //nolint:errcheck // read only
	pages := f.Size / PageSize
	own := newPageSet(pages)
	buffer := make([]byte, pagemapChunk*pagemapEntry)
	for at := int64(0); at < pages; at += pagemapChunk {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		chunk := buffer[:min(pagemapChunk, pages-at)*pagemapEntry]
		if _, err := file.ReadAt(chunk, (int64(f.Address/PageSize)+at)*pagemapEntry); err != nil {
			return nil, fmt.Errorf("read page map: %w", err)
		}
		for i := 0; i < len(chunk); i += pagemapEntry {
			if isOwn(binary.NativeEndian.Uint64(chunk[i:])) {
				own.add(at + int64(i/pagemapEntry))
			}
		}
	}
	return own, nil
}

func isOwn(entry uint64) bool {
	return entry&(pagePresent|pageOfFile) == pagePresent || entry&pageSwapped != 0
}

// reader reads pages of a frozen process through /proc/PID/mem. That copies
// twice, but process_vm_readv is slower by far: it pins what it reads, and
// pinning a page that source and child share makes the kernel copy it first.
type reader struct {
	memory *os.File
	// address is where the guest's RAM starts.
	address int64
}

func newReader(f *Frozen) (*reader, error) {
	memory, err := os.Open(procPath(f.Pid, "mem"))
	if err != nil {
		return nil, fmt.Errorf("open memory of frozen process: %w", err)
	}
	return &reader{memory: memory, address: int64(f.Address)}, nil
}

func (r *reader) close() { _ = r.memory.Close() }

// read fills buffer with the pages of the runs, which have exactly its length.
func (r *reader) read(runs []pageRun, buffer []byte) error {
	for _, run := range runs {
		n := (run.to - run.from) * PageSize
		if _, err := r.memory.ReadAt(buffer[:n], r.address+run.from*PageSize); err != nil {
			return fmt.Errorf("read frozen memory: %w", err)
		}
		buffer = buffer[n:]
	}
	return nil
}
