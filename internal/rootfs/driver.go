package rootfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pandovm/pando/internal/image"
)

// Config is what a Driver needs to know.
type Config struct {
	// Cache is the folder that the driver owns, CACHE/rootfs. It is created.
	Cache string
	// Recipes is the folder of all recipes.
	Recipes fs.FS
	// Agent is the path of the pando-agent binary that goes into every root.
	Agent string
	// Path is the search path for the programs that are run; empty means where
	// distributions keep them.
	Path string
	// Emulated says that the roots will run without hardware virtualisation, for
	// which the kernel gets other parameters.
	Emulated bool
}

// Driver makes root disks. It is safe for concurrent use.
type Driver struct {
	tools

	cache    string
	recipes  fs.FS
	agent    string
	emulated bool
}

// New returns a driver; it touches nothing yet.
func New(c Config) *Driver {
	return &Driver{tools: tools{path: cmp.Or(c.Path, standardPath)}, cache: c.Cache, recipes: c.Recipes, agent: c.Agent, emulated: c.Emulated}
}

var _ image.RootBuilder = (*Driver)(nil)

// Digest identifies the recipe and the agent.
func (d *Driver) Digest(recipe string) (string, error) {
	parts := []string{strconv.FormatBool(d.emulated)}
	for _, tree := range []string{"boot", "debian", recipe} {
		digest, err := digestTree(d.recipes, tree)
		if err != nil {
			return "", err
		}
		parts = append(parts, digest)
	}
	agent, err := digestFile(d.agent)
	if err != nil {
		return "", err
	}
	return digestStrings(append(parts, format, agent)...), nil
}

// Build makes the root disk of the recipe in a work folder of its own, which
// the Root's Release removes.
func (d *Driver) Build(ctx context.Context, order image.RootOrder, progress image.Progress) (image.Root, error) {
	if progress == nil {
		progress = func(string, int64, int64) {}
	}
	system, err := d.system(ctx, progress)
	if err != nil {
		return image.Root{}, err
	}
	release, err := system.use()
	if err != nil {
		return image.Root{}, err
	}
	work, err := newWorkDir(d.cache)
	if err != nil {
		release()
		return image.Root{}, err
	}
	// The Root names files of the system, so both are given back together.
	giveBack := func() error {
		release()
		return work.remove()
	}
	root, err := d.assemble(ctx, system, work.path, order, progress)
	if err != nil {
		return image.Root{}, errors.Join(err, giveBack())
	}
	root.Release = giveBack
	return root, nil
}

// assemble fills the work folder with everything that a cold boot needs.
func (d *Driver) assemble(ctx context.Context, s system, work string, order image.RootOrder, progress image.Progress) (image.Root, error) {
	const step = "root disk"
	root := image.Root{
		RawDisk: filepath.Join(work, "root.raw"),
		Kernel:  s.kernel(),
		Initrd:  filepath.Join(work, "initrd"),
	}
	var err error
	if root.Append, err = d.commandLine(order.Recipe); err != nil {
		return root, err
	}
	progress(step, 0, 3)
	if err := d.makeDisk(ctx, s, order, root.RawDisk); err != nil {
		return root, err
	}
	progress(step, 1, 3)
	if err := d.installAgent(ctx, root.RawDisk, d.agent); err != nil {
		return root, err
	}
	progress(step, 2, 3)
	if err := writeInitramfs(root.Initrd, s, d.recipes); err != nil {
		return root, err
	}
	progress(step, 3, 3)
	return root, nil
}

// commandLine is the recipe's kernel command line.
func (d *Driver) commandLine(recipe string) (string, error) {
	parameters, err := listFile(d.recipes, recipe+"/append")
	if err != nil {
		return "", err
	}
	if d.emulated {
		more, err := listFile(d.recipes, "boot/append.emulated")
		if err != nil {
			return "", err
		}
		parameters = append(parameters, more...)
	}
	return strings.Join(parameters, " "), nil
}

// makeDisk writes the recipe's file system, without the agent, to path.
func (d *Driver) makeDisk(ctx context.Context, s system, order image.RootOrder, path string) error {
	switch order.Recipe {
	case "debian":
		if err := d.copySparse(ctx, s.file("root.raw"), path); err != nil {
			return err
		}
		return d.growFilesystem(ctx, path, order.DiskMiB)
	case "busybox":
		return d.makeBusybox(ctx, s, d.recipes, path, order.DiskMiB)
	default:
		return fmt.Errorf("make root disk: there is no recipe %q", order.Recipe)
	}
}

// workDir is a private folder that a crashed process leaves to the next one to
// remove: whoever can lock it knows that its owner is gone.
type workDir struct {
	path string
	lock *os.File
}

func newWorkDir(cache string) (*workDir, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("make cache folder: %w", err)
	}
	guard, err := lockFile(filepath.Join(cache, "work.lock"))
	if err != nil {
		return nil, err
	}
	defer unlock(guard)
	sweepWork(cache)
	path, err := os.MkdirTemp(cache, "work-")
	if err != nil {
		return nil, fmt.Errorf("make work folder: %w", err)
	}
	lock, err := lockDir(path)
	if err != nil {
		return nil, err
	}
	return &workDir{path: path, lock: lock}, nil
}

func (w *workDir) remove() error {
	err := os.RemoveAll(w.path)
	unlock(w.lock)
	if err != nil {
		return fmt.Errorf("remove work folder: %w", err)
	}
	return nil
}

// sweepWork removes the work folders whose owners are gone. It is best effort:
// what cannot be removed now costs disk only, and the next build tries again.
func sweepWork(cache string) {
	dirs, err := filepath.Glob(filepath.Join(cache, "work-*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		lock, ok := tryLockDir(dir)
		if !ok {
			continue
		}
		_ = os.RemoveAll(dir)
		unlock(lock)
	}
}
