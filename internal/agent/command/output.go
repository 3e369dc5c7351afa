package command

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/pandovm/pando/internal/link"
)

const (
	// outputBuffer is a frame's head and payload: as much as one HTTP/2 frame takes.
	outputBuffer = 16 << 10
	// pipeSize is what a pipe holds: more cannot have been written to it before
	// the command ended.
	pipeSize = 64 << 10
)

// output carries one of a command's output streams to the host.
type output struct {
	kind link.FrameType
	to   io.Writer
	// left is how much may still be sent; total is what was read.
	left, total int64
	file        *os.File
	raw         syscall.RawConn
	buf         []byte
	// settled is closed when everything that was written before stop has been
	// read; total is then final.
	settled chan struct{}
}

// newOutput returns an output and the descriptor that the command writes to.
func newOutput(kind link.FrameType, to io.Writer, limit int64) (*output, int, error) {
	r, w, err := pipe()
	if err != nil {
		return nil, -1, err
	}
	raw, err := r.SyscallConn()
	if err != nil {
		return nil, -1, errors.Join(err, r.Close(), syscall.Close(w))
	}
	return &output{kind: kind, to: to, left: limit, file: r, raw: raw, settled: make(chan struct{})}, w, nil
}

// pipe returns a pipe whose reading end is ours and whose writing end is for a
// child, blocking as programs expect it.
func pipe() (*os.File, int, error) {
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		return nil, -1, fmt.Errorf("make pipe: %w", err)
	}
	if err := syscall.SetNonblock(fds[0], true); err != nil {
		return nil, -1, errors.Join(err, syscall.Close(fds[0]), syscall.Close(fds[1]))
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), fds[1], nil
}

// run reads until the last writer is gone, which may be long after stop: a
// command may leave processes behind that go on writing, and must not be
// stopped by it.
func (o *output) run() {
	defer func() { _ = o.file.Close() }()
	o.buf = make([]byte, outputBuffer)
	for {
		n, err := o.file.Read(o.buf[link.FrameHeader:])
		o.take(n)
		if err == nil {
			continue
		}
		stopped := errors.Is(err, os.ErrDeadlineExceeded)
		if stopped {
			stopped = o.drain()
		}
		o.buf = nil
		close(o.settled)
		if stopped {
			o.discard()
		}
		return
	}
}

// stop says that the command has ended.
func (o *output) stop() { _ = o.file.SetReadDeadline(time.Unix(1, 0)) }

// take sends the n bytes in the buffer, up to the limit.
func (o *output) take(n int) {
	o.total += int64(n)
	n = int(min(int64(n), o.left))
	if n <= 0 {
		return
	}
	o.left -= int64(n)
	o.buf[0] = byte(o.kind)
	binary.BigEndian.PutUint32(o.buf[1:], uint32(n))
	if _, err := o.to.Write(o.buf[:link.FrameHeader+n]); err != nil {
		o.left = 0 // nobody listens any more
	}
}

// drain reads what is in the pipe and tells whether there are writers left.
func (o *output) drain() bool {
	_ = o.file.SetReadDeadline(time.Time{})
	for got := 0; got < pipeSize; {
		n, err := o.readNow(o.buf[link.FrameHeader:])
		if n <= 0 {
			return errors.Is(err, syscall.EAGAIN)
		}
		got += n
		o.take(n)
	}
	return true
}

// readNow reads without waiting.
func (o *output) readNow(p []byte) (n int, err error) {
	ctlErr := o.raw.Read(func(fd uintptr) bool {
		for {
			n, err = syscall.Read(int(fd), p)
			if !errors.Is(err, syscall.EINTR) {
				return true
			}
		}
	})
	return n, errors.Join(err, ctlErr)
}

func (o *output) discard() {
	var small [1024]byte
	for {
		if _, err := o.file.Read(small[:]); err != nil {
			return
		}
	}
}
