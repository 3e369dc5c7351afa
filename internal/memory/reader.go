package memory

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
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

// reader reads pages of a frozen process.
type reader struct {
	pid     int
	address uint64
	// memory is /proc/PID/mem: slower, and the way where process_vm_readv is
	// not to be had (kernels without it, some containers).
	memory *os.File
	slow   bool
	remote []unix.RemoteIovec
}

func newReader(f *Frozen) (*reader, error) {
	memory, err := os.Open(procPath(f.Pid, "mem"))
	if err != nil {
		return nil, fmt.Errorf("open memory of frozen process: %w", err)
	}
	return &reader{pid: f.Pid, address: f.Address, memory: memory}, nil
}

func (r *reader) close() { _ = r.memory.Close() }

// read fills buffer with the pages of the runs, which have exactly its length.
func (r *reader) read(runs []pageRun, buffer []byte) error {
	if !r.slow {
		err := r.readFast(runs, buffer)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS) {
			return fmt.Errorf("read frozen memory: %w", err)
		}
		r.slow = true
	}
	for _, run := range runs {
		n := (run.to - run.from) * PageSize
		if _, err := r.memory.ReadAt(buffer[:n], int64(r.address)+run.from*PageSize); err != nil {
			return fmt.Errorf("read frozen memory: %w", err)
		}
		buffer = buffer[n:]
	}
	return nil
}

func (r *reader) readFast(runs []pageRun, buffer []byte) error {
	r.remote = r.remote[:0]
	for _, run := range runs {
		r.remote = append(r.remote, unix.RemoteIovec{
			Base: uintptr(r.address) + uintptr(run.from)*PageSize,
			Len:  int(run.to-run.from) * PageSize,
		})
	}
	remote := r.remote
	for len(buffer) > 0 {
		local := []unix.Iovec{{Base: &buffer[0]}}
		local[0].SetLen(len(buffer))
		n, err := unix.ProcessVMReadv(r.pid, local, remote, 0)
		if err != nil {
			return err
		}
		if n <= 0 {
			return unix.EFAULT
		}
		buffer = buffer[n:]
		for n > 0 && n >= remote[0].Len {
			n -= remote[0].Len
			remote = remote[1:]
		}
		if n > 0 {
			remote[0].Base += uintptr(n)
			remote[0].Len -= n
		}
	}
	return nil
}
