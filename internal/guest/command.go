package guest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/link"
)

const (
	// maxListed bounds the commands, and the processes, that a guest may list.
	maxListed = 64 << 10
	// maxName and maxText bound what a guest may call a thing, and how long a
	// command line it may show.
	maxName = 256
	maxText = 4 << 10
	// feedPiece is how much input is sent in one frame.
	feedPiece = 32 << 10
)

// Start starts a command and follows both of its outputs. The command outlives
// ctx, the link and the output. Errors are those of Exec.
func (l *Link) Start(ctx context.Context, o ExecOrder) (*Output, error) {
	body, err := encodeOrder(o)
	if err != nil {
		return nil, err
	}
	e, err := l.open(ctx, link.PathStart, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return newOutput(e, o.ID, true, func(r link.Refusal) error { return refused(o, r) })
}

// Follow follows a command that was started earlier.
func (l *Link) Follow(ctx context.Context, f command.Follow) (*Output, error) {
	ref := link.Ref{ID: f.ID, Offset: f.Offset, Seq: f.Seq, Wait: f.Wait}
	switch f.Stream {
	case command.Stdout:
		ref.Stream = int(link.Stdout)
	case command.Stderr:
		ref.Stream = int(link.Stderr)
	}
	e, err := l.open(ctx, link.PathOutput, bytes.NewReader(refFrame(ref)))
	if err != nil {
		return nil, err
	}
	return newOutput(e, f.ID, f.Wait, func(r link.Refusal) error { return declined(f.ID, r) })
}

func refFrame(ref link.Ref) []byte {
	body, _ := ref.MarshalBinary()
	return link.AppendFrame(nil, link.FrameRef, body)
}

// Output is a command that is being followed. It implements command.Output.
type Output struct {
	e      *exchange
	frames *link.FrameReader
	id     string
	wait   bool
	first  *command.Info
	over   bool
	// seq and offsets are where the next piece may begin.
	seq     int64
	offsets [3]int64
	chunk   command.Chunk
}

// newOutput reads the answer up to its first info.
func newOutput(e *exchange, id string, wait bool, refusal func(link.Refusal) error) (*Output, error) {
	o := &Output{e: e, frames: link.NewFrameReader(e.body), id: id, wait: wait}
	t, payload, err := o.frames.Next()
	switch {
	case err != nil:
		err = e.broken(err)
	case t == link.FrameInfo:
		o.first, err = o.info(payload)
	case t == link.FrameRefused:
		err = readRefusal(payload, refusal)
	case t == link.FrameReply:
		err = tooOld()
	default:
		err = fmt.Errorf("frame %d first: %w", t, link.ErrFrame)
	}
	if err != nil {
		e.Close()
		return nil, nonsense(err, e.what)
	}
	return o, nil
}

func readRefusal(payload []byte, refusal func(link.Refusal) error) error {
	var r link.Refusal
	if err := r.UnmarshalBinary(payload); err != nil {
		return err
	}
	return refusal(r)
}

// tooOld is the error of an agent that does not know the request.
func tooOld() error {
	return &fault.Error{
		Code: api.CodeAgentUnsupported, Message: "the agent in this vm is too old for this",
		Remedy: "start a vm from a newly built image, or use exec-await",
	}
}

// nonsense makes the error of an answer that cannot be.
func nonsense(err error, what string) error {
	if fault.As(err) != nil || !errors.Is(err, link.ErrFrame) {
		return err
	}
	return (&fault.Error{
		Code: api.CodeVMNonResponsive, Message: "the guest answered " + what + " with nonsense",
		Remedy: "its agent may be damaged: stop the vm and start it",
	}).With(err)
}

// Next implements command.Output.
func (o *Output) Next() (command.Event, error) {
	if i := o.first; i != nil {
		o.first = nil
		return command.Event{Info: i}, nil
	}
	if o.over {
		return command.Event{}, io.EOF
	}
	for {
		t, payload, err := o.frames.Next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !o.wait {
			o.over = true
			return command.Event{}, io.EOF
		}
		if err != nil {
			return command.Event{}, o.e.broken(err)
		}
		switch t {
		case link.FrameOutput:
			err = o.piece(payload)
			return command.Event{Chunk: &o.chunk}, nonsense(err, o.e.what)
		case link.FrameInfo:
			i, err := o.info(payload)
			o.over = true
			return command.Event{Info: i}, nonsense(err, o.e.what)
		default: // a newer agent may say more than we understand
		}
	}
}

func (o *Output) piece(payload []byte) error {
	p, err := link.ParseOutput(payload)
	if err != nil {
		return err
	}
	if p.Seq < o.seq || p.Offset < o.offsets[p.Stream] || len(p.Data) == 0 {
		return fmt.Errorf("piece %d at %d out of order: %w", p.Seq, p.Offset, link.ErrFrame)
	}
	o.seq, o.offsets[p.Stream] = p.Seq+1, p.Offset+int64(len(p.Data))
	o.chunk = command.Chunk{Stream: command.Stdout, Seq: p.Seq, Offset: p.Offset, Data: p.Data}
	if p.Stream == link.Stderr {
		o.chunk.Stream = command.Stderr
	}
	return nil
}

func (o *Output) info(payload []byte) (*command.Info, error) {
	i, err := readInfo(payload)
	if err == nil && i.ID != o.id {
		err = fmt.Errorf("it is about %.60q: %w", i.ID, link.ErrFrame)
	}
	return &i, err
}

// Close implements command.Output.
func (o *Output) Close() { o.e.Close() }

// readInfo checks what a guest says about a command.
func readInfo(payload []byte) (command.Info, error) {
	var w link.Info
	if err := w.UnmarshalBinary(payload); err != nil {
		return command.Info{}, errors.Join(err, link.ErrFrame)
	}
	x := w.Exit
	if x.Code < 0 || x.Code > 255 || x.StdoutBytes < 0 || x.StderrBytes < 0 || w.StdinBytes < 0 ||
		w.StdoutFrom < 0 || w.StderrFrom < 0 || w.PID < 0 || len(w.ID) > maxName {
		return command.Info{}, fmt.Errorf("impossible command: %w", link.ErrFrame)
	}
	i := command.Info{
		ID: printable(w.ID, maxName), Command: printable(w.Command, maxText), User: printable(w.User, maxName), PID: w.PID,
		TimedOut: x.TimedOut, OOMKilled: x.OOMKilled, OOMProcess: printable(x.OOMProcess, maxName),
		StartedAt: time.Unix(0, w.Started), StdoutBytes: x.StdoutBytes, StderrBytes: x.StderrBytes,
		StdoutFrom: w.StdoutFrom, StderrFrom: w.StderrFrom, StdinBytes: w.StdinBytes, StdinOpen: w.StdinOpen,
	}
	switch w.State {
	case link.ExecRunning:
		i.State = command.Running
	case link.ExecExited:
		i.State, i.Ended = command.Exited, time.Unix(0, w.Ended)
		if !x.TimedOut {
			i.ExitCode = &x.Code
		}
	case link.ExecLost:
		i.State = command.Lost
	default:
		return i, fmt.Errorf("state %d: %w", w.State, link.ErrFrame)
	}
	return i, nil
}

// printable makes text of what a guest says, of at most limit bytes.
func printable(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// declined makes the error of a request about a command.
func declined(id string, r link.Refusal) error {
	detail := fmt.Errorf("agent reports %.300q", r.Text)
	switch r.Cause {
	case link.CauseUnknown:
		return (&fault.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("the vm knows no command %.100q", id)}).
			Hint("list its commands: GET …/exec; ended ones are known for a day").With(detail)
	case link.CauseEnded:
		return fault.Conflict(api.ReasonCommandEnded, "command %.100s does not run any more, or takes no more input", id).
			Hint("look at it: GET …/exec/%.100s", id).With(detail)
	case link.CauseOffset:
		f := fault.Conflict(api.ReasonWrongOffset, "offset: the input does not join what the command was given")
		f.Field = "offset"
		return f.Hint("continue at the command's stdinBytes: GET …/exec/%.100s", id).With(detail)
	default:
	}
	return fmt.Errorf("ask the guest about a command: %w", detail)
}

// ask sends a request about a command or a process, and has take each frame of
// the answer until it says that it was the last one.
func (l *Link) ask(ctx context.Context, path string, ref link.Ref, body io.Reader, take func(link.FrameType, []byte) (last bool, err error)) error {
	e, err := l.open(ctx, path, io.MultiReader(bytes.NewReader(refFrame(ref)), body))
	if err != nil {
		return err
	}
	defer e.Close()
	frames := link.NewFrameReader(e.body)
	for first := true; ; first = false {
		t, payload, err := frames.Next()
		if err != nil {
			return e.broken(err)
		}
		if t == link.FrameRefused {
			return nonsense(readRefusal(payload, func(r link.Refusal) error { return declined(ref.ID, r) }), e.what)
		}
		var reply link.Reply
		if t == link.FrameReply && first && reply.UnmarshalBinary(payload) == nil && reply.Error == "unknown request" {
			return tooOld()
		}
		if last, err := take(t, payload); last || err != nil {
			return nonsense(err, e.what)
		}
	}
}

// askInfo is ask for a request that is answered with an info.
func (l *Link) askInfo(ctx context.Context, path string, ref link.Ref, body io.Reader) (i command.Info, err error) {
	err = l.ask(ctx, path, ref, body, func(t link.FrameType, payload []byte) (bool, error) {
		if t != link.FrameInfo {
			return false, nil
		}
		i, err = readInfo(payload)
		return true, err
	})
	return i, err
}

func none() io.Reader { return bytes.NewReader(nil) }

// ExecInfo returns what the guest knows of a command.
func (l *Link) ExecInfo(ctx context.Context, id string) (command.Info, error) {
	return l.askInfo(ctx, link.PathInfo, link.Ref{ID: id}, none())
}

// SignalExec signals a command's process group.
func (l *Link) SignalExec(ctx context.Context, id string, sig syscall.Signal) (command.Info, error) {
	return l.askInfo(ctx, link.PathSignal, link.Ref{ID: id, Signal: int(sig)}, none())
}

// Feed returns once the command has taken the input.
func (l *Link) Feed(ctx context.Context, in command.Input) (command.Info, error) {
	ref := link.Ref{ID: in.ID, Offset: max(in.Offset, -1), Close: in.Close}
	return l.askInfo(ctx, link.PathFeed, ref, &feeder{from: in.Body})
}

// feeder makes frames of input as it is read.
type feeder struct {
	from io.Reader
	buf  []byte
	// out is what of buf is still to be read; ended says that it is the last.
	out   []byte
	ended bool
}

// Read implements io.Reader.
func (f *feeder) Read(p []byte) (int, error) {
	for len(f.out) == 0 {
		if f.ended {
			return 0, io.EOF
		}
		if err := f.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.out)
	f.out = f.out[n:]
	return n, nil
}

func (f *feeder) fill() error {
	if f.buf == nil {
		f.buf = make([]byte, link.FrameHeader+feedPiece)
	}
	n, err := f.from.Read(f.buf[link.FrameHeader:])
	f.buf[0] = byte(link.FrameStdin)
	binary.BigEndian.PutUint32(f.buf[1:], uint32(n))
	if f.out = f.buf[:link.FrameHeader+n]; n == 0 {
		f.out = nil
	}
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		f.ended = true
		f.out = link.AppendFrame(f.out, link.FrameStdinEnd, nil)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read input: %w", err)
	}
	return nil
}

