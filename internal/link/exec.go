package link

import (
	"fmt"
	"time"
)

// The paths of the requests that the agent serves.
const (
	PathExec     = "/exec"
	PathPing     = "/ping"
	PathClock    = "/clock"
	PathSync     = "/sync"
	PathSettled  = "/settled"
	PathPoweroff = "/poweroff"
)

// Order is the command of an exec, as FrameOrder carries it.
type Order struct {
	Command string
	// User is an account of the guest; empty means uid 1000, else root.
	User string
	// Env holds NAME=value entries that override the defaults.
	Env []string
	// Timeout of 0 means none.
	Timeout time.Duration
	// MaxOutput bounds what is sent of each of stdout and stderr, in bytes.
	MaxOutput int64
	// Stdin says that input follows the order.
	Stdin bool
	// ID names the command from now on; a command without one is not kept.
	ID string
	// OpenStdin leaves the input open for PathFeed.
	OpenStdin bool
}

const (
	orderCommand = iota + 1
	orderUser
	orderEnv
	orderTimeout
	orderMaxOutput
	orderStdin
	orderID
	orderOpenStdin
)

// MarshalBinary encodes o as a record. It never fails.
func (o Order) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.text(orderCommand, o.Command)
	enc.text(orderUser, o.User)
	for _, e := range o.Env {
		enc.bytes(orderEnv, []byte(e))
	}
	enc.int(orderTimeout, int64(o.Timeout))
	enc.int(orderMaxOutput, o.MaxOutput)
	enc.flag(orderStdin, o.Stdin)
	enc.text(orderID, o.ID)
	enc.flag(orderOpenStdin, o.OpenStdin)
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (o *Order) UnmarshalBinary(b []byte) error {
	*o = Order{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case orderCommand:
			o.Command = d.text()
		case orderUser:
			o.User = d.text()
		case orderEnv:
			o.Env = append(o.Env, d.text())
		case orderTimeout:
			o.Timeout = time.Duration(d.int())
		case orderMaxOutput:
			o.MaxOutput = d.int()
		case orderStdin:
			o.Stdin = d.flag()
		case orderID:
			o.ID = d.text()
		case orderOpenStdin:
			o.OpenStdin = d.flag()
		}
	}
	if d.err != nil {
		return fmt.Errorf("decode order: %w", d.err)
	}
	return nil
}

// Exit is the outcome of a command, as FrameExit carries it.
type Exit struct {
	// Code is the exit status, or 128 plus the signal that ended the command. It
	// means nothing if TimedOut.
	Code     int
	TimedOut bool
	// StdoutBytes and StderrBytes are what the command wrote until its end,
	// whether sent or not.
	StdoutBytes, StderrBytes int64
	// OOMKilled says that the kernel killed OOMProcess, one of the command's
	// processes, for want of memory.
	OOMKilled  bool
	OOMProcess string
}

const (
	exitCode = iota + 1
	exitTimedOut
	exitStdoutBytes
	exitStderrBytes
	exitOOMKilled
	exitOOMProcess
)

// MarshalBinary encodes x as a record. It never fails.
func (x Exit) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.int(exitCode, int64(x.Code))
	enc.flag(exitTimedOut, x.TimedOut)
	enc.int(exitStdoutBytes, x.StdoutBytes)
	enc.int(exitStderrBytes, x.StderrBytes)
	enc.flag(exitOOMKilled, x.OOMKilled)
	enc.text(exitOOMProcess, x.OOMProcess)
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (x *Exit) UnmarshalBinary(b []byte) error {
	*x = Exit{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case exitCode:
			x.Code = int(d.int())
		case exitTimedOut:
			x.TimedOut = d.flag()
		case exitStdoutBytes:
			x.StdoutBytes = d.int()
		case exitStderrBytes:
			x.StderrBytes = d.int()
		case exitOOMKilled:
			x.OOMKilled = d.flag()
		case exitOOMProcess:
			x.OOMProcess = d.text()
		}
	}
	if d.err != nil {
		return fmt.Errorf("decode exit: %w", d.err)
	}
	return nil
}

// Cause classifies a refusal.
type Cause int64

// The causes of a refusal. A host that does not know one treats it as CauseFailed.
const (
	// CauseFailed: the command could not be started, for no fault of the order.
	CauseFailed Cause = iota
	// CauseUser: the guest has no such account.
	CauseUser
	// CauseCommand: the command is longer than the kernel takes, or has a NUL.
	CauseCommand
	// CauseEnv: the environment is longer than the kernel takes, or has a NUL.
	CauseEnv
	// CauseUnknown: there is no such command, or process.
	CauseUnknown
	// CauseEnded: the command does not run any more, or takes no more input.
	CauseEnded
	// CauseOffset: the input does not join what the command has been given.
	CauseOffset
	// CauseBusy: as many commands run as the agent takes.
	CauseBusy
)

// Refusal says why no process was started, as FrameRefused carries it.
type Refusal struct {
	Cause Cause
	Text  string
}

const (
	refusalCause = iota + 1
	refusalText
)

// MarshalBinary encodes r as a record. It never fails.
func (r Refusal) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.int(refusalCause, int64(r.Cause))
	enc.text(refusalText, r.Text)
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (r *Refusal) UnmarshalBinary(b []byte) error {
	*r = Refusal{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case refusalCause:
			r.Cause = Cause(d.int())
		case refusalText:
			r.Text = d.text()
		}
	}
	if d.err != nil {
		return fmt.Errorf("decode refusal: %w", d.err)
	}
	return nil
}

// Reply is the answer to a request other than exec, as FrameReply carries it.
type Reply struct {
	// Error is empty if the request succeeded.
	Error string
	// ClockUnixNs is the guest's clock after PathClock.
	ClockUnixNs int64
	// Settled, State and Failed answer PathSettled.
	Settled bool
	State   string
	Failed  []string
	// Running names what runs and keeps PathUpgrade from being done.
	Running []string
}

const (
	replyError = iota + 1
	replyClock
	replySettled
	replyState
	replyFailed
	replyRunning
)

// MarshalBinary encodes r as a record. It never fails.
func (r Reply) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.text(replyError, r.Error)
	enc.int(replyClock, r.ClockUnixNs)
	enc.flag(replySettled, r.Settled)
	enc.text(replyState, r.State)
	for _, f := range r.Failed {
		enc.bytes(replyFailed, []byte(f))
	}
	for _, r := range r.Running {
		enc.bytes(replyRunning, []byte(r))
	}
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (r *Reply) UnmarshalBinary(b []byte) error {
	*r = Reply{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case replyError:
			r.Error = d.text()
		case replyClock:
			r.ClockUnixNs = d.int()
		case replySettled:
			r.Settled = d.flag()
		case replyState:
			r.State = d.text()
		case replyFailed:
			r.Failed = append(r.Failed, d.text())
		case replyRunning:
			r.Running = append(r.Running, d.text())
		}
	}
	if d.err != nil {
		return fmt.Errorf("decode reply: %w", d.err)
	}
	return nil
}
