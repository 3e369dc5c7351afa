package memory_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/layer"
	"github.com/pandovm/pando/internal/memory"
)

// waitEnd waits until a process has ended, reaped or not.
func waitEnd(t testing.TB, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n != 1 {
			t.Fatalf("process %d does not end: %v", pid, err)
		}
		return
	}
}

func fork(t testing.TB, c *memory.Control) *memory.Frozen {
	t.Helper()
	f, err := c.Fork(t.Context(), mib)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (v *victim) redial() *memory.Control {
	v.t.Helper()
	c := v.dial(v.sock)
	v.t.Cleanup(func() { _ = c.Close() })
	return c
}

func descriptors(t testing.TB, pid int) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestFrozenProcess(t *testing.T) {
	t.Parallel()
	_, dir := newStore(t)
	v := newVictim(t, dir, mib)
	f := fork(t, v.control())
	if f.Size != mib || f.Pid == v.pid() || v.control().PID() != v.pid() {
		t.Errorf("%+v of process %d", f, v.control().PID())
	}
	// The child closes its descriptors in its own time; the name comes after.
	comm := "/proc/" + strconv.Itoa(f.Pid) + "/comm"
	for {
		if b, err := os.ReadFile(comm); err != nil {
			t.Fatal(err)
		} else if string(b) == "pando-frozen\n" {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if got := descriptors(t, f.Pid); got != 0 {
		t.Errorf("it has %d descriptors", got)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	waitEnd(t, f.Pid)
	if err := unix.Kill(f.Pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("it was not reaped: %v", err)
	}
}

func TestFrozenProcessesEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, v *victim, f *memory.Frozen){
		"with their connection": func(t *testing.T, v *victim, _ *memory.Frozen) {
			t.Helper()
			if err := v.control().Close(); err != nil {
				t.Error(err)
			}
		},
		"with QEMU":           func(_ *testing.T, v *victim, _ *memory.Frozen) { v.kill() },
		"when one kills them": func(_ *testing.T, _ *victim, f *memory.Frozen) { _ = unix.Kill(f.Pid, unix.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, dir := newStore(t)
			v := newVictim(t, dir, mib)
			f := fork(t, v.control())
			end(t, v, f)
			waitEnd(t, f.Pid)
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFrozenProcessesAreFew(t *testing.T) {
	t.Parallel()
	_, dir := newStore(t)
	v := newVictim(t, dir, mib)
	var frozen []*memory.Frozen
	for {
		f, err := v.control().Fork(t.Context(), mib)
		if err != nil {
			if !errors.Is(err, unix.EBUSY) {
				t.Fatal(err)
			}
			break
		}
		frozen = append(frozen, f)
	}
	if len(frozen) < 2 || len(frozen) > 16 {
		t.Errorf("%d at once", len(frozen))
	}
	if err := frozen[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := fork(t, v.control()).Close(); err != nil {
		t.Error(err)
	}
	for _, f := range frozen {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestManyClients uses connections side by side, and one from many goroutines.
func TestManyClients(t *testing.T) {
	t.Parallel()
	store, dir := newStore(t)
	w := newTwin(t, startVictim, dir, "root", 2*mib)
	w.put(0, 2*mib, 1)
	second := w.machine.(*victim).redial()
	var wg sync.WaitGroup
	for i := range 8 {
		c := []*memory.Control{w.control(), second}[i%2]
		wg.Go(func() {
			for range 5 {
				f, err := c.Fork(t.Context(), 2*mib)
				if errors.Is(err, unix.EBUSY) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if _, stats := captureFrozen(t, f, w.base, store, "many"); stats.OwnBytes != 2*mib {
					t.Errorf("%+v", stats)
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	w.compare(t)
}

func TestOrdersAfterClose(t *testing.T) {
	t.Parallel()
	store, dir := newStore(t)
	v := newVictim(t, dir, mib)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.control().Fork(cancelled, mib); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := errors.Join(v.control().Close(), v.control().Close()); err != nil {
		t.Error(err)
	}
	if _, err := v.control().Fork(t.Context(), mib); !errors.Is(err, memory.ErrControlClosed) {
		t.Errorf("Fork: %v", err)
	}
	if err := v.control().Lay(t.Context(), memory.Map{Size: mib}, opener(store)); !errors.Is(err, memory.ErrControlClosed) {
		t.Errorf("Lay: %v", err)
	}
	// A new connection finds everything in order.
	if err := fork(t, v.redial()).Close(); err != nil {
		t.Error(err)
	}
}

func TestDialWithoutLibrary(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := memory.DialControl(ctx, filepath.Join(t.TempDir(), "nobody")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestLayRefuses(t *testing.T) {
	t.Parallel()
	store, dir := newStore(t)
	w := newTwin(t, startVictim, dir, "root", mib)
	w.put(0, mib, 1)
	m, _ := w.capture(t, store, "root")
	closed := os.ErrClosed
	for _, c := range []struct {
		name string
		m    memory.Map
		open func(layer.ID) (*os.File, error)
		says string
	}{
		{"an invalid map", memory.Map{Size: 1}, opener(store), "whole pages"},
		{"RAM of another size", memory.Map{Size: 2 * mib}, opener(store), "bytes of RAM"},
		{"a layer that cannot be opened", m, func(layer.ID) (*os.File, error) { return nil, closed }, "closed"},
		{"a layer that can be written", m, func(id layer.ID) (*os.File, error) {
			return os.OpenFile(store.Path(id), os.O_RDWR, 0)
		}, "reading only"},
		{"a folder", m, func(layer.ID) (*os.File, error) { return os.Open(dir) }, "not a regular file"},
		{"a layer that is too short", m, func(layer.ID) (*os.File, error) {
			path := filepath.Join(dir, "short")
			return os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
		}, "ends beyond layer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := w.control().Lay(t.Context(), c.m, c.open)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want one that says %q", err, c.says)
			}
			w.compare(t)
		})
	}
}

// rawRequest is a header of the protocol, as any peer may send it.
func rawRequest(op uint16, count uint32, size, pid uint64) []byte {
	b := binary.NativeEndian.AppendUint32(nil, 0x4d444e50)
	b = binary.NativeEndian.AppendUint16(b, 1)
	b = binary.NativeEndian.AppendUint16(b, op)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint32(b, count)
	b = binary.NativeEndian.AppendUint64(b, size)
	return binary.NativeEndian.AppendUint64(b, pid)
}

func rawDial(t *testing.T, sock string) *net.UnixConn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "unixpacket", sock)
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.UnixConn)
}

// TestLibrarySurvivesAnyClient sends what no honest daemon would: the process
// must go on, with its RAM and its number of descriptors unchanged.
func TestLibrarySurvivesAnyClient(t *testing.T) {
	t.Parallel()
	store, dir := newStore(t)
	w := newTwin(t, startVictim, dir, "root", mib)
	w.put(0, mib, 1)
	w.capture(t, store, "root")
	v := w.machine.(*victim)
	before := descriptors(t, v.pid())
	random := rand.New(rand.NewPCG(3, 4))
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for range 300 {
		conn := rawDial(t, v.sock)
		for range 1 + random.IntN(6) {
			message := hostileMessage(random)
			var rights []byte
			if n := random.IntN(4) * random.IntN(80); n > 0 && random.IntN(2) == 0 {
				fds := make([]int, n)
				for i := range fds {
					fds[i] = int(null.Fd())
				}
				rights = unix.UnixRights(fds...)
			}
			if _, _, err := conn.WriteMsgUnix(message, rights, nil); err != nil {
				break
			}
			if random.IntN(3) == 0 {
				_, _ = conn.Read(make([]byte, 64))
			}
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// An answered order proves that everything before it was dealt with: the
	// clients are served in turn, and dropped ones close before new ones greet.
	w.compare(t)
	if err := fork(t, v.control()).Close(); err != nil {
		t.Fatal(err)
	}
	m, _ := w.capture(t, store, "after")
	restore(t, startVictim, dir, "child", store, m, w.model).compare(t)
	for range 100 {
		if descriptors(t, v.pid()) <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d descriptors, %d before", descriptors(t, v.pid()), before)
}

func hostileMessage(r *rand.Rand) []byte {
	b := rawRequest(uint16(r.IntN(9)), uint32(r.IntN(4)), mib, uint64(r.IntN(70000)))
	switch r.IntN(6) {
	case 0:
		b = b[:r.IntN(len(b))]
	case 1:
		b[r.IntN(len(b))] ^= byte(1 << r.IntN(8))
	case 2:
		// Commit nothing: it would empty the RAM, as it should.
		b = rawRequest(3, uint32(r.IntN(1100)), 0, 0)
		b = append(b, make([]byte, r.IntN(40000))...)
	case 3:
		b = rawRequest(3, uint32(r.Uint64()), r.Uint64(), r.Uint64())
	}
	if len(b) >= 8 && binary.NativeEndian.Uint16(b[6:]) == 4 {
		// A commit of an empty map is a right order; make it a wrong one.
		b = append(b, 0)
	}
	return b
}