// Execs lists the commands that the guest knows, newest first.
func (l *Link) Execs(ctx context.Context) ([]command.Info, error) {
	var list []command.Info
	err := l.ask(ctx, link.PathList, link.Ref{}, none(), func(t link.FrameType, payload []byte) (bool, error) {
		if t != link.FrameInfo {
			return t == link.FrameReply, nil
		}
		i, err := readInfo(payload)
		if list = append(list, i); len(list) > maxListed {
			err = fmt.Errorf("more than %d commands: %w", maxListed, link.ErrFrame)
		}
		return false, err
	})
	return list, err
}

// ForgetExec kills a command and removes what the guest keeps of it.
func (l *Link) ForgetExec(ctx context.Context, id string) error {
	return l.ask(ctx, link.PathForget, link.Ref{ID: id}, none(), replied("forget the command"))
}

// replied takes the reply to a request that has no other answer.
func replied(what string) func(link.FrameType, []byte) (bool, error) {
	return func(t link.FrameType, payload []byte) (bool, error) {
		if t != link.FrameReply {
			return false, nil
		}
		var r link.Reply
		if err := r.UnmarshalBinary(payload); err != nil {
			return true, errors.Join(err, link.ErrFrame)
		}
		if r.Error != "" {
			return true, fmt.Errorf("%s: agent reports %.200q", what, r.Error)
		}
		return true, nil
	}
}

