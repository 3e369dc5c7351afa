package guest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/link"
)

// DefaultMaxOutput bounds stdout and stderr, each, of an order that sets no bound.
const DefaultMaxOutput = 1 << 20

var errNoOutcome = errors.New("no outcome long after the command's timeout")

// ExecOrder is a command to run in a guest.
type ExecOrder struct {
	// ID names the command in the guest; without one it is not kept there.
	ID string
	// Command is run by the user's login shell. At most 1 MiB.
	Command string
	// User is an account of the guest; empty means uid 1000, else root.
	User string
	// Env overrides the account's HOME, USER, LOGNAME, SHELL, PATH and LANG, and
	// adds to them.
	Env map[string]string
	// Stdin is the whole input; without it the command reads end of file. At
	// most 16 MiB.
	Stdin []byte
	// OpenStdin leaves the input open for Feed.
	OpenStdin bool
	// Timeout ends the command with everything that it started: TERM, 2 s, KILL.
	// 0 means no timeout.
	Timeout time.Duration
	// MaxOutput bounds each of stdout and stderr in bytes; 0 means
	// DefaultMaxOutput.
	MaxOutput int
}

// ExecResult is the outcome of a command.
type ExecResult struct {
	// Stdout and Stderr are the beginnings of the output; StdoutBytes and
	// StderrBytes the full lengths.
	Stdout, Stderr           []byte
	StdoutBytes, StderrBytes int64
	// ExitCode is the exit status, 128 plus the signal that ended the command, or
	// nil if TimedOut.
	ExitCode *int
	TimedOut bool
	// OOMKilled says that the kernel killed OOMProcess for want of memory.
	OOMKilled  bool
	OOMProcess string
}

// Exec runs a command and returns its outcome. It returns when the command
// itself has ended, whether or not processes that it left behind still hold its
// output open; those go on. If ctx or the link ends first, the command goes on
// without anybody listening, until its timeout.
//
// An unknown user is fault BAD_REQUEST with field linuxUser; a guest that stops
// answering, or answers with nonsense, is fault VM_NON_RESPONSIVE.
func (l *Link) Exec(ctx context.Context, o ExecOrder) (ExecResult, error) {
	if o.MaxOutput <= 0 {
		o.MaxOutput = DefaultMaxOutput
	}
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Timeout+l.patience.outcome, errNoOutcome)
		defer cancel()
	}
	body, err := encodeOrder(o)
	if err != nil {
		return ExecResult{}, err
	}
	e := execAnswer{limit: o.MaxOutput}
	err = l.roundTrip(ctx, link.PathExec, body, e.read)
	if errors.Is(err, errNoOutcome) {
		err = l.lost(context.WithoutCancel(ctx), "exec", err)
	}
	if err != nil {
		return ExecResult{}, err
	}
	if e.refusal != nil {
		return ExecResult{}, refused(o, *e.refusal)
	}
	return e.result, nil
}

// encodeOrder returns the body of the request.
func encodeOrder(o ExecOrder) ([]byte, error) {
	wire := link.Order{
		Command: o.Command, User: o.User, Timeout: o.Timeout,
		MaxOutput: int64(o.MaxOutput), Stdin: len(o.Stdin) > 0, ID: o.ID, OpenStdin: o.OpenStdin,
	}
	for _, name := range slices.Sorted(maps.Keys(o.Env)) {
		wire.Env = append(wire.Env, name+"="+o.Env[name])
	}
	record, _ := wire.MarshalBinary()
	if len(record) > link.MaxOrder {
		return nil, fault.BadField("command", "command and environment together exceed %d bytes", link.MaxOrder)
	}
	body := link.AppendFrame(nil, link.FrameOrder, record)
	if !wire.Stdin {
		return body, nil
	}
	for chunk := range slices.Chunk(o.Stdin, link.MaxFrame) {
		body = link.AppendFrame(body, link.FrameStdin, chunk)
	}
	return link.AppendFrame(body, link.FrameStdinEnd, nil), nil
}

// execAnswer collects the answer to an order.
type execAnswer struct {
	limit   int
	result  ExecResult
	refusal *link.Refusal
}

func (e *execAnswer) read(frames *link.FrameReader) error {
	for {
		t, payload, err := frames.Next()
		if err != nil {
			return err
		}
		switch t {
		case link.FrameStdout:
			e.result.Stdout, err = e.grow(e.result.Stdout, payload)
		case link.FrameStderr:
			e.result.Stderr, err = e.grow(e.result.Stderr, payload)
		case link.FrameOutput:
			err = e.output(payload)
		case link.FrameExit:
			return e.exit(payload)
		case link.FrameRefused:
			e.refusal = new(link.Refusal)
			return e.refusal.UnmarshalBinary(payload)
		default: // a newer agent may say more than we understand
		}
		if err != nil {
			return err
		}
	}
}

// output takes a piece of either stream.
func (e *execAnswer) output(payload []byte) error {
	o, err := link.ParseOutput(payload)
	if err != nil {
		return err
	}
	to := &e.result.Stdout
	if o.Stream == link.Stderr {
		to = &e.result.Stderr
	}
	if o.Offset != int64(len(*to)) {
		return fmt.Errorf("output at %d after %d bytes: %w", o.Offset, len(*to), link.ErrFrame)
	}
	*to, err = e.grow(*to, o.Data)
	return err
}

func (e *execAnswer) grow(out, payload []byte) ([]byte, error) {
	if len(out)+len(payload) > e.limit {
		return nil, fmt.Errorf("more than the %d bytes of output asked for: %w", e.limit, link.ErrFrame)
	}
	return append(out, payload...), nil
}

func (e *execAnswer) exit(payload []byte) error {
	var x link.Exit
	if err := x.UnmarshalBinary(payload); err != nil {
		return err
	}
	if x.Code < 0 || x.Code > 255 ||
		!fits(x.StdoutBytes, len(e.result.Stdout), e.limit) || !fits(x.StderrBytes, len(e.result.Stderr), e.limit) {
		return fmt.Errorf("impossible outcome: %w", link.ErrFrame)
	}
	e.result.StdoutBytes, e.result.StderrBytes = x.StdoutBytes, x.StderrBytes
	if e.result.TimedOut = x.TimedOut; !x.TimedOut {
		e.result.ExitCode = &x.Code
	}
	e.result.OOMKilled, e.result.OOMProcess = x.OOMKilled, printable(x.OOMProcess, maxName)
	return nil
}

// fits tells whether an output of total bytes can have been cut to got.
func fits(total int64, got, limit int) bool {
	return total == int64(got) || total > int64(got) && got == limit
}

// refused makes the error of an order that started no process.
func refused(o ExecOrder, r link.Refusal) error {
	detail := fmt.Errorf("agent reports %.300q", r.Text)
	switch r.Cause {
	case link.CauseUser:
		return fault.BadField("linuxUser", "the guest has no user %q", o.User).
			Hint("name a user of the guest's /etc/passwd, or leave linuxUser out").With(detail)
	case link.CauseCommand:
		return fault.BadField("command", "too long, or with a NUL byte").
			Hint("send a script on stdin").With(detail)
	case link.CauseEnv:
		return fault.BadField("env", "too long, or with an unusable name or value").With(detail)
	case link.CauseBusy:
		return (&fault.Error{Code: api.CodeLimitExceeded, Message: "too many commands run in the guest"}).
			Hint("wait for some of them, or end them").With(detail)
	default:
	}
	return fmt.Errorf("start command in the guest: %w", detail)
}
