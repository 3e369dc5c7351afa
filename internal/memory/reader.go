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
	own := newPageSet(f.Size / PageSize)
	buffer := make([]byte, pagemapChunk*pagemapEntry)
	for _, s := range f.spans {
		if err := s.ownPages(ctx, file, buffer, own); err != nil {
			return nil, err
		}
	}
	return own, nil
}

// ownPages adds the own pages of one span.
func (s span) ownPages(ctx context.Context, pagemap *os.File, buffer []byte, own *pageSet) error {
	first, pages := s.offset/PageSize, s.length/PageSize
	for at := int64(0); at < pages; at += pagemapChunk {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		chunk := buffer[:min(pagemapChunk, pages-at)*pagemapEntry]
		if _, err := pagemap.ReadAt(chunk, (int64(s.address/PageSize)+at)*pagemapEntry); err != nil {
			return fmt.Errorf("read page map: %w", err)
		}
		for i := 0; i < len(chunk); i += pagemapEntry {
			if isOwn(binary.NativeEndian.Uint64(chunk[i:])) {
				own.add(first + at + int64(i/pagemapEntry))
			}
		}
	}
	return nil
}

func isOwn(entry uint64) bool {
	return entry&(pagePresent|pageOfFile) == pagePresent || entry&pageSwapped != 0
}

// reader reads pages of a frozen process through /proc/PID/mem. That copies
// twice, but process_vm_readv is slower by far: it pins what it reads, and
// pinning a page that source and child share makes the kernel copy it first.
type reader struct {
	memory *os.File
	spans  []span
}

func newReader(f *Frozen) (*reader, error) {
	memory, err := os.Open(procPath(f.Pid, "mem"))
	if err != nil {
		return nil, fmt.Errorf("open memory of frozen process: %w", err)
	}
	return &reader{memory: memory, spans: f.spans}, nil
}

func (r *reader) close() { _ = r.memory.Close() }

// read fills buffer with the pages of the runs, which have exactly its length.
func (r *reader) read(runs []pageRun, buffer []byte) error {
	for _, run := range runs {
		from, to := run.from*PageSize, run.to*PageSize
		for _, s := range r.spans {
			n := min(to, s.offset+s.length) - from
			if n <= 0 {
				continue
			}
			if _, err := r.memory.ReadAt(buffer[:n], int64(s.address)+from-s.offset); err != nil {
				return fmt.Errorf("read frozen memory: %w", err)
			}
			buffer, from = buffer[n:], from+n
		}
	}
	return nil
}
