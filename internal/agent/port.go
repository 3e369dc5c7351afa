package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// portPoll is how often OpenPort looks for a port that is not there yet.
	portPoll = 20 * time.Millisecond
	// hostPollMin and hostPollMax bound the time between two looks for a host.
	hostPollMin = 10 * time.Millisecond
	hostPollMax = 500 * time.Millisecond
)

// OpenPort opens the virtio-serial port called name, waiting for the kernel to
// find the device until ctx is done.
func OpenPort(ctx context.Context, name string) (Port, error) {
	tick := time.NewTicker(portPoll)
	defer tick.Stop()
	for {
		path, err := findPort("/", name)
		if err == nil {
			return openPort(path)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("open port %s: %w", name, errors.Join(err, ctx.Err()))
		case <-tick.C:
		}
	}
}

// findPort returns the device file of the port. It goes by sysfs, which is
// there without udev, and makes the file if nobody else has.
func findPort(root, name string) (string, error) {
	names, err := filepath.Glob(filepath.Join(root, "sys/class/virtio-ports/*/name"))
	if err != nil {
		return "", fmt.Errorf("list ports: %w", err)
	}
	for _, n := range names {
		text, err := os.ReadFile(n)
		if err != nil || strings.TrimSpace(string(text)) != name {
			continue
		}
		dir := filepath.Dir(n)
		path := filepath.Join(root, "dev", filepath.Base(dir))
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return path, makeDevice(path, filepath.Join(dir, "dev"))
		}
		return path, nil
	}
	return "", os.ErrNotExist
}

// makeDevice makes the character device whose numbers are in the file dev.
func makeDevice(path, dev string) error {
	text, err := os.ReadFile(dev)
	if err != nil {
		return fmt.Errorf("make device: %w", err)
	}
	major, minor, _ := strings.Cut(strings.TrimSpace(string(text)), ":")
	ma, err1 := strconv.ParseUint(major, 10, 32)
	mi, err2 := strconv.ParseUint(minor, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("make device: %w", err)
	}
	err = unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(uint32(ma), uint32(mi))))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make device: %w", err)
	}
	return nil
}

func openPort(path string) (*devicePort, error) {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open port: %w", err)
	}
	return newDevicePort(f)
}

func newDevicePort(f *os.File) (*devicePort, error) {
	raw, err := f.SyscallConn()
	if err == nil {
		err = f.SetDeadline(time.Time{}) // fails if the device cannot be polled
	}
	if err != nil {
		return nil, fmt.Errorf("open port: %w", errors.Join(err, f.Close()))
	}
	return &devicePort{File: f, raw: raw}, nil
}

// devicePort is a Port on a virtio-serial device.
//
// While no host is connected the device answers every read with end of file at
// once, and is readable all that time as far as poll is concerned. But it wakes
// its waiters when a host connects, and the runtime's poller is edge-triggered:
// so waiting for the next edge waits for a host without spinning. The slow look
// now and then is for the edge that came a moment too early.
type devicePort struct {
	*os.File
	raw syscall.RawConn
	// connected tells that the last read did not say that there is no host.
	connected bool
}

// hangupSettle is how long the device must say that there is no host until it
// is believed. When one host leaves and the next comes at once, bytes of the
// next may arrive before the guest has heard of either: the end of file that it
// reads then is the first host's, and must not end the session of the second.
const hangupSettle = 250 * time.Millisecond

// Read implements Port.
func (p *devicePort) Read(b []byte) (int, error) {
	pause := hostPollMin
	var since time.Time
	for {
		n, err := p.receive(b)
		if n > 0 || !errors.Is(err, io.EOF) {
			p.connected = true
			return n, err
		}
		if since.IsZero() {
			since = time.Now()
		}
		if p.connected && time.Since(since) >= hangupSettle {
			p.connected = false
			return 0, io.EOF
		}
		if err := p.awaitEdge(pause); err != nil {
			return 0, fmt.Errorf("wait for a host: %w", err)
		}
		pause = min(2*pause, hostPollMax)
	}
}

// receive waits for bytes and takes all that are there, as far as b has room: the
// device hands out a page at most per call.
func (p *devicePort) receive(b []byte) (n int, err error) {
	waitErr := p.raw.Read(func(fd uintptr) bool {
		n, err = drain(fd, b)
		return n > 0 || !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case n > 0:
		return n, nil
	case waitErr != nil:
		return 0, errors.Join(os.ErrClosed, waitErr) // its own error has no exported name
	case err != nil:
		return 0, fmt.Errorf("read port: %w", err)
	}
	return 0, io.EOF
}

// drain reads fd, which never blocks, until b is full or nothing more is there.
// The calls are raw: the runtime takes one that lasts 20 µs, as under emulation
// most do, for one that waits, and its watching costs more than the call.
func drain(fd uintptr, b []byte) (int, error) {
	total := 0
	for total < len(b) {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&b[total])), uintptr(len(b)-total))
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return total, errno
		case n == 0:
			return total, nil
		default:
			total += int(n)
		}
	}
	return total, nil
}

// awaitEdge returns after d, or when the device wakes its waiters. It fails with
// os.ErrClosed only: the deadline and the raw read have no other failure on a
// file that can be polled, and their own error for it has no exported name.
func (p *devicePort) awaitEdge(d time.Duration) error {
	if err := p.SetReadDeadline(time.Now().Add(d)); err != nil {
		return errors.Join(os.ErrClosed, err)
	}
	looked := false
	err := p.raw.Read(func(uintptr) bool {
		again := looked
		looked = true
		return again
	})
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.Join(os.ErrClosed, err)
	}
	if err := p.SetReadDeadline(time.Time{}); err != nil {
		return errors.Join(os.ErrClosed, err)
	}
	return nil
}
