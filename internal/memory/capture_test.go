package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/layer"
	"github.com/pandovm/pando/internal/memory"
)

// put fills in the machine and in the model.
func (w *twin) put(offset, length int64, seed uint64) {
	w.fill(offset, length, seed)
	modelFill(w.model[offset:offset+length], seed)
}

func (w *twin) wipe(offset, length int64) {
	w.zero(offset, length)
	clear(w.model[offset : offset+length])
}

func TestCaptureStats(t *testing.T) {
	t.Parallel()
	store, dir := newStore(t)
	root := newTwin(t, startVictim, dir, "root", 4*mib)
	root.put(0, 16*page, 1)
	root.put(20*page, 4*page, 2)
	root.put(100*page, 8*page, 3)
	root.wipe(200*page, 50*page)
	m, stats := root.capture(t, store, "root")
	// The gap of four pages is filled, the wiped pages are not written.
	want := memory.CaptureStats{OwnBytes: 78 * page, ZeroBytes: 54 * page, WrittenBytes: 32 * page, Extents: 2}
	if stats != want {
		t.Errorf("got %+v, want %+v", stats, want)
	}
	restore(t, startVictim, dir, "reader", store, m, root.model).compare(t)
	// This one is not read: on some kernels reading untouched memory makes it
	// the process's own, zero as it is.
	child := restore(t, startVictim, dir, "child", store, m, root.model)
	if again, stats := child.capture(t, store, "child"); stats.WrittenBytes != 0 || len(again.Layers) != 1 {
		t.Errorf("an unchanged child: %+v", stats)
	}
	// Wiping an inherited page is a change, and costs no byte.
	child.wipe(4*page, 8*page)
	again, stats := child.capture(t, store, "child")
	if stats.WrittenBytes != 0 || again.Bytes() != m.Bytes()-8*page {
		t.Errorf("a wiped child: %+v, %d bytes", stats, again.Bytes())
	}
	restore(t, startVictim, dir, "grandchild", store, again, child.model).compare(t)
}

// TestDeepAncestry captures more generations than a map has layers.
func TestDeepAncestry(t *testing.T) {
	t.Parallel()
	store, dir := newStore(t)
	w := newTwin(t, startVictim, dir, "root", 2*mib)
	random := rand.New(rand.NewPCG(1, 2))
	full := 0
	for i := range 2*memory.MaxLayers + 2 {
		// Every generation leaves something that no later one covers.
		w.put(int64(i)*10*page, 3*page, uint64(i))
		w.put(400*page+random.Int64N(50)*page, page, uint64(i))
		name := fmt.Sprint("generation-", i)
		m, stats := w.capture(t, store, name)
		if stats.Full {
			full++
			if len(m.Layers) != 1 {
				t.Errorf("a full capture refers to %d layers", len(m.Layers))
			}
		}
		next := restore(t, startVictim, dir, name, store, m, w.model)
		w.compare(t)
		w.stop()
		if i > 0 {
			if err := store.Drop(fmt.Sprint("generation-", i-1)); err != nil {
				t.Fatal(err)
			}
		}
		w = next
	}
	w.compare(t)
	if full != 2 {
		t.Errorf("%d captures were full, want 2", full)
	}
}

// TestFragmentedMemory captures RAM in which more runs of pages are the VM's
// own than a map can have extents.
func TestFragmentedMemory(t *testing.T) {
	t.Parallel()
	const (
		size = 352 * mib
		// Ten pages apart: too far to be joined by an ordinary capture.
		step = 10
	)
	for _, c := range []struct {
		name string
		runs int64
		base bool
		full bool
	}{
		// Every run splits the base's extent, so half of them are enough.
		{"over a large base", memory.MaxExtents/2 + 100, true, false},
		{"without a base", memory.MaxExtents + 100, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store, dir := newStore(t)
			w := newTwin(t, startVictim, dir, "root", size)
			if c.base {
				w.put(0, size, 1)
				m, _ := w.capture(t, store, "base")
				next := restore(t, startVictim, dir, "child", store, m, w.model)
				w.stop()
				w = next
			}
			for n := range c.runs {
				w.put(n*step*page, page, uint64(n))
			}
			m, stats := w.capture(t, store, "fragmented")
			if stats.Full != c.full || len(m.Extents) > memory.MaxExtents/2 {
				t.Errorf("got %+v", stats)
			}
			next := restore(t, startVictim, dir, "last", store, m, w.model)
			w.stop()
			next.compare(t)
		})
	}
}

