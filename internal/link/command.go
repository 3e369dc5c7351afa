package link

import (
	"encoding/binary"
	"fmt"
	"io"
)

// The paths of the requests about commands and processes. Each request begins
// with a FrameOrder (PathStart) or a FrameRef (all others), and is answered by
// FrameRefused or as said here.
const (
	// PathStart starts a command and follows it: FrameInfo, FrameOutput in any
	// amount, FrameInfo.
	PathStart = "/exec/start"
	// PathOutput follows a command; the answer is like that of PathStart, and
	// ends without the second FrameInfo unless following was asked for.
	PathOutput = "/exec/output"
	// PathFeed takes FrameStdin in any amount and FrameStdinEnd, and answers
	// FrameInfo once the command has taken all of it.
	PathFeed = "/exec/stdin"
	// PathSignal and PathInfo answer FrameInfo, PathList one for each command,
	// newest first.
	PathSignal = "/exec/signal"
	PathInfo   = "/exec/info"
	PathList   = "/exec/list"
	// PathForget answers FrameReply.
	PathForget = "/exec/forget"
	// PathProcesses answers a FrameProcess for each process, then FrameReply, and
	// PathKill FrameReply.
	PathProcesses = "/processes"
	PathKill      = "/processes/signal"
)

// The frames of those requests. Numbers mean something only together with the
// path of the request, and within it they never change.
const (
	FrameRef     FrameType = 5
	FrameOutput  FrameType = 22
	FrameInfo    FrameType = 23
	FrameProcess FrameType = 24
)

// MaxOrder bounds the payload of a FrameOrder: a command and an environment of
// about a MiB each. Orders up to MaxFrame are understood by every agent.
const MaxOrder = 2 << 20

// NewOrderReader returns a reader that takes frames of up to MaxOrder.
func NewOrderReader(r io.Reader) *FrameReader { return &FrameReader{r: r, limit: MaxOrder} }

// The streams that a FrameOutput names.
const (
	Stdout byte = 1
	Stderr byte = 2
)

// OutputHeader is the length of what a FrameOutput has before the output itself:
// stream[1] seq[8] offset[8].
const OutputHeader = 17

// Output is a piece of a command's output.
type Output struct {
	// Stream is Stdout or Stderr.
	Stream byte
	// Seq counts the pieces of both streams from 1, and Offset is the place of
	// Data in its stream. A jump of either means that something was not kept.
	Seq, Offset int64
	Data        []byte
}

// AppendOutput appends a whole FrameOutput to b.
func AppendOutput(b []byte, o Output) []byte {
	b = append(b, byte(FrameOutput))
	b = binary.BigEndian.AppendUint32(b, uint32(OutputHeader+len(o.Data)))
	b = append(b, o.Stream)
	b = binary.BigEndian.AppendUint64(b, uint64(o.Seq))
	b = binary.BigEndian.AppendUint64(b, uint64(o.Offset))
	return append(b, o.Data...)
}

// ParseOutput parses the payload of a FrameOutput, to which Data refers.
func ParseOutput(payload []byte) (Output, error) {
	if len(payload) < OutputHeader {
		return Output{}, fmt.Errorf("read output of %d bytes: %w", len(payload), ErrFrame)
	}
	o := Output{
		Stream: payload[0], Seq: int64(binary.BigEndian.Uint64(payload[1:])),
		Offset: int64(binary.BigEndian.Uint64(payload[9:])), Data: payload[OutputHeader:],
	}
	if o.Stream != Stdout && o.Stream != Stderr || o.Seq < 1 || o.Offset < 0 || o.Offset+int64(len(o.Data)) < 0 {
		return Output{}, fmt.Errorf("read output: %w", ErrFrame)
	}
	return o, nil
}

// Ref names a command, or a process, and says what is wanted of it.
type Ref struct {
	ID string
	// Stream of 0 means both, from the piece Seq on; else it is one, from Offset on.
	// For PathFeed, Offset is the place of the input, -1 for its end.
	Stream int
	Offset int64
	Seq    int64
	// Wait asks for what is yet to come.
	Wait bool
	// Close ends the input.
	Close  bool
	Signal int
	PID    int
}

const (
	refID = iota + 1
	refStream
	refOffset
	refSeq
	refWait
	refClose
	refSignal
	refPID
)

// MarshalBinary encodes r as a record. It never fails.
func (r Ref) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.text(refID, r.ID)
	enc.int(refStream, int64(r.Stream))
	enc.int(refOffset, r.Offset)
	enc.int(refSeq, r.Seq)
	enc.flag(refWait, r.Wait)
	enc.flag(refClose, r.Close)
	enc.int(refSignal, int64(r.Signal))
	enc.int(refPID, int64(r.PID))
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (r *Ref) UnmarshalBinary(b []byte) error {
	*r = Ref{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case refID:
			r.ID = d.text()
		case refStream:
			r.Stream = int(d.int())
		case refOffset:
			r.Offset = d.int()
		case refSeq:
			r.Seq = d.int()
		case refWait:
			r.Wait = d.flag()
		case refClose:
			r.Close = d.flag()
		case refSignal:
			r.Signal = int(d.int())
		case refPID:
			r.PID = int(d.int())
		}
	}
	if d.err != nil {
		return fmt.Errorf("decode reference: %w", d.err)
	}
	return nil
}

