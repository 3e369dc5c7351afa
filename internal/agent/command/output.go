package command

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// pipeSize is what a pipe holds: more cannot have been written to it before the
// command ended.
const pipeSize = 64 << 10

// output reads one of a command's output streams into its transcript.
type output struct {
	stream int
	to     *transcript
	file   *os.File
	raw    syscall.RawConn
	pieces *sync.Pool
	// settled is closed when everything that was written before stop has been
	// read.
	settled chan struct{}
}

// newOutput returns an output and the descriptor that the command writes to.
func newOutput(stream int, to *transcript, pieces *sync.Pool) (*output, int, error) {
	r, w, err := pipe()
	if err != nil {
		return nil, -1, err
	}
	raw, err := r.SyscallConn()
	if err != nil {
		return nil, -1, errors.Join(err, r.Close(), syscall.Close(w))
	}
	return &output{stream: stream, to: to, file: r, raw: raw, pieces: pieces, settled: make(chan struct{})}, w, nil
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
	for {
		_, err := o.read(true)
		if err == nil {
			continue
		}
		stopped := errors.Is(err, os.ErrDeadlineExceeded) && o.drain()
		close(o.settled)
		if stopped {
			o.discard()
		}
		return
	}
}

// stop says that the command has ended.
func (o *output) stop() { _ = o.file.SetReadDeadline(time.Unix(1, 0)) }

var errEnd = errors.New("end of output")

// read takes what the pipe holds, up to a piece. A buffer is only taken once
// there is something: many commands wait, few print.
func (o *output) read(wait bool) (n int, err error) {
	var buf *[pieceSize]byte
	waitErr := o.raw.Read(func(fd uintptr) bool {
		buf = o.pieces.Get().(*[pieceSize]byte) //nolint:forcetypeassert,errcheck // it holds nothing else
		for {
			if n, err = syscall.Read(int(fd), buf[:]); !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		if !wait || !errors.Is(err, syscall.EAGAIN) {
			return true
		}
		o.pieces.Put(buf)
		buf = nil
		return false
	})
	if buf != nil {
		if n > 0 {
			o.to.append(o.stream, buf[:n])
		}
		o.pieces.Put(buf)
	}
	if waitErr != nil {
		return 0, waitErr
	}
	if err == nil && n == 0 {
		err = errEnd
	}
	return n, err
}

// drain reads what is in the pipe and tells whether there are writers left.
func (o *output) drain() bool {
	_ = o.file.SetReadDeadline(time.Time{})
	for got := 0; got < pipeSize; {
		n, err := o.read(false)
		if n <= 0 {
			return errors.Is(err, syscall.EAGAIN)
		}
		got += n
	}
	return true
}

func (o *output) discard() {
	var small [1024]byte
	for {
		if _, err := o.file.Read(small[:]); err != nil {
			return
		}
	}
}