func TestLayersMayGoWhileMapped(t *testing.T) {
	t.Parallel()
	store, dir := newStore(t)
	root := newTwin(t, startVictim, dir, "root", 4*mib)
	root.put(0, 4*mib, 1)
	m, _ := root.capture(t, store, "root")
	child := restore(t, startVictim, dir, "child", store, m, root.model)
	if err := store.Drop("root"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(store.Path(m.Layers[0])); !os.IsNotExist(err) {
		t.Fatalf("the layer is there: %v", err)
	}
	child.compare(t)
	child.put(mib, mib, 2)
	child.compare(t)
}

func TestCaptureOfTheWrongMap(t *testing.T) {
	t.Parallel()
	store, dir := newStore(t)
	v := newVictim(t, dir, mib)
	frozen, err := v.control().Fork(t.Context(), mib)
	if err != nil {
		t.Fatal(err)
	}
	defer frozen.Close()
	d, err := store.Create(layer.KindMemory)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Discard()
	for _, base := range []memory.Map{{Size: 2 * mib}, {Size: mib + 1}} {
		if _, _, err := frozen.Capture(t.Context(), base, d); err == nil {
			t.Errorf("a map for %d bytes was accepted", base.Size)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := frozen.Capture(cancelled, memory.Map{Size: mib}, d); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestCaptureOfDeadChild(t *testing.T) {
	t.Parallel()
	store, dir := newStore(t)
	v := newVictim(t, dir, mib)
	v.fill(0, mib, 1)
	frozen, err := v.control().Fork(t.Context(), mib)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(frozen.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d, err := store.Create(layer.KindMemory)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Discard()
	waitEnd(t, frozen.Pid)
	if _, _, err := frozen.Capture(t.Context(), memory.Map{Size: mib}, d); err == nil {
		t.Error("no error")
	}
	if err := frozen.Close(); err != nil {
		t.Error(err)
	}
}

// TestCaptureToFullDisk wants the amounts in the error, and a machine that goes on.
func TestCaptureToFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getenv("PANDO_TEST_INSIDE") == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "PANDO_TEST_INSIDE=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("inside the namespace: %v\n%s", err, out)
		}
		return
	}
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, unix.MNT_DETACH) })
	store, err := layer.Open(filepath.Join(small, "layers"))
	if err != nil {
		t.Fatal(err)
	}
	w := newTwin(t, startVictim, t.TempDir(), "root", 4*mib)
	w.put(0, 2*mib, 1)
	frozen, err := w.control().Fork(t.Context(), w.base.Size)
	if err != nil {
		t.Fatal(err)
	}
	d, err := store.Create(layer.KindMemory)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = frozen.Capture(t.Context(), memory.Map{Size: 4 * mib}, d)
	f := fault.As(err)
	if f == nil || f.Code != api.CodeConflict || f.Reason != api.ReasonDiskFull {
		t.Fatalf("got %v", err)
	}
	if f.Needed < 2*mib || f.Available > mib || !strings.Contains(f.Remedy, small) {
		t.Errorf("needed %d, available %d, remedy %q", f.Needed, f.Available, f.Remedy)
	}
	if err := errors.Join(frozen.Close(), d.Discard()); err != nil {
		t.Error(err)
	}
	w.put(3*mib, mib, 2)
	w.compare(t)
}
