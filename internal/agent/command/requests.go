package command

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/agent/process"
	"github.com/pandovm/pando/internal/agent/sysfile"
	"github.com/pandovm/pando/internal/link"
)

var errUnknown = errors.New("there is no such command")

// readRef reads the reference that a request begins with.
func readRef(frames *link.FrameReader) (ref link.Ref, err error) {
	t, payload, err := frames.Next()
	if err == nil && t != link.FrameRef {
		err = link.ErrFrame
	}
	if err == nil {
		err = ref.UnmarshalBinary(payload)
	}
	if err == nil && (ref.Stream < 0 || ref.Stream > int(link.Stderr) || ref.Offset < -1 || ref.Seq < 0) {
		err = link.ErrFrame
	}
	if err != nil {
		return ref, fmt.Errorf("read request: %w", err)
	}
	return ref, nil
}

// refer reads a reference to a command and finds it, or says why not.
func (s *Service) refer(st *http2.Stream) (link.Ref, *execution, bool) {
	return s.referIn(st, link.NewFrameReader(st))
}

func (s *Service) referIn(w io.Writer, frames *link.FrameReader) (link.Ref, *execution, bool) {
	ref, err := readRef(frames)
	if err != nil {
		refuse(w, link.CauseFailed, err)
		return ref, nil, false
	}
	x := s.find(ref.ID)
	if x == nil {
		refuse(w, link.CauseUnknown, errUnknown)
	}
	return ref, x, x != nil
}

// Info serves PathInfo.
func (s *Service) Info(st *http2.Stream) {
	if _, x, ok := s.refer(st); ok {
		_, _ = st.Write(appendInfo(nil, x))
	}
}

// List serves PathList.
func (s *Service) List(st *http2.Stream) {
	if _, err := readRef(link.NewFrameReader(st)); err != nil {
		refuse(st, link.CauseFailed, err)
		return
	}
	var b []byte
	for _, x := range s.list() {
		if b = appendInfo(b, x); len(b) < blockSize {
			continue
		}
		if _, err := st.Write(b); err != nil {
			return
		}
		b = b[:0]
	}
	_, _ = st.Write(appendReply(b, nil))
}

func appendReply(b []byte, err error) []byte {
	var r link.Reply
	if err != nil {
		r.Error = err.Error()
	}
	body, _ := r.MarshalBinary()
	return link.AppendFrame(b, link.FrameReply, body)
}

// Signal serves PathSignal.
func (s *Service) Signal(st *http2.Stream) {
	ref, x, ok := s.refer(st)
	if !ok {
		return
	}
	if ref.Signal < 1 || ref.Signal > 64 {
		refuse(st, link.CauseFailed, link.ErrFrame)
		return
	}
	if err := x.signal(syscall.Signal(ref.Signal)); err != nil {
		refuse(st, link.CauseEnded, errEnded)
		return
	}
	_, _ = st.Write(appendInfo(nil, x))
}

// Forget serves PathForget.
func (s *Service) Forget(st *http2.Stream) {
	_, x, ok := s.refer(st)
	if !ok {
		return
	}
	x.kill()
	s.forget(x)
	_, _ = st.Write(appendReply(nil, nil))
}

// Feed serves PathFeed.
func (s *Service) Feed(st *http2.Stream) {
	frames := link.NewFrameReader(st)
	ref, x, ok := s.referIn(st, frames)
	if !ok {
		return
	}
	if err := x.in.feed(frames, ref.Offset, st.Done()); err != nil {
		cause := link.CauseFailed
		switch {
		case errors.Is(err, errOffset):
			cause = link.CauseOffset
		case errors.Is(err, errInputClosed):
			cause = link.CauseEnded
		}
		refuse(st, cause, err)
		return
	}
	if ref.Close {
		x.in.close()
	}
	_, _ = st.Write(appendInfo(nil, x))
}

