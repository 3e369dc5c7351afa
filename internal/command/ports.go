package command

import (
	"context"
	"io"
	"syscall"
	"time"

	"github.com/pandovm/pando/internal/vm"
)

// VMs gives access to VMs that are up. *vm.Manager is the one implementation.
type VMs interface {
	// Awake returns the VM once it runs, and resumes it if it is paused.
	Awake(ctx context.Context, ref string) (vm.VM, error)
	// Busy keeps the VM from counting as idle until release is called.
	Busy(id string) (release func())
}

// Order is a command to run in a guest.
type Order struct {
	// ID names the command from now on. A command without one cannot be found
	// again: what the daemon itself runs has none.
	ID      string
	Command string
	// User is a guest account; empty means uid 1000, else root.
	User string
	Env  map[string]string
	// Stdin is the input, or the beginning of it if OpenStdin is set: the rest
	// comes later. Without both the command reads end of file.
	Stdin     []byte
	OpenStdin bool
	// Timeout of 0 means none for a command that is started, and
	// DefaultTimeout for one that is waited for.
	Timeout time.Duration
	// MaxOutput bounds each of stdout and stderr in a Result, in bytes.
	MaxOutput int
}

// Result is the outcome of a command that was waited for.
type Result struct {
	ID string
	// Stdout and Stderr are the beginnings; StdoutBytes and StderrBytes are the
	// full lengths.
	Stdout, Stderr           []byte
	StdoutBytes, StderrBytes int64
	// ExitCode is nil if the timeout killed the command.
	ExitCode *int
	TimedOut bool
	// OOMKilled says that the guest's kernel killed OOMProcess, the command or
	// one of its processes, for want of memory.
	OOMKilled  bool
	OOMProcess string
}

// Stream is one of a command's two outputs.
type Stream string

// The streams.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// State says how far a command is.
type State string

// The states of a command.
const (
	// Running: it has not ended.
	Running State = "running"
	// Exited: it ended, by itself, by a signal or by its timeout.
	Exited State = "exited"
	// Lost: the agent was restarted while it ran, so nobody saw its end.
	Lost State = "lost"
)

// Info is what is known of a command.
type Info struct {
	ID string
	// Command is the beginning of its text.
	Command, User string
	PID           int
	State         State
	// ExitCode is nil while it runs, and if the timeout killed it.
	ExitCode         *int
	TimedOut         bool
	OOMKilled        bool
	OOMProcess       string
	StartedAt, Ended time.Time
	// StdoutBytes and StderrBytes are what it has written so far, and StdoutFrom
	// and StderrFrom where what is still kept begins.
	StdoutBytes, StderrBytes int64
	StdoutFrom, StderrFrom   int64
	// StdinBytes is how much input it was given, and StdinOpen whether more may
	// follow.
	StdinBytes int64
	StdinOpen  bool
}

// Chunk is a piece of output. Seq counts the pieces of both streams in the
// order in which they were read, from 1; Offset is the place in its stream.
type Chunk struct {
	Stream      Stream
	Seq, Offset int64
	// Data is valid until the next call of Next.
	Data []byte
}

// Output is a command that is being followed. Next is not safe for concurrent
// use; Close may be called at any time, is idempotent, and makes Next return.
type Output interface {
	// Next returns the next event: a chunk, or an info. The first event is an
	// info; an info of a command that does not run any more is the last but for
	// io.EOF. Without follow the stream ends with what there was.
	Next() (Event, error)
	Close()
}

// Event is one of its two fields.
type Event struct {
	Chunk *Chunk
	Info  *Info
}

// Follow says which output is wanted.
type Follow struct {
	ID string
	// Stream selects one of them, from Offset on; empty means both, from the
	// chunk Seq on.
	Stream Stream
	Offset int64
	Seq    int64
	// Wait goes on with what is yet to come, until the command ends.
	Wait bool
}

// Input is more input for a command.
type Input struct {
	ID string
	// Offset is where Body belongs in the input: what the command has been given
	// already is left out. Negative means at the end.
	Offset int64
	// Close ends the input after Body.
	Close bool
	// Body is read as the command takes it.
	Body io.Reader
}

// Process is a process in a guest.
type Process struct {
	PID, ParentPID int
	User           string
	// State is a word: running, sleeping, waiting, stopped, zombie, idle.
	State   string
	CPUTime time.Duration
	// RSS is resident memory in bytes.
	RSS       int64
	StartedAt time.Time
	// Command is its command line, or its name in brackets, cut at 4 KiB.
	Command string
	// ExecID is the command that it belongs to, if any.
	ExecID string
}

// Node reaches the agents of the VMs on one host. All methods are safe for
// concurrent use. A VM that does not run is fault CONFLICT with reason
// wrong_state, a command that the guest does not know NOT_FOUND, and a guest
// that stops answering VM_NON_RESPONSIVE.
type Node interface {
	// Exec runs a command and waits for it.
	Exec(ctx context.Context, vmID string, o Order) (Result, error)
	// StartExec starts a command and follows both of its outputs. The command
	// outlives ctx and the Output.
	StartExec(ctx context.Context, vmID string, o Order) (Output, error)
	FollowExec(ctx context.Context, vmID string, f Follow) (Output, error)
	// FeedExec returns once the command has taken the input.
	FeedExec(ctx context.Context, vmID string, in Input) (Info, error)
	// SignalExec signals the command's process group.
	SignalExec(ctx context.Context, vmID, execID string, sig syscall.Signal) (Info, error)
	ExecInfo(ctx context.Context, vmID, execID string) (Info, error)
	// Execs lists the commands that the guest knows, newest first.
	Execs(ctx context.Context, vmID string) ([]Info, error)
	// ForgetExec kills the command with all of its processes, if it runs, and
	// removes what was kept of it.
	ForgetExec(ctx context.Context, vmID, execID string) error
	Processes(ctx context.Context, vmID string) ([]Process, error)
	SignalProcess(ctx context.Context, vmID string, pid int, sig syscall.Signal) error
}
