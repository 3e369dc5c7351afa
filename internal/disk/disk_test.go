package disk_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/disk"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/layer"
)

const mib = 1 << 20

// data is a data folder: layers beside the folders of VMs.
type data struct {
	t      testing.TB
	dir    string
	layers *layer.Store
	disks  *disk.Driver
}

func newData(t testing.TB) *data {
	t.Helper()
	d := &data{t: t, dir: filepath.Join(t.TempDir(), "data")}
	if err := os.MkdirAll(filepath.Join(d.dir, "vms"), 0o700); err != nil {
		t.Fatal(err)
	}
	// Backing names are ../layers/ly-…, for VMs as for layers.
	if err := os.Symlink("../layers", filepath.Join(d.dir, "vms", "layers")); err != nil {
		t.Fatal(err)
	}
	d.open()
	return d
}

func (d *data) open() {
	d.t.Helper()
	layers, err := layer.Open(filepath.Join(d.dir, "layers"))
	if err != nil {
		d.t.Fatal(err)
	}
	d.layers, d.disks = layers, disk.New(layers)
}

// path makes the folder of a VM and returns where its overlay goes.
func (d *data) path(vm string) string {
	d.t.Helper()
	dir := filepath.Join(d.dir, "vms", vm)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		d.t.Fatal(err)
	}
	return filepath.Join(dir, "disk-0.qcow2")
}

func (d *data) overlay(vm string, backing layer.ID, size int64) string {
	d.t.Helper()
	path := d.path(vm)
	if err := d.disks.Overlay(d.t.Context(), path, backing, size); err != nil {
		d.t.Fatal(err)
	}
	return path
}

// raw writes a raw image of size bytes with that content at its start.
func (d *data) raw(size int64, content []byte) string {
	d.t.Helper()
	path := filepath.Join(d.t.TempDir(), "disk.raw")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		d.t.Fatal(err)
	}
	return path
}

func (d *data) base(size int64, content []byte) layer.ID {
	d.t.Helper()
	l, err := d.disks.FromRaw(d.t.Context(), d.raw(size, content))
	if err != nil {
		d.t.Fatal(err)
	}
	return l.ID
}

