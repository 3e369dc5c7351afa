package rootfs_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/pandovm/pando/internal/image"
	"github.com/pandovm/pando/internal/rootfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recipes is a small set of recipes of the same shape as the real one.
func recipes() fstest.MapFS {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	return fstest.MapFS{
		"boot/init":                        file("#!/bin/busybox sh\n"),
		"boot/modules":                     file("virtio_blk # the disk\n"),
		"boot/append.emulated":             file("# why\nmitigations=off\n"),
		"debian/append":                    file("quiet\n# comment\npanic=-1\n"),
		"debian/packages":                  file("systemd\ngit\n"),
		"debian/customize":                 file("#!/bin/sh\n"),
		"debian/files/etc/hostname":        file("pando\n"),
		"debian/files/etc/sudoers.d/agent": file("agent ALL=(ALL:ALL) NOPASSWD: ALL\n"),
		"busybox/append":                   file("quiet\n"),
		"busybox/files/etc/init.d/rcS":     file("#!/bin/sh\n"),
		"busybox/files/etc/passwd":         file("root:x:0:0:root:/root:/bin/sh\n"),
		"busybox/files/etc/shadow":         file("root:*:19000:0:99999:7:::\n"),
	}
}

// bootstrapper stands in for mmdebstrap: it makes a tiny root out of what it is
// told to unpack, and reports packages as apt does. Files in the folder above
// its own are its memory: it counts its runs in "runs", waits while "hold"
// exists and fails if "fail" does.
const bootstrapper = `#!/bin/sh
set -e
lab=$(dirname "$0")/..
echo run >>"$lab/runs"
[ ! -e "$lab/fail" ] || { echo "E: no such package"; exit 1; }
for arg; do
	case $arg in
	--customize-hook=tar-in*) overlay=$(echo "$arg" | cut -d"'" -f2) ;;
	--customize-hook=tar-out*) boot=$(echo "$arg" | cut -d"'" -f2) ;;
	esac
	before=$last last=$arg
	target=$before
done
echo "0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded."
while [ -e "$lab/hold" ]; do sleep 0.05; done
for package in a b; do echo "Unpacking $package (1) ..."; echo "Setting up $package (1) ..."; done
mkdir -p "$target/usr/lib"
tar -xf "$overlay" -C "$target"
rm "$target/pando-customize" "$target/pando-modules"
out=$(mktemp -d)
mkdir -p "$out/pando-boot/modules"
echo kernel >"$out/pando-boot/vmlinuz"
echo 6.1.0 >"$out/pando-boot/release"
printf 'bin/sh\nusr/bin/awk\n' >"$out/pando-boot/applets"
echo elf >"$out/pando-boot/busybox"
echo one >"$out/pando-boot/modules/101-virtio.ko"
echo two >"$out/pando-boot/modules/102-virtio_blk.ko"
tar -cf "$boot" -C "$out" pando-boot
rm -r "$out"
`

// lab is a driver with a cache and a bootstrapper of its own.
type lab struct {
	dir    string
	driver *rootfs.Driver
}