// feed writes what frames bring until their end. What was written before the
// frames broke off counts.
func (in *input) feed(frames *link.FrameReader, offset int64, done <-chan struct{}) error {
	skip, err := in.begin(offset, done)
	if err != nil {
		return err
	}
	defer in.end()
	defer in.watch(done)()
	for {
		t, payload, err := frames.Next()
		if err != nil || t == link.FrameStdinEnd {
			return err
		}
		if t != link.FrameStdin {
			continue
		}
		n := min(skip, int64(len(payload)))
		skip -= n
		if payload = payload[n:]; len(payload) == 0 {
			continue
		}
		if err := in.write(payload); err != nil {
			return err
		}
	}
}

// Processes serves PathProcesses.
func (s *Service) Processes(st *http2.Stream) {
	if _, err := readRef(link.NewFrameReader(st)); err != nil {
		refuse(st, link.CauseFailed, err)
		return
	}
	table, err := process.Table()
	if err != nil {
		_, _ = st.Write(appendReply(nil, err))
		return
	}
	owners := s.owners(table)
	users := map[uint32]string{}
	booted := bootTime()
	var b []byte
	for _, e := range table {
		if e.Kernel {
			continue
		}
		p := s.describe(e, users, booted)
		if x := owners(e.PID); x != nil {
			p.ExecID = x.id
		}
		body, _ := p.MarshalBinary()
		if b = link.AppendFrame(b, link.FrameProcess, body); len(b) < blockSize {
			continue
		}
		if _, err := st.Write(b); err != nil {
			return
		}
		b = b[:0]
	}
	_, _ = st.Write(appendReply(b, nil))
}

// tick is the unit of times in /proc.
const tick = time.Second / 100

func (s *Service) describe(e process.Entry, users map[uint32]string, booted time.Time) link.Process {
	p := link.Process{
		PID: e.PID, ParentPID: e.Parent, State: string(e.State), CPU: e.CPU * int64(tick), RSS: e.RSS,
		Started: booted.Add(time.Duration(e.Start) * tick).UnixNano(), Command: commandLine(e),
	}
	if info, err := sysfile.Stat("/proc/"+strconv.Itoa(e.PID), true); err == nil {
		name, ok := users[info.Uid]
		if !ok {
			name = s.Accounts.Name(info.Uid)
			users[info.Uid] = name
		}
		p.User = name
	}
	return p
}

// maxCommandLine bounds what is shown of a command line.
const maxCommandLine = 4 << 10

func commandLine(e process.Entry) string {
	b, _ := sysfile.ReadUpTo("/proc/"+strconv.Itoa(e.PID)+"/cmdline", maxCommandLine)
	line := strings.TrimRight(string(b), "\x00")
	if line == "" {
		return "[" + e.Name + "]"
	}
	return strings.ReplaceAll(line, "\x00", " ")
}

func bootTime() time.Time {
	var since unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &since) != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(since.Nano()))
}

// owners returns a function that finds the command of a process. A session whose
// leader is alive although its command has ended is somebody else's: numbers
// come round.
func (s *Service) owners(table []process.Entry) func(pid int) *execution {
	commands := s.sessions()
	alive := map[int]bool{}
	for _, e := range table {
		alive[e.PID] = true
	}
	b := process.NewBelonging(table, func(session int, _ process.Entry) bool {
		x := commands[session]
		return x != nil && (x.isRunning() || !alive[session])
	})
	return func(pid int) *execution { return commands[b.Leader(pid)] }
}

// Kill serves PathKill.
func (s *Service) Kill(st *http2.Stream) {
	ref, err := readRef(link.NewFrameReader(st))
	if err == nil && (ref.PID < 1 || ref.Signal < 1 || ref.Signal > 64) {
		err = link.ErrFrame
	}
	if err != nil {
		refuse(st, link.CauseFailed, err)
		return
	}
	err = syscall.Kill(ref.PID, syscall.Signal(ref.Signal))
	if errors.Is(err, syscall.ESRCH) {
		refuse(st, link.CauseUnknown, errors.New("there is no such process"))
		return
	}
	_, _ = st.Write(appendReply(nil, err))
}
