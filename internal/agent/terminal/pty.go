package terminal

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// pty is a pseudo-terminal; the slave is for the program.
type pty struct {
	master *os.File
	raw    syscall.RawConn
	slave  int
}

// openPTY opens a pseudo-terminal that belongs to uid.
func openPTY(uid, cols, rows int) (*pty, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	t := &pty{master: os.NewFile(uintptr(fd), "ptmx"), slave: -1}
	if t.raw, err = t.master.SyscallConn(); err == nil {
		err = t.prepare(fd, uid, cols, rows)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up terminal: %w", err), t.closeSlave(), t.master.Close())
	}
	return t, nil
}

func (t *pty) prepare(fd, uid, cols, rows int) error {
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return err
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return err
	}
	name := "/dev/pts/" + strconv.Itoa(n)
	if t.slave, err = unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	// As login does it: the user's own, and others may write with wall at most.
	if err := errors.Join(unix.Fchown(t.slave, uid, -1), unix.Fchmod(t.slave, 0o620)); err != nil {
		return err
	}
	modes, err := unix.IoctlGetTermios(t.slave, unix.TCGETS)
	if err != nil {
		return err
	}
	modes.Iflag |= unix.IUTF8
	if err := unix.IoctlSetTermios(t.slave, unix.TCSETS, modes); err != nil {
		return err
	}
	return setSize(fd, cols, rows)
}

func setSize(fd, cols, rows int) error {
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(cols), Row: uint16(rows)})
}

func (t *pty) closeSlave() error {
	if t.slave < 0 {
		return nil
	}
	err := unix.Close(t.slave)
	t.slave = -1
	return err
}

// resize tells the program, by SIGWINCH.
func (t *pty) resize(cols, rows int) error {
	var err error
	return errors.Join(t.raw.Control(func(fd uintptr) { err = setSize(int(fd), cols, rows) }), err)
}

// foreground returns the process group that has the terminal.
func (t *pty) foreground() (int, error) {
	var group int
	var err error
	ctlErr := t.raw.Control(func(fd uintptr) { group, err = unix.IoctlGetInt(int(fd), unix.TIOCGPGRP) })
	if err = errors.Join(ctlErr, err); err != nil {
		return 0, err
	}
	if group <= 1 {
		return 0, errors.New("nothing runs in the foreground")
	}
	return group, nil
}

// writeNow writes as much as fits without waiting.
func (t *pty) writeNow(p []byte) int {
	n := 0
	_ = t.raw.Write(func(fd uintptr) bool {
		for {
			var err error
			if n, err = syscall.Write(int(fd), p); !errors.Is(err, syscall.EINTR) {
				return true
			}
		}
	})
	return max(n, 0)
}