// The states of a command.
const (
	ExecRunning = iota + 1
	ExecExited
	// ExecLost: the agent was started anew while it ran.
	ExecLost
)

// Info is what the agent knows of a command, as FrameInfo carries it.
type Info struct {
	ID string
	// Command is the beginning of its text.
	Command, User string
	PID           int
	State         int
	// Exit is set once State is ExecExited; its byte counts are current always.
	Exit Exit
	// Started and Ended are Unix nanoseconds; Ended is 0 while it runs.
	Started, Ended int64
	// StdoutFrom and StderrFrom are where the output that is still kept begins.
	StdoutFrom, StderrFrom int64
	StdinBytes             int64
	StdinOpen              bool
	// LogStart, LogEnd, LogSeq and LogRing say where in its file the output is,
	// for the agent itself: positions of the first byte and the end, the number
	// of the first piece, and the length of the ring.
	LogStart, LogEnd, LogSeq, LogRing int64
}

const (
	infoID = iota + 1
	infoCommand
	infoUser
	infoPID
	infoState
	infoExit
	infoStarted
	infoEnded
	infoStdoutFrom
	infoStderrFrom
	infoStdinBytes
	infoStdinOpen
	infoLogStart
	infoLogEnd
	infoLogSeq
	infoLogRing
)

// MarshalBinary encodes i as a record. It never fails.
func (i Info) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.text(infoID, i.ID)
	enc.text(infoCommand, i.Command)
	enc.text(infoUser, i.User)
	enc.int(infoPID, int64(i.PID))
	enc.int(infoState, int64(i.State))
	exit, _ := i.Exit.MarshalBinary()
	enc.bytes(infoExit, exit)
	enc.int(infoStarted, i.Started)
	enc.int(infoEnded, i.Ended)
	enc.int(infoStdoutFrom, i.StdoutFrom)
	enc.int(infoStderrFrom, i.StderrFrom)
	enc.int(infoStdinBytes, i.StdinBytes)
	enc.flag(infoStdinOpen, i.StdinOpen)
	enc.int(infoLogStart, i.LogStart)
	enc.int(infoLogEnd, i.LogEnd)
	enc.int(infoLogSeq, i.LogSeq)
	enc.int(infoLogRing, i.LogRing)
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (i *Info) UnmarshalBinary(b []byte) error {
	*i = Info{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case infoID:
			i.ID = d.text()
		case infoCommand:
			i.Command = d.text()
		case infoUser:
			i.User = d.text()
		case infoExit:
			if err := i.Exit.UnmarshalBinary(d.value); err != nil {
				return err
			}
		case infoStdinOpen:
			i.StdinOpen = d.flag()
		default:
			i.number(&d)
		}
	}
	if d.err != nil {
		return fmt.Errorf("decode command: %w", d.err)
	}
	return nil
}

func (i *Info) number(d *decoder) {
	switch d.tag {
	case infoPID:
		i.PID = int(d.int())
	case infoState:
		i.State = int(d.int())
	case infoStarted:
		i.Started = d.int()
	case infoEnded:
		i.Ended = d.int()
	case infoStdoutFrom:
		i.StdoutFrom = d.int()
	case infoStderrFrom:
		i.StderrFrom = d.int()
	case infoStdinBytes:
		i.StdinBytes = d.int()
	case infoLogStart:
		i.LogStart = d.int()
	case infoLogEnd:
		i.LogEnd = d.int()
	case infoLogSeq:
		i.LogSeq = d.int()
	case infoLogRing:
		i.LogRing = d.int()
	}
}

// Process is a process of the guest, as FrameProcess carries it.
type Process struct {
	PID, ParentPID int
	User           string
	// State is the letter of /proc/PID/stat.
	State string
	// CPU is in nanoseconds, RSS in bytes, Started in Unix nanoseconds.
	CPU, RSS, Started int64
	Command           string
	ExecID            string
}

const (
	processPID = iota + 1
	processParentPID
	processUser
	processState
	processCPU
	processRSS
	processStarted
	processCommand
	processExecID
)

// MarshalBinary encodes p as a record. It never fails.
func (p Process) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.int(processPID, int64(p.PID))
	enc.int(processParentPID, int64(p.ParentPID))
	enc.text(processUser, p.User)
	enc.text(processState, p.State)
	enc.int(processCPU, p.CPU)
	enc.int(processRSS, p.RSS)
	enc.int(processStarted, p.Started)
	enc.text(processCommand, p.Command)
	enc.text(processExecID, p.ExecID)
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (p *Process) UnmarshalBinary(b []byte) error {
	*p = Process{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case processPID:
			p.PID = int(d.int())
		case processParentPID:
			p.ParentPID = int(d.int())
		case processUser:
			p.User = d.text()
		case processState:
			p.State = d.text()
		case processCPU:
			p.CPU = d.int()
		case processRSS:
			p.RSS = d.int()
		case processStarted:
			p.Started = d.int()
		case processCommand:
			p.Command = d.text()
		case processExecID:
			p.ExecID = d.text()
		}
	}
	if d.err != nil {
		return fmt.Errorf("decode process: %w", d.err)
	}
	return nil
}