// Processes lists the processes of the guest.
func (l *Link) Processes(ctx context.Context) ([]command.Process, error) {
	var list []command.Process
	last := replied("list processes")
	err := l.ask(ctx, link.PathProcesses, link.Ref{}, none(), func(t link.FrameType, payload []byte) (bool, error) {
		if t != link.FrameProcess {
			return last(t, payload)
		}
		p, err := readProcess(payload)
		if list = append(list, p); len(list) > maxListed {
			err = fmt.Errorf("more than %d processes: %w", maxListed, link.ErrFrame)
		}
		return false, err
	})
	return list, err
}

func readProcess(payload []byte) (command.Process, error) {
	var w link.Process
	if err := w.UnmarshalBinary(payload); err != nil {
		return command.Process{}, errors.Join(err, link.ErrFrame)
	}
	if w.PID < 1 || w.ParentPID < 0 || w.CPU < 0 || w.RSS < 0 {
		return command.Process{}, fmt.Errorf("impossible process: %w", link.ErrFrame)
	}
	return command.Process{
		PID: w.PID, ParentPID: w.ParentPID, User: printable(w.User, maxName), State: stateWord(w.State),
		CPUTime: time.Duration(w.CPU), RSS: w.RSS, StartedAt: time.Unix(0, w.Started),
		Command: printable(w.Command, maxText), ExecID: printable(w.ExecID, maxName),
	}, nil
}

// stateWord is what the letter of /proc/PID/stat means.
func stateWord(letter string) string {
	switch letter {
	case "R":
		return "running"
	case "S":
		return "sleeping"
	case "D":
		return "waiting"
	case "T", "t":
		return "stopped"
	case "Z", "X":
		return "zombie"
	case "I":
		return "idle"
	}
	return "unknown"
}

// SignalProcess signals one process of the guest.
func (l *Link) SignalProcess(ctx context.Context, pid int, sig syscall.Signal) error {
	err := l.ask(ctx, link.PathKill, link.Ref{PID: pid, Signal: int(sig)}, none(), replied("signal the process"))
	if f := fault.As(err); f != nil && f.Code == api.CodeNotFound {
		f = f.Hint("see what runs: GET …/processes")
		f.Message = fmt.Sprintf("the vm has no process %d", pid)
		return f
	}
	return err
}
