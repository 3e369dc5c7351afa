package command

import (
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/pandovm/pando/internal/agent/process"
	"github.com/pandovm/pando/internal/link"
)

// shownCommand is how much of a command's text is kept in its record.
const shownCommand = 256

// execution is a command that was started.
type execution struct {
	id, text, user string
	started        time.Time
	out            *transcript
	in             *input
	pid            int
	process        *process.Process
	group          Group
	outputs        [2]*output
	// ended is closed when exit is final and all output is in the transcript.
	ended chan struct{}

	mu sync.Mutex
	// reaped: from now on the pid may be another process's.
	reaped bool
	state  int
	exit   link.Exit
	end    time.Time
	// recorded is the state that the file of records has.
	recorded int
}

// launch starts c, whose order is o.
func (s *Service) launch(c *process.Command, o *link.Order, stdin []byte, rolling bool) (*execution, error) {
	x := &execution{
		id: o.ID, text: o.Command[:min(len(o.Command), shownCommand)], user: o.User,
		started: time.Now(), ended: make(chan struct{}), state: link.ExecRunning,
		out: newTranscript(s.disk(), o.ID, rolling),
	}
	err := x.connect(c, s, stdin, o.OpenStdin)
	if err == nil {
		x.process, err = s.Spawner.Start(c)
		closeAll(c.Files[:])
	}
	closeAll(c.Extra)
	if err != nil {
		x.abandon()
		return nil, err
	}
	x.pid = x.process.PID
	if written, open := x.in.state(); open && int(written) < len(stdin) {
		x.in.turn <- struct{}{}
		go x.in.first(stdin[written:], !o.OpenStdin)
	}
	for _, out := range x.outputs {
		go out.run()
	}
	go s.attend(x, o.Timeout)
	return x, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = syscall.Close(fd)
	}
}

// connect opens the descriptors of c and our ends of them.
func (x *execution) connect(c *process.Command, s *Service, stdin []byte, open bool) (err error) {
	if x.in, c.Files[0], err = newInput(stdin, open); err != nil {
		return err
	}
	for i := range x.outputs {
		if x.outputs[i], c.Files[i+1], err = newOutput(i, x.out, &s.pieces); err != nil {
			closeAll(c.Files[:i+1])
			return err
		}
	}
	if s.Cgroups == nil {
		return nil
	}
	if x.group = s.Cgroups.Make(); x.group != nil {
		c.Cgroup, c.InCgroup = x.group.FD(), true
	}
	return nil
}

// abandon gives back what a command has that did not start.
func (x *execution) abandon() {
	for _, out := range x.outputs {
		if out != nil {
			_ = out.file.Close()
		}
	}
	if x.in != nil {
		x.in.close()
	}
	if x.group != nil {
		x.group.Release()
	}
}

// attend waits for the command, ends it when its time is up, and settles its
// outcome once all that it wrote has been read.
func (s *Service) attend(x *execution, timeout time.Duration) {
	var exit link.Exit
	if x.process.Await(timeout) {
		x.mu.Lock()
		x.reaped = true
		exit.Code = x.process.Reap()
		x.mu.Unlock()
	} else {
		exit.TimedOut = true
		x.terminate()
	}
	x.in.close()
	for _, out := range x.outputs {
		out.stop()
	}
	for _, out := range x.outputs {
		<-out.settled
	}
	if x.group != nil {
		exit.OOMKilled, exit.OOMProcess = x.group.OOM()
		x.group.Release()
	}
	x.settle(exit)
	s.changed(x)
}

// terminate ends all processes of the command.
func (x *execution) terminate() {
	x.out.hurry()
	x.mu.Lock()
	x.reaped = true
	x.mu.Unlock()
	x.process.Terminate()
	if x.group != nil {
		x.group.Kill()
	}
}

func (x *execution) settle(exit link.Exit) {
	x.mu.Lock()
	x.exit, x.state, x.end = exit, link.ExecExited, time.Now()
	x.mu.Unlock()
	close(x.ended)
	x.out.finish()
}

var errEnded = errors.New("the command does not run any more")

// signal signals the process group; what KILL spares is killed as well.
func (x *execution) signal(sig syscall.Signal) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.reaped || x.state != link.ExecRunning {
		return errEnded
	}
	if sig == syscall.SIGKILL {
		// The one who attends notices the end of the process and reaps it.
		x.process.KillFamily()
		if x.group != nil {
			x.group.Kill()
		}
		return nil
	}
	return x.process.Signal(sig)
}

// endPatience is how long kill waits: a process that hangs in the kernel may
// take for ever.
const endPatience = 5 * time.Second

// kill ends the command and returns once it has ended.
func (x *execution) kill() {
	x.out.hurry()
	_ = x.signal(syscall.SIGKILL)
	select {
	case <-x.ended:
	case <-time.After(endPatience):
	}
}

// info is what is known of the command now.
func (x *execution) info() link.Info {
	x.mu.Lock()
	i := link.Info{
		ID: x.id, Command: x.text, User: x.user, PID: x.pid, Started: x.started.UnixNano(), State: x.state, Exit: x.exit,
	}
	if !x.end.IsZero() {
		i.Ended = x.end.UnixNano()
	}
	x.mu.Unlock()
	x.out.describe(&i)
	i.StdinBytes, i.StdinOpen = x.in.state()
	return i
}

func (x *execution) isRunning() bool { return x.stateNow() == link.ExecRunning }

func (x *execution) stateNow() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.state
}

func (x *execution) endedAt() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.end
}