func newLab(t *testing.T, emulated bool) *lab {
	t.Helper()
	l := &lab{dir: t.TempDir()}
	bin := l.path("bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(bin, "mmdebstrap"), bootstrapper, 0o755)
	write(t, l.path("agent"), "the agent", 0o755)
	l.driver = l.newDriver(recipes(), emulated)
	return l
}

func (l *lab) newDriver(r fstest.MapFS, emulated bool) *rootfs.Driver {
	return rootfs.New(rootfs.Config{
		Cache: l.path("cache"), Recipes: r, Agent: l.path("agent"), Emulated: emulated,
		Path: l.path("bin") + ":/usr/sbin:/usr/bin:/sbin:/bin",
	})
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) runs(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(l.path("runs"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(data), "run")
}

// leftovers lists what is in the cache besides locks.
func (l *lab) leftovers(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(l.path("cache"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".lock") {
			names = append(names, e.Name())
		}
	}
	return names
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// inImage runs one debugfs request against an image and returns its output.
func inImage(t *testing.T, raw, request string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/usr/sbin/debugfs", "-R", request, raw)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("debugfs %s: %v", request, err)
	}
	return string(out)
}

func TestBuildDebian(t *testing.T) {
	t.Parallel()
	l := newLab(t, true)
	var steps []string
	var total int64
	root, err := l.driver.Build(t.Context(), image.RootOrder{Recipe: "debian", DiskMiB: 16384}, func(step string, _, of int64) {
		if len(steps) == 0 || steps[len(steps)-1] != step {
			steps = append(steps, step)
		}
		if step == "packages" {
			total = of
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"packages", "file system", "root disk"}, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if total != 4 {
		t.Errorf("the packages step has a total of %d, want 4: each is unpacked and set up", total)
	}
	if got, want := root.Append, "quiet panic=-1 mitigations=off"; got != want {
		t.Errorf("command line %q, want %q", got, want)
	}
	if info, err := os.Stat(root.RawDisk); err != nil || info.Size() != 16384<<20 {
		t.Errorf("disk is %v, %v; want 16384 MiB", info, err)
	}
	if got := inImage(t, root.RawDisk, "cat /usr/lib/pando/pando-agent"); got != "the agent" {
		t.Errorf("agent in the image is %q", got)
	}
	if got := inImage(t, root.RawDisk, "stat /etc/sudoers.d/agent"); !strings.Contains(got, "Mode:  0440") {
		t.Errorf("sudoers file: %s", got)
	}
	if data, err := os.ReadFile(root.Kernel); err != nil || string(data) != "kernel\n" {
		t.Errorf("kernel is %q, %v", data, err)
	}
	if err := root.Release(); err != nil {
		t.Error(err)
	}
	if err := root.Release(); err != nil {
		t.Errorf("second release: %v", err)
	}
	if left := l.leftovers(t); len(left) != 1 {
		t.Errorf("cache holds %v, want the bootstrapped system alone", left)
	}
}

func TestBuildBusybox(t *testing.T) {
	t.Parallel()
	l := newLab(t, false)
	root, err := l.driver.Build(t.Context(), image.RootOrder{Recipe: "busybox", DiskMiB: 1024}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Release() }()
	if got, want := root.Append, "quiet"; got != want {
		t.Errorf("command line %q, want %q: this host does not emulate", got, want)
	}
	for file, want := range map[string]string{
		"/bin/busybox":               "Mode:  0755",
		"/bin/sh":                    "Type: symlink",
		"/usr/bin/awk":               "/bin/busybox",
		"/etc/init.d/rcS":            "Mode:  0755",
		"/etc/passwd":                "Mode:  0644",
		"/etc/shadow":                "Mode:  0600",
		"/home/agent":                "User:  1000   Group:  1000",
		"/tmp":                       "Mode:  01777",
		"/root":                      "Mode:  0700",
		"/usr/lib/pando":             "Mode:  0755",
		"/usr/lib/pando/pando-agent": "Mode:  0755",
	} {
		if got := inImage(t, root.RawDisk, "stat "+file); !strings.Contains(got, want) {
			t.Errorf("%s: no %q in %s", file, want, got)
		}
	}
}

func TestBootstrapOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, true)
	write(t, l.path("hold"), "", 0o600)
	var wg sync.WaitGroup
	waiting := make(chan struct{})
	var once sync.Once
	for range 3 {
		d := l.newDriver(recipes(), true) // as three processes would
		wg.Go(func() {
			root, err := d.Build(t.Context(), image.RootOrder{Recipe: "busybox", DiskMiB: 256}, func(step string, _, _ int64) {
				if strings.HasPrefix(step, "waiting") {
					once.Do(func() { close(waiting) })
				}
			})
			if err != nil {
				t.Error(err)
				return
			}
			if err := root.Release(); err != nil {
				t.Error(err)
			}
		})
	}
	<-waiting
	if err := os.Remove(l.path("hold")); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if got := l.runs(t); got != 1 {
		t.Errorf("the packages were installed %d times, want once", got)
	}
}

func TestAgentAndSizeAreLate(t *testing.T) {
	t.Parallel()
	l := newLab(t, true)
	for _, agent := range []string{"one", "two"} {
		write(t, l.path("agent"), agent, 0o755)
		for _, size := range []int{8192, 65536} {
			root, err := l.driver.Build(t.Context(), image.RootOrder{Recipe: "debian", DiskMiB: size}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := inImage(t, root.RawDisk, "cat /usr/lib/pando/pando-agent"); got != agent {
				t.Errorf("agent is %q, want %q", got, agent)
			}
			if err := root.Release(); err != nil {
				t.Error(err)
			}
		}
	}
	if got := l.runs(t); got != 1 {
		t.Errorf("the packages were installed %d times, want once", got)
	}
}

func TestFailedBootstrapLeavesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, true)
	write(t, l.path("fail"), "", 0o600)
	_, err := l.driver.Build(t.Context(), image.RootOrder{Recipe: "debian", DiskMiB: 8192}, nil)
	if err == nil || !strings.Contains(err.Error(), "E: no such package") {
		t.Errorf("error is %v, want one with the output of the tool", err)
	}
	if left := l.leftovers(t); len(left) != 0 {
		t.Errorf("left in the cache: %v", left)
	}
	if err := os.Remove(l.path("fail")); err != nil {
		t.Fatal(err)
	}
	root, err := l.driver.Build(t.Context(), image.RootOrder{Recipe: "debian", DiskMiB: 8192}, nil)
	if err != nil {
		t.Fatalf("after a failure: %v", err)
	}
	if err := root.Release(); err != nil {
		t.Error(err)
	}
}

func TestCancelledBootstrapLeavesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, true)
	write(t, l.path("hold"), "", 0o600)
	cause := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := l.driver.Build(ctx, image.RootOrder{Recipe: "debian", DiskMiB: 8192}, func(string, int64, int64) { cancel(cause) })
	if !errors.Is(err, cause) {
		t.Errorf("error is %v, want %v", err, cause)
	}
	if left := l.leftovers(t); len(left) != 0 {
		t.Errorf("left in the cache: %v", left)
	}
}

