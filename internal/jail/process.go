package jail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Process identifies a process across restarts of the daemon: a pid alone may
// belong to another process tomorrow.
type Process struct {
	PID int `json:"pid"`
	// StartTime is in clock ticks since the host started (field 22 of
	// /proc/PID/stat).
	StartTime uint64 `json:"startTime"`
}

// Exit is how a process ended.
type Exit struct {
	// Known is false if the process was not this daemon's child, or another
	// waiter took its status.
	Known bool
	Code  int
	// Signal is what killed it; 0 if it exited by itself.
	Signal unix.Signal
}

// String is for people: "exited with status 1", "was killed (signal 9)".
func (e Exit) String() string {
	switch {
	case !e.Known:
		return "ended"
	case e.Signal != 0:
		return fmt.Sprintf("was killed (signal %d)", int(e.Signal))
	default:
		return fmt.Sprintf("exited with status %d", e.Code)
	}
}

// FindProcess returns the identity of the process that has pid now.
func FindProcess(pid int) (Process, error) {
	start, _, err := stat(pid)
	if err != nil {
		return Process{}, fmt.Errorf("find process %d: %w", pid, err)
	}
	return Process{PID: pid, StartTime: start}, nil
}

// Alive reports whether the process still runs. One that has ended but was not
// waited for is not alive.
func (p Process) Alive() bool {
	start, state, err := stat(p.PID)
	return err == nil && start == p.StartTime && state != 'Z' && state != 'X'
}

// present reports whether the process runs, or ended and was not waited for.
func (p Process) present() bool {
	start, _, err := stat(p.PID)
	return err == nil && start == p.StartTime
}

// Kill ends the process at once; one that is gone already is success. It does
// not wait.
func (p Process) Kill() error { return p.Signal(unix.SIGKILL) }

// Signal sends sig; a process that is gone already is success.
func (p Process) Signal(sig unix.Signal) error {
	fd, err := p.open()
	if err != nil || fd == nil {
		return err
	}
	defer fd.Close() //nolint:errcheck // nothing was written
	err = control(fd, func(fd int) error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// Wait returns when the process has ended, child or not, or with the context's
// error. A child is reaped.
func (p Process) Wait(ctx context.Context) error {
	_, err := p.WaitExit(ctx)
	return err
}

// WaitExit is Wait that also says how a child ended. Of several waiters one
// gets to know.
func (p Process) WaitExit(ctx context.Context) (Exit, error) {
	fd, err := p.open()
	if err != nil || fd == nil {
		return Exit{}, err
	}
	defer fd.Close() //nolint:errcheck // nothing was written
	if err := awaitReadable(ctx, fd); err != nil {
		return Exit{}, fmt.Errorf("wait for process %d: %w", p.PID, err)
	}
	return reap(fd)
}

// open returns a pidfd of the process, or nil if it is gone.
func (p Process) open() (*os.File, error) {
	if p.PID <= 0 {
		return nil, fmt.Errorf("process id %d is not valid", p.PID)
	}
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // EINVAL: a thread has the number now
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", p.PID, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	// Compared after the pidfd was taken: from here on the number is pinned.
	if !p.present() {
		return nil, f.Close()
	}
	return f, nil
}

// awaitReadable blocks until the process behind fd has ended.
func awaitReadable(ctx context.Context, f *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var pollErr error
	err = raw.Read(func(fd uintptr) bool {
		var ready bool
		ready, pollErr = readable(int(fd))
		return ready || pollErr != nil
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.Cause(ctx)
	}
	return errors.Join(pollErr, err)
}

func readable(fd int) (bool, error) {
	set := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(set, 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0, err
		}
	}
}

// reap takes the status of an ended process if it is our child.
func reap(f *os.File) (Exit, error) {
	var info childInfo
	err := control(f, func(fd int) error {
		for {
			err := unix.Waitid(unix.P_PIDFD, fd, info.siginfo(), unix.WEXITED|unix.WNOHANG, nil)
			if !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	})
	if errors.Is(err, unix.ECHILD) {
		return Exit{}, nil
	}
	if err != nil {
		return Exit{}, fmt.Errorf("reap: %w", err)
	}
	return info.exit(), nil
}

func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = do(int(fd)) })
	return errors.Join(failed, err)
}

// stat reads start time and state of a process. The name in parentheses may
// hold anything, so fields are counted from its last parenthesis.
func stat(pid int) (start uint64, state byte, err error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	return parseStat(line)
}

func parseStat(line []byte) (start uint64, state byte, err error) {
	end := bytes.LastIndexByte(line, ')')
	if end < 0 {
		return 0, 0, errors.New("stat without a name")
	}
	fields := bytes.Fields(line[end+1:])
	const startField = 22 - 3 // the first field after the name is number 3
	if len(fields) <= startField {
		return 0, 0, errors.New("stat is too short")
	}
	start, err = strconv.ParseUint(string(fields[startField]), 10, 64)
	return start, fields[0][0], err
}
