package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/agent/process"
	"github.com/pandovm/pando/internal/link"
)

const (
	// maxStdin bounds the input that an order may bring.
	maxStdin = 16 << 20
	// maxArgument is the kernel's bound on one argument, with its NUL.
	maxArgument = 128 << 10
)

// Service runs commands. It is safe for concurrent use.
type Service struct {
	Spawner  *process.Spawner
	Accounts process.Accounts
}

// Exec serves one PathExec request.
func (s *Service) Exec(st *http2.Stream) {
	o, stdin, err := readOrder(st)
	if err != nil {
		s.refuse(st, link.CauseFailed, err)
		return
	}
	c, cause, err := s.prepare(&o)
	if err != nil {
		s.refuse(st, cause, err)
		return
	}
	r, err := s.launch(c, st, o.MaxOutput, stdin)
	if err != nil {
		s.refuse(st, causeOf(err), err)
		return
	}
	exit := r.finish(&o)
	body, _ := exit.MarshalBinary()
	// Whoever ordered the command may be gone: then nobody wants to know.
	_, _ = st.Write(link.AppendFrame(nil, link.FrameExit, body))
}

func (s *Service) refuse(w io.Writer, cause link.Cause, err error) {
	text := err.Error()
	body, _ := link.Refusal{Cause: cause, Text: text[:min(len(text), 1024)]}.MarshalBinary()
	_, _ = w.Write(link.AppendFrame(nil, link.FrameRefused, body))
}

// readOrder reads the order and all of its input, so that no command ever works
// on the first half of what it was meant to get.
func readOrder(r io.Reader) (o link.Order, stdin []byte, err error) {
	frames := link.NewFrameReader(r)
	t, payload, err := frames.Next()
	if err == nil && t != link.FrameOrder {
		err = link.ErrFrame
	}
	if err == nil {
		err = o.UnmarshalBinary(payload)
	}
	for err == nil && o.Stdin {
		t, payload, err = frames.Next()
		if err != nil || t == link.FrameStdinEnd {
			break
		}
		if stdin = append(stdin, payload...); len(stdin) > maxStdin {
			err = errors.New("stdin exceeds 16 MiB")
		}
	}
	if err != nil {
		return o, nil, fmt.Errorf("read order: %w", err)
	}
	return o, stdin, nil
}

// prepare turns an order into a command without descriptors.
func (s *Service) prepare(o *link.Order) (*process.Command, link.Cause, error) {
	if len(o.Command) >= maxArgument {
		return nil, link.CauseCommand, fmt.Errorf("command has %d bytes, the kernel takes %d", len(o.Command), maxArgument-1)
	}
	if strings.IndexByte(o.Command, 0) >= 0 {
		return nil, link.CauseCommand, errors.New("command has a NUL byte")
	}
	for _, e := range o.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" || len(e) >= maxArgument || strings.IndexByte(e, 0) >= 0 {
			return nil, link.CauseEnv, fmt.Errorf("environment entry %.40q", e)
		}
	}
	a, err := s.Accounts.Find(o.User)
	if errors.Is(err, process.ErrNoAccount) {
		return nil, link.CauseUser, err
	}
	if err != nil {
		return nil, link.CauseFailed, err
	}
	return a.Run(o.Command, o.Env), link.CauseFailed, nil
}

func causeOf(err error) link.Cause {
	if errors.Is(err, syscall.E2BIG) {
		return link.CauseEnv
	}
	return link.CauseFailed
}

// running is a command in progress.
type running struct {
	process *process.Process
	outputs [2]*output
	// stdin is where unwritten, what the pipe has not taken yet, still has to
	// go; nil if all is written.
	stdin     *os.File
	unwritten []byte
}

// launch starts c with its output going to w.
func (s *Service) launch(c *process.Command, w io.Writer, limit int64, stdin []byte) (*running, error) {
	r := new(running)
	if err := r.connect(c, w, limit, stdin); err != nil {
		return nil, err
	}
	p, err := s.Spawner.Start(c)
	for _, fd := range c.Files {
		_ = syscall.Close(fd)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	r.process = p
	_, _ = w.Write(link.AppendFrame(nil, link.FrameStarted, nil))
	for _, o := range r.outputs {
		go o.run()
	}
	if r.stdin != nil {
		go r.feed()
	}
	return r, nil
}

// connect opens the descriptors of c and our ends of them.
func (r *running) connect(c *process.Command, w io.Writer, limit int64, stdin []byte) error {
	in, err := r.input(stdin)
	if err != nil {
		return err
	}
	stdout, out, err := newOutput(link.FrameStdout, w, limit)
	if err != nil {
		r.close()
		return errors.Join(err, syscall.Close(in))
	}
	r.outputs[0] = stdout
	stderr, errOut, err := newOutput(link.FrameStderr, w, limit)
	if err != nil {
		r.close()
		return errors.Join(err, syscall.Close(in), syscall.Close(out))
	}
	r.outputs[1] = stderr
	c.Files = [3]int{in, out, errOut}
	return nil
}

// input returns the command's descriptor 0. What fits into a pipe is written
// there at once.
func (r *running) input(stdin []byte) (int, error) {
	if len(stdin) == 0 {
		fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return -1, fmt.Errorf("open %s: %w", os.DevNull, err)
		}
		return fd, nil
	}
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		return -1, fmt.Errorf("make pipe: %w", err)
	}
	if err := syscall.SetNonblock(fds[1], true); err != nil {
		return -1, errors.Join(err, syscall.Close(fds[0]), syscall.Close(fds[1]))
	}
	n, _ := syscall.Write(fds[1], stdin)
	if n == len(stdin) {
		_ = syscall.Close(fds[1])
		return fds[0], nil
	}
	r.stdin, r.unwritten = os.NewFile(uintptr(fds[1]), "pipe"), stdin[max(0, n):]
	return fds[0], nil
}

// feed writes the input. The command may end, or close it, before all is written.
func (r *running) feed() {
	_, _ = r.stdin.Write(r.unwritten)
	_ = r.stdin.Close()
}

func (r *running) close() {
	for _, o := range r.outputs {
		if o != nil {
			_ = o.file.Close()
		}
	}
	if r.stdin != nil {
		_ = r.stdin.Close()
	}
}

// finish waits for the command, ends it when its time is up, and returns the
// outcome once all that it wrote has been passed on.
func (r *running) finish(o *link.Order) link.Exit {
	var x link.Exit
	if r.process.Await(o.Timeout) {
		x.Code = r.process.Reap()
	} else {
		x.TimedOut = true
		r.process.Terminate()
	}
	if r.stdin != nil {
		_ = r.stdin.Close()
	}
	for _, out := range r.outputs {
		out.stop()
	}
	for _, out := range r.outputs {
		<-out.settled
	}
	x.StdoutBytes, x.StderrBytes = r.outputs[0].total, r.outputs[1].total
	return x
}
