package agent

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestFindPort(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"sys/class/virtio-ports/vport1p1/name": "other\n", "sys/class/virtio-ports/vport1p1/dev": "1:1\n",
		"sys/class/virtio-ports/vport2p1/name": "mine\n", "sys/class/virtio-ports/vport2p1/dev": "1:3\n",
		"sys/class/virtio-ports/vport3p1/name": "broken\n", "sys/class/virtio-ports/vport3p1/dev": "one:two\n",
		"dev": "/",
	})
	want := filepath.Join(root, "dev/vport2p1")
	for range 2 { // makes the device, then finds it
		if got, err := findPort(root, "mine"); got != want || err != nil {
			t.Fatalf("found %q, %v, want %q", got, err, want)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(want, &st); err != nil {
		t.Fatal(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(1, 3) || st.Mode&0o777 != 0o600 {
		t.Errorf("made a device of mode %o and number %d", st.Mode, st.Rdev)
	}
	if _, err := findPort(root, "absent"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent port: %v", err)
	}
	if _, err := findPort(root, "broken"); err == nil {
		t.Error("made a device of numbers that are none")
	}
}

func TestOpenPortGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := OpenPort(ctx, "no such port"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A FIFO behaves towards its reader as the device does: without a writer a read
// returns end of file at once, and the poller reports the moment that one comes.
func TestDevicePort(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	p := fifoPort(t, path)
	defer p.Close()
	buf := make([]byte, 16)
	for range 5 {
		hosts := make(chan *os.File, 1)
		go func() {
			w, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err == nil {
				_, err = w.WriteString("hello")
			}
			if err != nil {
				t.Error(err)
			}
			hosts <- w
		}()
		// Waits without a host, and then without data.
		if n, err := p.Read(buf); string(buf[:n]) != "hello" || err != nil {
			t.Fatalf("read %q, %v", buf[:n], err)
		}
		host := <-hosts
		if _, err := host.WriteString("more"); err != nil {
			t.Fatal(err)
		}
		if n, err := p.Read(buf); string(buf[:n]) != "more" || err != nil {
			t.Fatalf("read %q, %v", buf[:n], err)
		}
		_ = host.Close()
		if n, err := p.Read(buf); n != 0 || !errors.Is(err, io.EOF) {
			t.Fatalf("after the hang-up: %d, %v", n, err)
		}
	}
}

// fifoPort returns a port on the reading end of the FIFO.
func fifoPort(t *testing.T, path string) *devicePort {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newDevicePort(f)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestClosedDevicePort closes a port at many moments of a read: before it,
// while it looks, while it waits.
func TestClosedDevicePort(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "port")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		p := fifoPort(t, path)
		ended := make(chan error, 1)
		go func() {
			_, err := p.Read(make([]byte, 16))
			ended <- err
		}()
		time.Sleep(time.Duration(i) * 100 * time.Microsecond)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, os.ErrClosed) {
			t.Fatalf("read of a port closed after %d × 100 µs: %v", i, err)
		}
	}
}

func TestDevicePortNeedsAPoller(t *testing.T) {
	t.Parallel()
	if _, err := openPort(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent device: %v", err)
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openPort(path); err == nil {
		t.Error("a plain file was accepted as a port")
	}
}
