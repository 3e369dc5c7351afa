package api

import "time"

// StartExecRequest is the body of POST /v5/vms/{id}/exec.
type StartExecRequest struct {
	// Command is run by the user's login shell.
	Command string `json:"command"`
	// LinuxUser is the guest account; null means uid 1000, else root.
	LinuxUser *string `json:"linuxUser,omitempty"`
	// TimeoutMs is 1 to 86400000; null means that the command may run for ever.
	TimeoutMs *int64 `json:"timeoutMs,omitempty"`
	// Env is added to the command's environment.
	Env map[string]string `json:"env,omitempty"`
	// Stdin is base64, at most 1 MiB when decoded: the whole input, or its
	// beginning if OpenStdin is true.
	Stdin *string `json:"stdin,omitempty"`
	// OpenStdin leaves the input open for POST …/exec/{sub}/stdin.
	OpenStdin bool `json:"openStdin,omitempty"`
	// Detach ends the answer after its first line.
	Detach bool `json:"detach,omitempty"`
}

// ExecState says how far a command is.
type ExecState string

// The states of a command.
const (
	// ExecRunning: it has not ended.
	ExecRunning ExecState = "running"
	// ExecExited: it ended, by itself, by a signal or by its timeout.
	ExecExited ExecState = "exited"
	// ExecLost: the agent was started anew while it ran, and did not see its end.
	ExecLost ExecState = "lost"
)

// Exec is a command in a VM. It is known for a day after its end.
type Exec struct {
	// ID is "exec-" and a uuid.
	ID string `json:"id"`
	// Command is the beginning of the command's text, up to 256 bytes.
	Command string `json:"command"`
	// LinuxUser is the account that was asked for; empty means the default.
	LinuxUser string `json:"linuxUser"`
	// State says how far it is.
	State ExecState `json:"state"`
	// PID is the shell's process id in the guest, and the id of its session.
	PID int `json:"pid"`
	// StatusCode is the exit status, or 128 and the signal's number; null while
	// it runs and if the timeout killed it.
	StatusCode *int `json:"statusCode"`
	// TimedOut is true if the timeout killed the command.
	TimedOut bool `json:"timedOut,omitempty"`
	// OOMKilled is true if the guest's kernel killed one of the command's
	// processes for want of memory.
	OOMKilled bool `json:"oomKilled,omitempty"`
	// OOMProcess is the name of the process that was killed.
	OOMProcess string `json:"oomProcess,omitempty"`
	// StartedAt and EndedAt are by the guest's clock.
	StartedAt time.Time  `json:"startedAt"`
	EndedAt   *time.Time `json:"endedAt,omitempty"`
	// StdoutBytes and StderrBytes are what it has written so far.
	StdoutBytes int64 `json:"stdoutBytes"`
	StderrBytes int64 `json:"stderrBytes"`
	// StdoutFrom and StderrFrom are where the output that is kept begins.
	StdoutFrom int64 `json:"stdoutFrom"`
	StderrFrom int64 `json:"stderrFrom"`
	// StdinBytes is how much input it was given, and StdinOpen tells whether it
	// takes more.
	StdinBytes int64 `json:"stdinBytes"`
	StdinOpen  bool  `json:"stdinOpen,omitempty"`
}

// ExecList is the answer to GET /v5/vms/{id}/exec.
type ExecList struct {
	// Execs is newest first.
	Execs []Exec `json:"execs"`
	// TotalCount is the length of the list.
	TotalCount int `json:"totalCount"`
}

// ExecEventType says what a line of a command's stream is.
type ExecEventType string

// The types of lines.
const (
	// EventExec: the command, in the field exec. The first line is one, and so is
	// the last if the command has ended.
	EventExec ExecEventType = "exec"
	// EventOutput: a piece of output.
	EventOutput ExecEventType = "output"
	// EventPing: nothing has happened for some seconds.
	EventPing ExecEventType = "ping"
	// EventError: the stream broke off; the command may still run.
	EventError ExecEventType = "error"
)

// ExecStream is one of a command's two outputs.
type ExecStream string

// The outputs of a command.
const (
	// StreamStdout is the standard output.
	StreamStdout ExecStream = "stdout"
	// StreamStderr is the standard error.
	StreamStderr ExecStream = "stderr"
)

// ExecEvent is a line of a command's stream.
type ExecEvent struct {
	// Type says which of the fields are set.
	Type ExecEventType `json:"type"`
	// Exec is set in lines of type exec.
	Exec *Exec `json:"exec,omitempty"`
	// Stream is set in lines of type output.
	Stream ExecStream `json:"stream,omitempty"`
	// Seq numbers the pieces of both outputs in the order in which they were
	// read, from 1. A stream that broke off is continued at the last one plus 1.
	Seq int64 `json:"seq,omitempty"`
	// Offset is the place of the piece in its output, in bytes.
	Offset int64 `json:"offset,omitempty"`
	// Text is the output if it is UTF-8.
	Text string `json:"text,omitempty"`
	// Data is the output in base64 if it is not UTF-8.
	Data []byte `json:"data,omitempty"`
	// Error is set in lines of type error.
	Error *Error `json:"error,omitempty"`
}

// SignalRequest is the body of the signal calls.
type SignalRequest struct {
	// Signal is a name such as "TERM" or "SIGINT", or a number.
	Signal string `json:"signal"`
}

// Process is a process in a VM.
type Process struct {
	// PID is its process id in the guest, ParentPID that of its parent.
	PID       int `json:"pid"`
	ParentPID int `json:"ppid"`
	// User is the name of its account, or the uid if that has no name.
	User string `json:"user"`
	// State is running, sleeping, waiting (for a disk), stopped, zombie or idle.
	State string `json:"state"`
	// CPUTimeMs is the processor time that it has used, in milliseconds.
	CPUTimeMs int64 `json:"cpuTimeMs"`
	// RSSBytes is its resident memory, in bytes.
	RSSBytes int64 `json:"rssBytes"`
	// StartedAt is by the guest's clock.
	StartedAt time.Time `json:"startedAt"`
	// Command is the command line, up to 4 KiB, or the name in brackets.
	Command string `json:"command"`
	// ExecID is the command that it belongs to; null if there is none.
	ExecID *string `json:"execId"`
}

// ProcessList is the answer to GET /v5/vms/{id}/processes.
type ProcessList struct {
	// Processes is in no order; kernel threads are left out.
	Processes []Process `json:"processes"`
}
