package command

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

var (
	errInputClosed = errors.New("the command takes no more input")
	errOffset      = errors.New("the input does not join what the command was given")
)

// input is a command's standard input.
type input struct {
	// turn is held by whoever writes.
	turn chan struct{}
	file *os.File

	mu      sync.Mutex
	written int64
	open    bool
}

// newInput returns the command's descriptor 0, and its input if there is or will
// be more of it than fits into a pipe.
func newInput(first []byte, open bool) (*input, int, error) {
	if len(first) == 0 && !open {
		fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return nil, -1, &os.PathError{Op: "open", Path: os.DevNull, Err: err}
		}
		return new(input), fd, nil
	}
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		return nil, -1, os.NewSyscallError("pipe2", err)
	}
	if err := syscall.SetNonblock(fds[1], true); err != nil {
		return nil, -1, errors.Join(err, syscall.Close(fds[0]), syscall.Close(fds[1]))
	}
	n, _ := syscall.Write(fds[1], first)
	n = max(n, 0)
	if n == len(first) && !open {
		_ = syscall.Close(fds[1])
		return &input{written: int64(n)}, fds[0], nil
	}
	in := &input{file: os.NewFile(uintptr(fds[1]), "pipe"), turn: make(chan struct{}, 1), written: int64(n), open: true}
	return in, fds[0], nil
}

// begin waits for the turn to write from offset on (-1: the end) and returns
// how much of what comes the command has already.
func (in *input) begin(offset int64, done <-chan struct{}) (skip int64, err error) {
	if in.turn == nil {
		return 0, errInputClosed
	}
	select {
	case in.turn <- struct{}{}:
	case <-done:
		return 0, errInputClosed
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case offset > in.written:
		err = errOffset
	case offset >= 0:
		skip = in.written - offset
	}
	if err == nil && !in.open && skip == 0 {
		err = errInputClosed
	}
	if err != nil {
		<-in.turn
	}
	return skip, err
}

func (in *input) end() { <-in.turn }

// watch makes write return once done is closed, until stop is called.
func (in *input) watch(done <-chan struct{}) (stop func()) {
	finished, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-done:
			_ = in.file.SetWriteDeadline(time.Unix(1, 0))
		case <-finished:
		}
	}()
	return func() {
		close(finished)
		<-watched
		_ = in.file.SetWriteDeadline(time.Time{})
	}
}

// write passes p on as the command takes it.
func (in *input) write(p []byte) error {
	n, err := in.file.Write(p)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.written += int64(n)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		in.closeLocked()
		return errInputClosed
	}
	return err
}

// close ends the input.
func (in *input) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closeLocked()
}

func (in *input) closeLocked() {
	if in.open {
		in.open = false
		_ = in.file.Close()
	}
}

func (in *input) state() (written int64, open bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.written, in.open
}

// first writes what came with the order and did not fit into the pipe. The
// caller has taken the turn. The command may end, or close it, before all is
// written.
func (in *input) first(rest []byte, last bool) {
	defer in.end()
	if len(rest) > 0 && in.write(rest) != nil {
		return
	}
	if last {
		in.close()
	}
}
