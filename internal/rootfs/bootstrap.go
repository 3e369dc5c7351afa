package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/image"
	"github.com/pandovm/pando/internal/kernel"
)

// system is a bootstrapped Debian in the cache: root.raw, the ext4 image without
// system is a bootstrapped Debian in the cache: root.raw, the ext4 image without
// an agent at its smallest size, and the kernel, modules/, busybox, applets and
// release, which the host takes out of it.
type system struct{ dir string }

// The kernel as the package has it, and unpacked if that is possible.
const (
	packedKernel   = "vmlinuz"
	unpackedKernel = "vmlinux"
)

// kernel is the file to boot.
func (s system) kernel() string {
	if _, err := os.Stat(s.file(unpackedKernel)); err == nil {
		return s.file(unpackedKernel)
	}
	return s.file(packedKernel)
}

func (s system) file(name string) string { return filepath.Join(s.dir, name) }

// baseDiskMiB is the size that root.raw is made with, the smallest one sold; it
// is grown, never shrunk.
const baseDiskMiB = 8192

// system returns the bootstrapped Debian, making it if the cache has none. Of
// several processes one builds and the others wait.
func (d *Driver) system(ctx context.Context, progress image.Progress) (system, error) {
	digest, err := digestSystem(d.recipes)
	if err != nil {
		return system{}, err
	}
	s := system{dir: filepath.Join(d.cache, "debian-"+digest[:16])}
	if isDir(s.dir) {
		return s, nil
	}
	if err := os.MkdirAll(d.cache, 0o755); err != nil {
		return system{}, fmt.Errorf("make cache folder: %w", err)
	}
	lock, err := lockFileContext(ctx, s.dir+".lock", func() { progress("waiting for another build", 0, 0) })
	if err != nil {
		return system{}, err
	}
	defer unlock(lock)
	if isDir(s.dir) {
		return s, nil
	}
	work, err := newWorkDir(d.cache)
	if err != nil {
		return system{}, err
	}
	err = errors.Join(d.bootstrap(ctx, work.path, s.dir, progress), work.remove())
	if err == nil {
		d.removeOlder(s)
	}
	return s, err
}

// use keeps the system from being removed until release is called. It fails if
// a newer version has just taken its place.
func (s system) use() (release func(), err error) {
	f, err := os.Open(s.dir)
	if err != nil {
		return nil, fmt.Errorf("open root file system: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock root file system: %w", err)
	}
	return func() { unlock(f) }, nil
}

// removeOlder removes the systems of other recipes that nobody is using. What
// cannot be removed now costs disk only.
func (d *Driver) removeOlder(s system) {
	dirs, err := filepath.Glob(filepath.Join(d.cache, "debian-*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if dir == s.dir || !isDir(dir) {
			continue
		}
		if lock, ok := tryLockDir(dir); ok {
			_ = os.RemoveAll(dir)
			unlock(lock)
		}
	}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// bootstrap makes the system in the work folder and publishes it by renaming.
func (d *Driver) bootstrap(ctx context.Context, work, target string, progress image.Progress) error {
	b := bootstrap{tools: d.tools, work: work, recipes: d.recipes, progress: progress, asRoot: os.Geteuid() == 0}
	if err := b.install(ctx); err != nil {
		return err
	}
	out := filepath.Join(work, "system")
	if err := unpackBoot(b.path("boot.tar"), out); err != nil {
		return err
	}
	if err := unpackKernel(ctx, out); err != nil {
		return err
	}
	progress("file system", 0, 1)
	if err := b.makeFilesystem(ctx, filepath.Join(out, "root.raw")); err != nil {
		return err
	}
	if err := d.checkFilesystem(ctx, filepath.Join(out, "root.raw")); err != nil {
		return err
	}
	progress("file system", 1, 1)
	if err := os.Rename(out, target); err != nil {
		return fmt.Errorf("publish root file system: %w", err)
	}
	return nil
}

// unpackKernel unpacks the kernel in dir; one that cannot be unpacked is booted
// as it is.
func unpackKernel(ctx context.Context, dir string) (err error) {
	packed, err := os.Open(filepath.Join(dir, packedKernel))
	if err != nil {
		return fmt.Errorf("unpack kernel: %w", err)
	}
	defer func() { _ = packed.Close() }()
	path := filepath.Join(dir, unpackedKernel)
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("unpack kernel: %w", err)
	}
	err = errors.Join(kernel.Unpack(ctx, packed, out), out.Close())
	if errors.Is(err, kernel.ErrUnsupported) {
		return os.Remove(path)
	}
	return err
}

