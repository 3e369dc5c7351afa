package pando

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pandovm/pando/api"
)

// Cmd is a command in a VM, in the manner of os/exec: set its fields, then Run
// it, or Start it and Wait for it. It is used once, and its methods are not safe
// for concurrent use except for Signal, Kill and ID.
//
// The command belongs to the VM, not to this program. When the connection breaks,
// or the daemon is started anew, Cmd attaches again and goes on where it was,
// without loss and without repetition. A VM that is paused meanwhile is not
// woken: Cmd waits for it.
type Cmd struct {
	// Text is what the user's login shell runs.
	Text string
	// User is the guest account; empty means uid 1000, else root.
	User string
	// Env is added to the command's environment.
	Env map[string]string
	// Timeout kills the command with everything that it started; 0 means never.
	Timeout time.Duration
	// Stdin is passed on until it ends or the command takes no more; nil is an
	// empty input. A Read that blocks is not waited for.
	Stdin io.Reader
	// Stdout and Stderr get the output, from one goroutine; nil drops it.
	Stdout, Stderr io.Writer
	// Cancel is called if the context ends before the command. If it is nil the
	// command is left running.
	Cancel func() error

	vms *VMs
	ref string
	// exec is the command as last heard of.
	exec  atomicExec
	last  int64
	ends  [2]int64
	lost  int64
	ctx   context.Context //nolint:containedctx // as in os/exec, Wait has the context of Start
	done  chan struct{}
	err   error
	pipes []io.Closer
}

// Command returns the command to run a program in a VM with arguments that are
// taken literally. ref is the VM's id or slug.
func (v *VMs) Command(ref, name string, args ...string) *Cmd {
	words := []string{quoteWord(name)}
	for _, a := range args {
		words = append(words, quoteWord(a))
	}
	return v.Shell(ref, strings.Join(words, " "))
}

// Shell returns the command to have the user's login shell run text in a VM.
func (v *VMs) Shell(ref, text string) *Cmd { return &Cmd{Text: text, vms: v, ref: ref} }

// Attach returns a Cmd for a command that was started earlier: Start follows it
// from its beginning, or from what is still kept of it. Only Stdout, Stderr and
// Stdin of its fields mean something; Stdin goes on where the input ended.
func (v *VMs) Attach(ref, execID string) *Cmd {
	c := &Cmd{vms: v, ref: ref}
	c.exec.set(api.Exec{ID: execID})
	return c
}

func quoteWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// ID returns the command's id, once it was started.
func (c *Cmd) ID() string { return c.exec.get().ID }

// Exec returns what was last heard of the command.
func (c *Cmd) Exec() api.Exec { return c.exec.get() }

// Missed counts the bytes of output that were no longer kept when they were
// asked for.
func (c *Cmd) Missed() int64 { return c.lost }

// Start starts the command, or attaches to it, and returns when the VM has it.
// Wait must be called then.
func (c *Cmd) Start(ctx context.Context) error {
	if c.done != nil {
		return errors.New("command was started before")
	}
	s, err := c.begin(ctx)
	if err != nil {
		c.closePipes(err)
		return err
	}
	c.ctx, c.done = ctx, make(chan struct{})
	go c.follow(s)
	if c.Stdin != nil {
		go c.feed(ctx)
	}
	return nil
}

// begin opens the stream and reads its first event.
func (c *Cmd) begin(ctx context.Context) (*execStream, error) {
	if id := c.ID(); id != "" {
		return c.attach(ctx)
	}
	path, err := objectPath("vms", c.ref, "exec")
	if err != nil {
		return nil, err
	}
	r := api.StartExecRequest{Command: c.Text, Env: c.Env, OpenStdin: c.Stdin != nil}
	if c.User != "" {
		r.LinuxUser = &c.User
	}
	if c.Timeout > 0 {
		r.TimeoutMs = new(max(1, c.Timeout.Milliseconds()))
	}
	return c.open(ctx, http.MethodPost, path, r)
}

func (c *Cmd) attach(ctx context.Context) (*execStream, error) {
	path, err := execPath(c.ref, c.ID(), "output")
	if err != nil {
		return nil, err
	}
	q := url.Values{"follow": {"true"}, "seq": {strconv.FormatInt(c.last+1, 10)}}
	return c.open(ctx, http.MethodGet, withQuery(path, q), nil)
}

func (c *Cmd) open(ctx context.Context, method, path string, in any) (*execStream, error) {
	s, err := openExecStream(ctx, c.vms.c, method, path, in)
	if err != nil {
		return nil, err
	}
	e, err := s.next()
	if err == nil && e.Exec == nil {
		err = errors.New("the first line is not about the command")
	}
	if err != nil {
		s.close()
		return nil, c.vms.c.foreignAnswer(method, path, err)
	}
	c.exec.set(*e.Exec)
	return s, nil
}

// follow takes events until the command has ended or cannot be followed.
func (c *Cmd) follow(s *execStream) {
	defer close(c.done)
	for {
		err := c.drain(s)
		s.close()
		if err == nil || c.ctx.Err() != nil || !isBreak(err) {
			c.err = c.whyEnded(err)
			break
		}
		if s, err = c.reattach(err); err != nil {
			c.err = err
			break
		}
	}
	c.closePipes(c.err)
}

func (c *Cmd) whyEnded(err error) error {
	if c.ctx.Err() == nil {
		return err
	}
	if c.Cancel != nil {
		err = c.Cancel()
	} else {
		err = nil
	}
	return errors.Join(fmt.Errorf("command %s: %w", c.ID(), context.Cause(c.ctx)), err)
}