func tool(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// content returns the whole disk as QEMU reads it through the chain.
func content(t testing.TB, path string) []byte {
	t.Helper()
	tool(t, "qemu-img", "check", "-q", path)
	raw := filepath.Join(t.TempDir(), "content")
	tool(t, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", path, raw)
	b, err := os.ReadFile(raw)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFromRaw(t *testing.T) {
	t.Parallel()
	d := newData(t)
	text := bytes.Repeat([]byte("pando"), 100_000)
	raw := d.raw(64*mib, text)
	l, err := d.disks.FromRaw(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	if l.Kind != layer.KindDisk || l.Bytes <= 500_000 || l.Bytes > 2*mib {
		t.Errorf("got %+v", l)
	}
	tool(t, "qemu-img", "compare", "-f", "raw", "-F", "qcow2", raw, d.layers.Path(l.ID))
	info, err := d.disks.Info(t.Context(), d.layers.Path(l.ID))
	if err != nil || info.VirtualSize != 64*mib || info.BackingFile != "" {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := d.disks.FromRaw(t.Context(), raw+".missing"); err == nil || !strings.Contains(err.Error(), "No such file") {
		t.Errorf("a missing image: %v", err)
	}
	if entries, err := os.ReadDir(d.layers.Dir()); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestOverlay(t *testing.T) {
	t.Parallel()
	d := newData(t)
	const size = 48 * mib
	base := d.base(size, []byte("base"))
	path := d.overlay("vm-1", base, size)
	got := struct {
		Format  string `json:"format"`
		Size    int64  `json:"virtual-size"`
		Backing string `json:"backing-filename"`
		Kind    string `json:"backing-filename-format"`
	}{}
	if err := json.Unmarshal([]byte(tool(t, "qemu-img", "info", "--output=json", path)), &got); err != nil {
		t.Fatal(err)
	}
	if got.Format != "qcow2" || got.Size != size || got.Backing != d.disks.BackingName(base) || got.Kind != "qcow2" {
		t.Errorf("qemu-img says %+v", got)
	}
	info, err := d.disks.Info(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if info.AllocatedBytes > 64<<10 {
		t.Errorf("an empty overlay takes %d bytes", info.AllocatedBytes)
	}
	want := disk.Info{VirtualSize: size, BackingFile: d.disks.BackingName(base), ClusterSize: 64 << 10, AllocatedBytes: info.AllocatedBytes}
	if diff := cmp.Diff(want, info); diff != "" {
		t.Error(diff)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	want2 := append([]byte("base"), make([]byte, size-4)...)
	if !bytes.Equal(content(t, path), want2) {
		t.Error("the overlay does not read as its base")
	}
}

// TestOverlayBeforeItsBacking is the order of a fork: the next overlay is made
// before the one below it is frozen.
func TestOverlayBeforeItsBacking(t *testing.T) {
	t.Parallel()
	d := newData(t)
	const size = 8 * mib
	first := d.overlay("vm-1", d.base(size, []byte("base")), size)
	next := layer.NewID()
	second := d.overlay("vm-2", next, size)
	tool(t, "qemu-io", "-f", "qcow2", "-c", "write -P 7 65536 4096", first)
	if _, err := d.layers.Adopt(first, next, layer.KindDisk); err != nil {
		t.Fatal(err)
	}
	want := append([]byte("base"), make([]byte, size-4)...)
	copy(want[65536:], bytes.Repeat([]byte{7}, 4096))
	if !bytes.Equal(content(t, second), want) {
		t.Error("the overlay does not read as what was frozen")
	}
	if !bytes.Equal(content(t, d.layers.Path(next)), want) {
		t.Error("the frozen layer does not read as before")
	}
}

func TestOverlayRefuses(t *testing.T) {
	t.Parallel()
	d := newData(t)
	id := layer.NewID()
	for _, c := range []struct {
		name    string
		backing layer.ID
		size    int64
	}{
		{"a malformed layer", "../../etc/passwd", mib},
		{"no size", id, 0},
		{"a negative size", id, -512},
		{"half a sector", id, 100},
		{"too much", id, math.MaxInt64 / 512 * 512},
	} {
		if err := d.disks.Overlay(t.Context(), d.path("vm"), c.backing, c.size); err == nil {
			t.Errorf("%s: no error", c.name)
		}
	}
	path := d.overlay("vm", id, mib)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.disks.Overlay(t.Context(), path, layer.NewID(), mib); err == nil {
		t.Error("an overlay was replaced")
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("an overlay was changed: %v", err)
	}
}

// TestOverlayIsACopy makes the second overlay without qemu-img in reach.
func TestOverlayIsACopy(t *testing.T) {
	d := newData(t)
	d.overlay("vm-1", layer.NewID(), mib)
	path := os.Getenv("PATH")
	t.Setenv("PATH", "")
	id := layer.NewID()
	second := d.overlay("vm-2", id, mib)
	if err := d.disks.Overlay(t.Context(), d.path("vm-3"), id, 2*mib); err == nil {
		t.Error("another size needs no qemu-img")
	}
	t.Setenv("PATH", path)
	if out := tool(t, "qemu-img", "info", second); !strings.Contains(out, string(id)) {
		t.Error(out)
	}
}

func TestOverlaysAtOnce(t *testing.T) {
	t.Parallel()
	d := newData(t)
	base := d.base(mib, []byte("base"))
	var wg sync.WaitGroup
	for i := range 20 {
		path := d.path(fmt.Sprint("vm-", i))
		wg.Go(func() {
			if err := d.disks.Overlay(t.Context(), path, base, int64(1+i%3)*mib); err != nil {
				t.Error(err)
			}
			if out, err := exec.CommandContext(t.Context(), "qemu-img", "check", path).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
}

// TestGenerations writes at random in machines that descend from each other,
// deletes some, and compares every block of all others.
func TestGenerations(t *testing.T) {
	t.Parallel()
	const size, generations = 4 * mib, 7
	d := newData(t)
	random := rand.New(rand.NewPCG(7, 8))
	root := make([]byte, size)
	for i := range mib {
		root[i] = byte(random.Uint32())
	}
	base := d.base(size, root)
	d.layers.Hold("vm-0", base)
	live := []*blockTwin{{d: d, name: "vm-0", chain: []layer.ID{base}, model: bytes.Clone(root), path: d.overlay("vm-0", base, size)}}
	for born := 1; born <= generations*2; born += 2 {
		source := live[len(live)-1-random.IntN(min(2, len(live)))]
		source.scribble(random)
		live = append(live, source.fork(fmt.Sprint("vm-", born)), source.fork(fmt.Sprint("vm-", born+1)))
		for _, w := range live {
			w.scribble(random)
		}
		if len(live) > 4 {
			i := random.IntN(len(live))
			live[i].end()
			live = append(live[:i], live[i+1:]...)
		}
		for _, w := range live {
			w.compare()
		}
	}
	// The folder may move: nothing in it knows where it is.
	moved := d.dir + "-moved"
	if err := os.Rename(d.dir, moved); err != nil {
		t.Fatal(err)
	}
	for _, w := range live {
		w.path = strings.Replace(w.path, d.dir, moved, 1)
		w.compare()
	}
}

// blockTwin is the disk of a VM beside the model of what it holds.
type blockTwin struct {
	d     *data
	name  string
	path  string
	chain []layer.ID
	model []byte
}

func (w *blockTwin) scribble(r *rand.Rand) {
	w.d.t.Helper()
	args := []string{"-f", "qcow2"}
	for range 1 + r.IntN(8) {
		at := r.IntN(len(w.model)/512) * 512
		length := min(512*(1+r.IntN(1+r.IntN(200))), len(w.model)-at)
		pattern := byte(r.IntN(256))
		if pattern < 32 {
			args = append(args, "-c", fmt.Sprintf("write -z %d %d", at, length))
			clear(w.model[at : at+length])
			continue
		}
		args = append(args, "-c", fmt.Sprintf("write -P %d %d %d", pattern, at, length))
		copy(w.model[at:], bytes.Repeat([]byte{pattern}, length))
	}
	tool(w.d.t, "qemu-io", append(args, w.path)...)
}

// fork freezes the overlay and gives this VM and a new one an empty one each.
func (w *blockTwin) fork(name string) *blockTwin {
	w.d.t.Helper()
	frozen := layer.NewID()
	if _, err := w.d.layers.Adopt(w.path, frozen, layer.KindDisk); err != nil {
		w.d.t.Fatal(err)
	}
	w.chain = append(slices.Clip(w.chain), frozen)
	w.path = w.d.overlay(w.name, frozen, int64(len(w.model)))
	child := &blockTwin{d: w.d, name: name, chain: w.chain, model: bytes.Clone(w.model), path: w.d.overlay(name, frozen, int64(len(w.model)))}
	w.d.layers.Hold(w.name, w.chain...)
	w.d.layers.Hold(name, w.chain...)
	return child
}

func (w *blockTwin) end() {
	w.d.t.Helper()
	if err := os.RemoveAll(filepath.Dir(w.path)); err != nil {
		w.d.t.Fatal(err)
	}
	if err := w.d.layers.Drop(w.name); err != nil {
		w.d.t.Fatal(err)
	}
}

func (w *blockTwin) compare() {
	w.d.t.Helper()
	got := content(w.d.t, w.path)
	for at := 0; at < len(got); at += 512 {
		if !bytes.Equal(got[at:at+512], w.model[at:at+512]) {
			w.d.t.Fatalf("%s: sector %d differs", w.name, at/512)
		}
	}
}

func TestInfoOfWhatIsNoDisk(t *testing.T) {
	t.Parallel()
	d := newData(t)
	good := d.overlay("vm", layer.NewID(), mib)
	dir := t.TempDir()
	link, pipe, text := filepath.Join(dir, "link"), filepath.Join(dir, "pipe"), filepath.Join(dir, "text")
	for _, err := range []error{
		os.Symlink(good, link), unix.Mkfifo(pipe, 0o600), os.WriteFile(text, bytes.Repeat([]byte("text"), 100), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	external := filepath.Join(dir, "external.qcow2")
	tool(t, "qemu-img", "create", "-q", "-f", "qcow2", "-o", "data_file="+filepath.Join(dir, "secret"), external, "1M")
	for _, path := range []string{link, pipe, text, dir, filepath.Join(dir, "missing"), external} {
		if info, err := d.disks.Info(t.Context(), path); err == nil {
			t.Errorf("%s is a disk: %+v", filepath.Base(path), info)
		}
	}
}

func TestFullDisk(t *testing.T) {
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
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=512k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, unix.MNT_DETACH) })
	layers, err := layer.Open(filepath.Join(small, "layers"))
	if err != nil {
		t.Fatal(err)
	}
	d := disk.New(layers)
	raw := filepath.Join(t.TempDir(), "raw")
	if err := os.WriteFile(raw, bytes.Repeat([]byte("pando"), mib), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = d.FromRaw(t.Context(), raw)
	f := fault.As(err)
	if f == nil || f.Code != api.CodeConflict || f.Reason != api.ReasonDiskFull || f.Needed < 5*mib || f.Available > mib {
		t.Fatalf("got %v", err)
	}
	if entries, err := os.ReadDir(layers.Dir()); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if err := os.WriteFile(filepath.Join(small, "filler"), make([]byte, mib), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	err = d.Overlay(t.Context(), filepath.Join(small, "overlay"), layer.NewID(), mib)
	if !fault.HasReason(err, api.ReasonDiskFull) {
		t.Errorf("an overlay on a full disk: %v", err)
	}
	if _, err := os.Stat(filepath.Join(small, "overlay")); !os.IsNotExist(err) {
		t.Errorf("a part of it was left: %v", err)
	}
}

func BenchmarkOverlay(b *testing.B) {
	d := newData(b)
	path := d.path("vm")
	d.overlay("first", layer.NewID(), 16<<30)
	for b.Loop() {
		if err := d.disks.Overlay(b.Context(), path, layer.NewID(), 16<<30); err != nil {
			b.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			b.Fatal(err)
		}
	}
}
