package rootfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// mkfsArguments are mke2fs's for a sparse image of that size, filled from dir
// unless dir is empty. Inode ratio and journal are fixed, so that an image that
// was grown is like one that was made larger.
func mkfsArguments(raw string, sizeMiB int, dir string) []string {
	args := []string{
		"-q", "-F", "-t", "ext4", "-b", "4096", "-i", "16384", "-I", "256", "-J", "size=64",
		"-E", "root_owner=0:0,lazy_itable_init=1,lazy_journal_init=1", "-m", "1", "-L", "root",
	}
	if dir != "" {
		args = append(args, "-d", dir)
	}
	return append(args, raw, strconv.Itoa(sizeMiB)+"M")
}

func (t tools) growFilesystem(ctx context.Context, raw string, sizeMiB int) error {
	if sizeMiB < baseDiskMiB {
		return fmt.Errorf("grow root disk: %d MiB is less than the %d MiB that it has", sizeMiB, baseDiskMiB)
	}
	return t.run(ctx, command{name: "resize2fs", args: []string{"-f", raw, strconv.Itoa(sizeMiB) + "M"}})
}

// checkFilesystem fails unless the file system is clean in every respect.
func (t tools) checkFilesystem(ctx context.Context, raw string) error {
	return t.run(ctx, command{name: "e2fsck", args: []string{"-f", "-n", raw}})
}

func (t tools) copySparse(ctx context.Context, from, to string) error {
	return t.run(ctx, command{name: "cp", args: []string{"--reflink=auto", "--sparse=always", "--no-preserve=mode", from, to}})
}

// editor collects changes to an ext4 image and carries them out with debugfs,
// which needs neither a mount nor root.
type editor struct{ script strings.Builder }

func (e *editor) mkdir(dir string, mode, owner int) {
	fmt.Fprintf(&e.script, "cd %q\nmkdir %q\n", path.Dir(dir), path.Base(dir))
	e.setInode(dir, 0o040000|mode, owner)
}

// write puts the host's file from into the image; the folder must exist.
func (e *editor) write(from, to string, mode, owner int) {
	fmt.Fprintf(&e.script, "cd %q\nwrite %q %q\n", path.Dir(to), from, path.Base(to))
	e.setInode(to, 0o100000|mode, owner)
}

func (e *editor) symlink(at, target string) {
	fmt.Fprintf(&e.script, "cd %q\nsymlink %q %q\n", path.Dir(at), path.Base(at), target)
}

func (e *editor) setInode(name string, mode, owner int) {
	fmt.Fprintf(&e.script, "sif %q mode 0%o\nsif %q uid %d\nsif %q gid %d\n", name, mode, name, owner, name, owner)
}

// edit carries the changes out. debugfs exits 0 whatever happens, but reports failures
// on its standard error as "file: message".
func (t tools) edit(ctx context.Context, raw string, e *editor) (err error) {
	script := raw + ".debugfs"
	if err := os.WriteFile(script, []byte(e.script.String()), 0o600); err != nil {
		return fmt.Errorf("write debugfs script: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(script)) }()
	var failed string
	err = t.run(ctx, command{name: "debugfs", args: []string{"-w", "-f", script, raw}, line: func(text string) {
		if failed == "" && !strings.HasPrefix(text, "debugfs") && !strings.HasPrefix(text, "Allocated inode") {
			failed = text
		}
	}})
	if err != nil {
		return err
	}
	if failed != "" {
		return fmt.Errorf("edit %s: debugfs: %s", filepath.Base(raw), failed)
	}
	return nil
}

// agentPath is where every image has its agent; the units name it.
const agentPath = "/usr/lib/pando/pando-agent"

func (t tools) installAgent(ctx context.Context, raw, agent string) error {
	var e editor
	e.mkdir(path.Dir(agentPath), 0o755, 0)
	e.write(agent, agentPath, 0o755, 0)
	if err := t.edit(ctx, raw, &e); err != nil {
		return fmt.Errorf("install agent: %w", err)
	}
	return t.checkFilesystem(ctx, raw)
}