// drain takes the events of one stream; nil means that the command has ended.
func (c *Cmd) drain(s *execStream) error {
	for {
		e, err := s.next()
		if err != nil {
			return err
		}
		switch e.Type {
		case api.EventExec:
			c.exec.set(*e.Exec)
			return nil
		case api.EventOutput:
			if err := c.output(e); err != nil {
				return err
			}
		case api.EventError:
			return &brokenStreamError{e.Error}
		case api.EventPing:
		}
	}
}

// output passes a piece of output on.
func (c *Cmd) output(e api.ExecEvent) error {
	c.last = e.Seq
	to, stream := c.Stdout, 0
	if e.Stream == api.StreamStderr {
		to, stream = c.Stderr, 1
	}
	data := e.Data
	if data == nil {
		data = []byte(e.Text)
	}
	c.lost += max(0, e.Offset-c.ends[stream])
	c.ends[stream] = e.Offset + int64(len(data))
	if to == nil {
		return nil
	}
	if _, err := to.Write(data); err != nil {
		return fmt.Errorf("write output of command %s: %w", c.ID(), err)
	}
	return nil
}

// Wait waits until the command has ended and all of its output was passed on. An
// exit status other than 0, and a timeout, is an *ExitError.
func (c *Cmd) Wait() error {
	if c.done == nil {
		return errors.New("command was not started")
	}
	<-c.done
	if c.err != nil {
		return c.err
	}
	e := c.exec.get()
	if e.State != api.ExecExited || e.TimedOut || e.StatusCode == nil || *e.StatusCode != 0 {
		return &ExitError{Exec: e}
	}
	return nil
}

// Run starts the command and waits for it.
func (c *Cmd) Run(ctx context.Context) error {
	if err := c.Start(ctx); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns its standard output. If Stderr is nil, the
// end of it is in the ExitError.
func (c *Cmd) Output(ctx context.Context) ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("Stdout is set already")
	}
	var out bytes.Buffer
	c.Stdout = &out
	var tail tailWriter
	if c.Stderr == nil {
		c.Stderr = &tail
	}
	err := c.Run(ctx)
	if exit, ok := errors.AsType[*ExitError](err); ok {
		exit.Stderr = tail.b
	}
	return out.Bytes(), err
}

// CombinedOutput runs the command and returns both outputs in the order in which
// they were written.
func (c *Cmd) CombinedOutput(ctx context.Context) ([]byte, error) {
	if c.Stdout != nil || c.Stderr != nil {
		return nil, errors.New("Stdout or Stderr is set already")
	}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run(ctx)
	return out.Bytes(), err
}

// tailWriter keeps the end of what is written.
type tailWriter struct{ b []byte }

// Write implements io.Writer.
func (w *tailWriter) Write(p []byte) (int, error) {
	const limit = 32 << 10
	w.b = append(w.b, p...)
	if len(w.b) > 2*limit {
		w.b = append(w.b[:0], w.b[len(w.b)-limit:]...)
	}
	return len(p), nil
}

// StdinPipe returns a writer to the command's input; closing it ends the input.
func (c *Cmd) StdinPipe() (io.WriteCloser, error) {
	if c.Stdin != nil {
		return nil, errors.New("Stdin is set already")
	}
	r, w := io.Pipe()
	c.Stdin = r
	return w, nil
}

// StdoutPipe returns a reader of the standard output. It must be read to its end,
// or closed, before Wait returns.
func (c *Cmd) StdoutPipe() (io.ReadCloser, error) { return c.outputPipe(&c.Stdout) }

// StderrPipe is StdoutPipe for the standard error.
func (c *Cmd) StderrPipe() (io.ReadCloser, error) { return c.outputPipe(&c.Stderr) }

func (c *Cmd) outputPipe(to *io.Writer) (io.ReadCloser, error) {
	if *to != nil {
		return nil, errors.New("the output is set already")
	}
	r, w := io.Pipe()
	*to = w
	c.pipes = append(c.pipes, w)
	return r, nil
}

func (c *Cmd) closePipes(err error) {
	for _, p := range c.pipes {
		w, ok := p.(*io.PipeWriter)
		if ok && err != nil {
			_ = w.CloseWithError(err)
			continue
		}
		_ = p.Close()
	}
}

// Signal signals the command's process group; name is something like "INT".
func (c *Cmd) Signal(ctx context.Context, name string) error {
	_, err := c.vms.SignalExec(ctx, c.ref, c.ID(), name)
	return err
}

// Kill kills the command with everything that it started.
func (c *Cmd) Kill(ctx context.Context) error { return c.Signal(ctx, "KILL") }

// ExitError is a command that did not end with status 0.
type ExitError struct {
	// Exec is the command at its end.
	Exec api.Exec
	// Stderr is the end of the standard error, after Output.
	Stderr []byte
}

// Error says how it ended.
func (e *ExitError) Error() string {
	switch {
	case e.Exec.OOMKilled:
		return "command was killed: out of memory (" + e.Exec.OOMProcess + ")"
	case e.Exec.TimedOut:
		return "command was killed: its time was up"
	case e.Exec.StatusCode == nil:
		return "command was lost: the vm's agent was started anew"
	}
	return fmt.Sprintf("exit status %d", *e.Exec.StatusCode)
}

// ExitCode returns the exit status, or -1 if there is none.
func (e *ExitError) ExitCode() int {
	if e.Exec.StatusCode == nil {
		return -1
	}
	return *e.Exec.StatusCode
}
