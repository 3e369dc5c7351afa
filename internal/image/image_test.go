package image_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/image"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// roots makes root disks of one file each, and counts those that are not released.
type roots struct {
	dir    string
	digest string
	fail   error
	open   atomic.Int32
}

func (r *roots) Digest(recipe string) (string, error) { return recipe + r.digest, nil }

func (r *roots) Build(_ context.Context, o image.RootOrder, p image.Progress) (image.Root, error) {
	if r.fail != nil {
		return image.Root{}, r.fail
	}
	p("packages", 1, 2)
	r.open.Add(1)
	return image.Root{
		RawDisk: fmt.Sprintf("%s.%d.raw", o.Recipe, o.DiskMiB), Kernel: "kernel", Initrd: "initrd", Append: "quiet",
		Release: sync.OnceValue(func() error { r.open.Add(-1); return nil }),
	}, nil
}

// bench is a workshop whose baker writes the order down as the image. It lends
// itself to one at a time.
type bench struct {
	place sync.Mutex
	fail  error
	// hold, if not nil, keeps the baker until it is closed.
	hold chan struct{}

	mu     sync.Mutex
	orders []image.BakeOrder
}

func (b *bench) Open(context.Context) (image.Baker, func() error, error) {
	b.place.Lock()
	return b, func() error { b.place.Unlock(); return nil }, nil
}

func (b *bench) Bake(ctx context.Context, o image.BakeOrder) error {
	b.mu.Lock()
	b.orders = append(b.orders, o)
	b.mu.Unlock()
	o.Step("boot")
	if b.hold != nil {
		select {
		case <-b.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := os.Mkdir(filepath.Join(o.Dir, "layers"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.Dir, "manifest.json"), []byte("{}"), 0o600); err != nil {
		return err
	}
	return b.fail
}

type lab struct {
	dir   string
	roots *roots
	bench *bench
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	return &lab{dir: dir, roots: &roots{dir: dir}, bench: &bench{}}
}

// service is one process's view of the cache.
func (l *lab) service(machine string) *image.Service {
	return image.NewService(image.Config{Dir: filepath.Join(l.dir, "images"), Roots: l.roots, Workshop: l.bench, Machine: machine})
}

// files lists everything in the cache below the folder of an image.
func (l *lab) files(t *testing.T, name string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(l.dir, "images", strings.ReplaceAll(name, "/", "_"), "*"))
	if err != nil {
		t.Fatal(err)
	}
	hidden, err := filepath.Glob(filepath.Join(l.dir, "images", strings.ReplaceAll(name, "/", "_"), ".*"))
	if err != nil {
		t.Fatal(err)
	}
	return append(found, hidden...)
}

func TestCatalogue(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	defaults := 0
	for _, e := range image.Catalogue() {
		if e.Default {
			defaults++
		}
		for _, name := range append([]string{e.Name}, e.Aliases...) {
			if other, ok := seen[name]; ok {
				t.Errorf("%s and %s are both called %s", other, e.Name, name)
			}
			seen[name] = e.Name
			if got, ok := image.Find(name); !ok || got.Name != e.Name {
				t.Errorf("Find(%q) = %q, %v; want %q", name, got.Name, ok, e.Name)
			}
		}
		if e.Resources.CPU < 1 || e.Resources.Memory < 64 || e.Resources.Storage < 256 {
			t.Errorf("%s has %+v", e.Name, e.Resources)
		}
	}
	if defaults != 1 {
		t.Errorf("%d images are the default, want 1", defaults)
	}
	got, _ := image.Find("")
	want := api.Resources{CPU: 2, Memory: 2048, Storage: 16384}
	if got.Name != "pando/debian" || got.Resources != want {
		t.Errorf("the default is %s with %+v, want pando/debian with %+v", got.Name, got.Resources, want)
	}
	if _, ok := image.Find("pando/plan9"); ok {
		t.Error("an unknown name was found")
	}
}

func TestEnsureBuildsOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var steps []string
	b, err := l.service("m").Ensure(t.Context(), "freestyle/ubuntu-sm", func(step string, _, _ int64) { steps = append(steps, step) })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"wait for other builds", "packages", "boot"}, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	again, err := l.service("m").Ensure(t.Context(), "pando/debian-sm", nil)
	if err != nil {
		t.Fatal(err)
	}
	if again.Dir != b.Dir || len(l.bench.orders) != 1 {
		t.Errorf("the second call returned %s after %d builds, want %s after 1", again.Dir, len(l.bench.orders), b.Dir)
	}
	o := l.bench.orders[0]
	if o.Image != "pando/debian-sm" || o.RawDisk != "debian.8192.raw" || o.Resources.CPU != 1 || o.Append != "quiet" {
		t.Errorf("the baker was ordered %+v", o)
	}
	if _, err := os.Stat(filepath.Join(b.Dir, "manifest.json")); err != nil {
		t.Error(err)
	}
	if open := l.roots.open.Load(); open != 0 {
		t.Errorf("%d root disks were not released", open)
	}
}

