package upgrade

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guardPoll is how often the guard looks whether the trial is over.
const guardPoll = 200 * time.Millisecond

// GuardFlag is the argument that makes the agent's program a guard; the
// patience follows it.
const GuardFlag = "--guard"

// Exec returns a Takeover for an agent whose own program is file: it starts the
// guard, in the agent's own cgroup and as little likely to be killed as itself,
// and runs file with the arguments and environment of this process.
func Exec(file string) func(time.Duration) error {
	return func(patience time.Duration) error {
		guard := exec.Command( //nolint:noctx // it outlives whoever starts it
			file+".old", GuardFlag, patience.String(),
		)
		guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := guard.Start(); err != nil {
			return fmt.Errorf("start guard: %w", err)
		}
		err := replaceProcess(file)
		// The guard ends when it finds that there is nothing to guard.
		go func() { _ = guard.Wait() }()
		return err
	}
}

func replaceProcess(file string) error {
	// Nothing may be half-way through a fork.
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	if err := syscall.Exec(file, os.Args, os.Environ()); err != nil { //nolint:gosec // what has just been checked
		return fmt.Errorf("run new agent: %w", err)
	}
	return nil
}

// Guard waits until the new agent is found good, for as long as patience. Then it
// brings the old one back: it is the program of the old one.
func (s *Service) Guard(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(guardPoll)
	defer tick.Stop()
	for {
		if unix.Access(s.Mark, unix.F_OK) != nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if err := s.Revert(); err != nil {
				return fmt.Errorf("bring the old agent back: %w", err)
			}
			return killAll(s.File)
		}
	}
}

// killAll ends all other processes whose program was file before another took
// its place.
func killAll(file string) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("find the new agent: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		exe, err := os.Readlink("/proc/" + e.Name() + "/exe")
		if err == nil && strings.TrimSuffix(exe, " (deleted)") == file {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return nil
}