// bootstrap is one run of mmdebstrap and what becomes of its result.
type bootstrap struct {
	tools

	work     string
	recipes  fs.FS
	progress image.Progress
	// asRoot: the result is a folder. Otherwise mmdebstrap works in a user
	// namespace and the result is a tar archive, since only a user namespace can
	// hold the owners of its files.
	asRoot bool
}

func (b *bootstrap) path(name string) string { return filepath.Join(b.work, name) }

func (b *bootstrap) install(ctx context.Context) error {
	packages, err := listFile(b.recipes, "debian/packages")
	if err != nil {
		return err
	}
	if err := writeOverlay(b.path("overlay.tar"), b.recipes); err != nil {
		return err
	}
	if err := b.writeAptFiles(ctx, b.path("sources.list"), b.path("apt.conf")); err != nil {
		return err
	}
	follow := &installProgress{report: b.progress}
	return b.run(ctx, command{
		name: "mmdebstrap", args: b.arguments(packages), line: follow.line,
		// The kernel package would make an initramfs that nothing boots.
		env: []string{"INITRD=No"},
	})
}

func (b *bootstrap) arguments(packages []string) []string {
	mode, format, target := "--mode=root", "--format=directory", b.path("root")
	if !b.asRoot {
		mode, format, target = "--mode=unshare", "--format=tar", b.path("root.tar")
	}
	return []string{
		mode, format, "--variant=minbase", "--verbose", "--skip=output/dev,cleanup/reproducible",
		"--include=" + strings.Join(packages, ","),
		"--aptopt=" + b.path("apt.conf"),
		"--dpkgopt=force-unsafe-io",
		"--customize-hook=tar-in " + quote(b.path("overlay.tar")) + " /",
		`--customize-hook=chroot "$1" sh /pando-customize`,
		"--customize-hook=tar-out /pando-boot " + quote(b.path("boot.tar")),
		`--customize-hook=rm -rf "$1/pando-boot"`,
		suite, target, b.path("sources.list"),
	}
}

// quote makes one word of s for the shell-like syntax of hooks.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// makeFilesystem turns the result into a sparse ext4 image.
func (b *bootstrap) makeFilesystem(ctx context.Context, raw string) error {
	mkfs := append([]string{"mke2fs"}, mkfsArguments(raw, baseDiskMiB, b.path("root"))...)
	if b.asRoot {
		return b.run(ctx, command{name: mkfs[0], args: mkfs[1:]})
	}
	var words []string
	for _, word := range mkfs {
		words = append(words, quote(word))
	}
	// The archive has no /dev at all, because device nodes cannot be unpacked here.
	script := fmt.Sprintf("mkdir -p %[1]s/dev && "+
		"tar --extract --numeric-owner --xattrs --xattrs-include='*' --file %[2]s --directory %[1]s && %[3]s && rm -rf %[1]s",
		quote(b.path("root")), quote(b.path("root.tar")), strings.Join(words, " "))
	return b.run(ctx, command{
		name: "unshare", args: []string{"--user", "--map-root-user", "--map-auto", "sh", "-ec", script},
	})
}

// installProgress turns the output of apt and dpkg into a count of packages:
// each is unpacked once and set up once.
type installProgress struct {
	report      image.Progress
	done, total int64
}

var newlyInstalled = regexp.MustCompile(`^\d+ upgraded, (\d+) newly installed`)

func (p *installProgress) line(text string) {
	const step = "packages"
	if m := newlyInstalled.FindStringSubmatch(text); m != nil {
		if n, err := strconv.ParseInt(m[1], 10, 32); err == nil {
			p.total += 2 * n
		}
		p.report(step, p.done, p.total)
		return
	}
	if strings.HasPrefix(text, "Unpacking ") || strings.HasPrefix(text, "Setting up ") {
		p.done++
		p.report(step, min(p.done, p.total), p.total)
	}
}