func TestOlderSystemsAreRemoved(t *testing.T) {
	t.Parallel()
	l := newLab(t, true)
	inUse, err := l.driver.Build(t.Context(), image.RootOrder{Recipe: "busybox", DiskMiB: 256}, nil)
	if err != nil {
		t.Fatal(err)
	}
	build := func(packages string) {
		r := recipes()
		r["debian/packages"] = &fstest.MapFile{Data: []byte(packages)}
		root, err := l.newDriver(r, true).Build(t.Context(), image.RootOrder{Recipe: "busybox", DiskMiB: 256}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := root.Release(); err != nil {
			t.Error(err)
		}
	}
	build("second\n")
	if _, err := os.Stat(inUse.Kernel); err != nil {
		t.Errorf("a system that is in use was removed: %v", err)
	}
	if err := inUse.Release(); err != nil {
		t.Error(err)
	}
	build("third\n")
	if left := l.leftovers(t); len(left) != 1 {
		t.Errorf("cache holds %v, want the newest system alone", left)
	}
}

func TestWorkOfTheDeadIsSwept(t *testing.T) {
	t.Parallel()
	l := newLab(t, true)
	if err := os.MkdirAll(l.path("cache/work-of-a-killed-process"), 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := l.driver.Build(t.Context(), image.RootOrder{Recipe: "busybox", DiskMiB: 256}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := root.Release(); err != nil {
		t.Error(err)
	}
	if left := l.leftovers(t); len(left) != 1 {
		t.Errorf("cache holds %v, want the system alone", left)
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	l := newLab(t, true)
	base, err := l.driver.Digest("debian")
	if err != nil {
		t.Fatal(err)
	}
	changed := func(name string, d *rootfs.Driver, recipe string) {
		t.Helper()
		got, err := d.Digest(recipe)
		if err != nil {
			t.Fatal(err)
		}
		if got == base {
			t.Errorf("%s: the digest is the same", name)
		}
	}
	changed("another recipe", l.driver, "busybox")
	changed("no emulation", l.newDriver(recipes(), false), "debian")
	for _, file := range []string{"debian/packages", "debian/append", "boot/init", "debian/files/etc/hostname"} {
		r := recipes()
		r[file] = &fstest.MapFile{Data: append([]byte("new\n"), r[file].Data...)}
		changed(file, l.newDriver(r, true), "debian")
	}
	write(t, l.path("agent"), "another agent", 0o755)
	changed("another agent", l.driver, "debian")
	write(t, l.path("agent"), "the agent", 0o755)
	if again, err := l.driver.Digest("debian"); err != nil || again != base {
		t.Errorf("digest of the same things is %s, %v; want %s", again, err, base)
	}
}

func TestBadOrders(t *testing.T) {
	t.Parallel()
	l := newLab(t, true)
	for name, order := range map[string]image.RootOrder{
		"unknown recipe": {Recipe: "plan9", DiskMiB: 8192},
		"too small":      {Recipe: "debian", DiskMiB: 100},
		"hostile recipe": {Recipe: "../..", DiskMiB: 8192},
	} {
		if _, err := l.driver.Build(t.Context(), order, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if left := l.leftovers(t); len(left) != 1 {
		t.Errorf("cache holds %v, want the system alone", left)
	}
}

func TestMissingTool(t *testing.T) {
	t.Parallel()
	l := newLab(t, true)
	d := rootfs.New(rootfs.Config{Cache: l.path("cache"), Recipes: recipes(), Agent: l.path("agent"), Path: l.path("empty")})
	_, err := d.Build(t.Context(), image.RootOrder{Recipe: "debian", DiskMiB: 8192}, nil)
	if err == nil || !strings.Contains(err.Error(), "make setup") {
		t.Errorf("error is %v, want one that says how to install the tool", err)
	}
}
