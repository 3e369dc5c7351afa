package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent/sysfile"
)

// settleWait is how long Settled waits at most.
const settleWait = 5 * time.Second

// Machine is the System that the agent runs on: the real one.
type Machine struct {
	// Root is the folder under which the machine's files are; empty but in tests.
	Root string
}

// Now reads the wall clock.
func (m *Machine) Now() time.Time { return time.Now() }

// SetClock sets the wall clock.
func (m *Machine) SetClock(t time.Time) error {
	ts, err := unix.TimeToTimespec(t)
	if err == nil {
		err = unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
	}
	if err != nil {
		return fmt.Errorf("set clock: %w", err)
	}
	return nil
}

// Reseed credits entropy to the kernel's pool and has all of its generators
// start again from there.
func (m *Machine) Reseed(entropy []byte) error {
	if len(entropy) < 32 {
		return fmt.Errorf("reseed: %d bytes of entropy, want 32 or more", len(entropy))
	}
	fd, err := sysfile.Open("/dev/urandom", unix.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("reseed: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	// struct rand_pool_info { int entropy_count /* bits */; int buf_size; __u32 buf[]; }
	info := binary.NativeEndian.AppendUint32(nil, uint32(len(entropy)*8))
	info = binary.NativeEndian.AppendUint32(info, uint32(len(entropy)))
	info = append(info, entropy...)
	if err := ioctl(fd, unix.RNDADDENTROPY, unsafe.Pointer(&info[0])); err != nil {
		return fmt.Errorf("add entropy: %w", err)
	}
	if err := ioctl(fd, unix.RNDRESEEDCRNG, nil); err != nil {
		return fmt.Errorf("reseed: %w", err)
	}
	return nil
}

func ioctl(fd int, request uint, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// KernelRelease returns what uname -r prints.
func (m *Machine) KernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// Sync writes all file systems out.
func (m *Machine) Sync() { unix.Sync() }

// Settled asks systemd. A machine without it is always settled.
func (m *Machine) Settled(ctx context.Context) (bool, string, []string, error) {
	if !m.hasSystemd() {
		return true, "running", nil, nil
	}
	out, err := systemctl(ctx, "is-system-running", "--wait")
	if err != nil {
		return false, "", nil, err
	}
	state := strings.TrimSpace(out)
	switch state {
	case "running":
		return true, state, nil, nil
	case "degraded":
		failed, err := m.failedUnits(ctx)
		return true, state, failed, err
	case "":
		state = "starting" // still waiting when the time was up
	}
	return false, state, nil, nil
}

func (m *Machine) failedUnits(ctx context.Context) ([]string, error) {
	out, err := systemctl(ctx, "list-units", "--failed", "--plain", "--no-legend")
	if err != nil {
		return nil, err
	}
	var units []string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 0 {
			units = append(units, f[0])
		}
	}
	return units, nil
}

// systemctl returns what the command printed. Its exit status says nothing that
// the output does not; when the time is up, there is none.
func systemctl(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", args...).Output()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		return "", fmt.Errorf("run systemctl: %w", err)
	}
	return string(out), nil
}

// Poweroff has systemd shut down in order; without it, it writes the file
// systems out and switches the machine off.
func (m *Machine) Poweroff(ctx context.Context) error {
	if m.hasSystemd() {
		_, err := systemctl(ctx, "poweroff", "--no-block")
		return err
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		return fmt.Errorf("power off: %w", err)
	}
	return nil
}

func (m *Machine) hasSystemd() bool {
	return sysfile.IsDir(m.path("run/systemd/system"))
}

func (m *Machine) path(name string) string { return m.Root + "/" + name }