func TestEnsureTogether(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.bench.hold = make(chan struct{})
	var wg sync.WaitGroup
	waiting := make(chan struct{}, 4)
	dirs := make([]string, 4)
	for i := range dirs {
		wg.Go(func() {
			b, err := l.service("m").Ensure(t.Context(), "pando/busybox", func(step string, _, _ int64) {
				if strings.HasPrefix(step, "wait") {
					waiting <- struct{}{}
				}
			})
			if err != nil {
				t.Error(err)
			}
			dirs[i] = b.Dir
		})
	}
	for range dirs {
		<-waiting
	}
	close(l.bench.hold)
	wg.Wait()
	if len(l.bench.orders) != 1 {
		t.Errorf("%d callers built it %d times, want once", len(dirs), len(l.bench.orders))
	}
	for _, dir := range dirs[1:] {
		if dir != dirs[0] {
			t.Errorf("one caller got %s, another %s", dirs[0], dir)
		}
	}
}

func TestFailuresLeaveNothing(t *testing.T) {
	t.Parallel()
	broken := errors.New("no such thing")
	tests := map[string]func(l *lab){
		"root disk": func(l *lab) { l.roots.fail = broken },
		"bake":      func(l *lab) { l.bench.fail = broken },
	}
	for name, arrange := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			arrange(l)
			if _, err := l.service("m").Ensure(t.Context(), "pando/busybox", nil); !errors.Is(err, broken) {
				t.Errorf("error is %v, want %v", err, broken)
			}
			if _, ok, err := l.service("m").Lookup("pando/busybox"); ok || err != nil {
				t.Errorf("the image is built: %v, %v", ok, err)
			}
			if left := l.files(t, "pando/busybox"); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
			if open := l.roots.open.Load(); open != 0 {
				t.Errorf("%d root disks were not released", open)
			}
			l.roots.fail, l.bench.fail = nil, nil
			if _, err := l.service("m").Ensure(t.Context(), "pando/busybox", nil); err != nil {
				t.Errorf("after the failure: %v", err)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.bench.hold = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := l.service("m").Ensure(ctx, "pando/busybox", func(step string, _, _ int64) {
		if step == "boot" {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want %v", err, context.Canceled)
	}
	if left := l.files(t, "pando/busybox"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	debian, _ := image.Find("pando/debian")
	small, _ := image.Find("pando/debian-sm")
	version := func(machine string, e image.Entry) string {
		t.Helper()
		v, err := l.service(machine).Version(e)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	base := version("qemu 7.2", debian)
	l.roots.digest = "changed"
	recipe := version("qemu 7.2", debian)
	l.roots.digest = ""
	warmed := debian
	warmed.Warm = []string{"make me warm"}
	for name, other := range map[string]string{
		"another recipe":      recipe,
		"another machine":     version("qemu 8.0", debian),
		"another size":        version("qemu 7.2", small),
		"other warm commands": version("qemu 7.2", warmed),
	} {
		if other == base {
			t.Errorf("%s: the version is the same", name)
		}
	}
	if again := version("qemu 7.2", debian); again != base {
		t.Errorf("the version of the same things is %s, then %s", base, again)
	}
}

func TestNewVersionReplacesOld(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if _, err := l.service("old").Ensure(t.Context(), "pando/busybox", nil); err != nil {
		t.Fatal(err)
	}
	// What a build that was killed has left.
	stale := filepath.Join(l.dir, "images", "pando_busybox", ".new-stale")
	if err := os.Mkdir(stale, 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := l.service("new").Ensure(t.Context(), "pando/busybox", nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{b.Dir}, l.files(t, "pando/busybox")); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}

func TestListShowRemove(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	s := l.service("m")
	built, err := s.Build(t.Context(), "freestyle/busybox", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !built.Built || built.BuiltAt == nil || built.Bytes != 2 || built.Name != "pando/busybox" {
		t.Errorf("the built image is shown as %+v", built)
	}
	all, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if want := i.Name == "pando/busybox"; i.Built != want || i.Version == "" {
			t.Errorf("%s is listed as built: %v, version %q", i.Name, i.Built, i.Version)
		}
	}
	if len(all) != len(image.Catalogue()) {
		t.Errorf("%d images are listed, want %d", len(all), len(image.Catalogue()))
	}
	if err := s.Remove(t.Context(), "pando/busybox"); err != nil {
		t.Fatal(err)
	}
	if left := l.files(t, "pando/busybox"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := s.Remove(t.Context(), "pando/busybox"); !fault.HasReason(err, api.ReasonImageNotBuilt) {
		t.Errorf("second removal: %v, want reason %s", err, api.ReasonImageNotBuilt)
	}
	for name, call := range map[string]func() error{
		"show":   func() error { _, err := s.Show(t.Context(), "pando/plan9"); return err },
		"build":  func() error { _, err := s.Build(t.Context(), "pando/plan9", nil); return err },
		"remove": func() error { return s.Remove(t.Context(), "pando/plan9") },
	} {
		if f := fault.As(call()); f == nil || f.Code != api.CodeNotFound {
			t.Errorf("%s of an unknown image: %v, want code %s", name, f, api.CodeNotFound)
		}
	}
}
