package rootfs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// agentUser is the uid and gid of the guest's ordinary user.
const agentUser = 1000

// makeBusybox writes a root file system of one static busybox and a few files.
func (t tools) makeBusybox(ctx context.Context, s system, recipes fs.FS, raw string, sizeMiB int) (err error) {
	mkfs := command{name: "mke2fs", args: mkfsArguments(raw, sizeMiB, "")}
	if err := t.run(ctx, mkfs); err != nil {
		return err
	}
	staging := raw + ".files"
	if err := os.Mkdir(staging, 0o700); err != nil {
		return fmt.Errorf("make staging folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staging)) }()

	into := tree{dirs: map[string]bool{"/": true}}
	for dir, mode := range map[string]int{
		"/dev": 0o755, "/proc": 0o555, "/sys": 0o555, "/run": 0o755, "/mnt": 0o755, "/root": 0o700,
		"/tmp": 0o1777, "/var": 0o755, "/var/tmp": 0o1777, "/var/log": 0o755, "/home": 0o755,
	} {
		into.dir(dir, mode, 0)
	}
	into.dir("/home/agent", 0o755, agentUser)
	into.dir("/usr/lib", 0o755, 0)
	into.dir("/bin", 0o755, 0)
	into.edit.write(s.file("busybox"), "/bin/busybox", 0o755, 0)
	if err := into.applets(s.file("applets")); err != nil {
		return err
	}
	if err := into.recipe(recipes, "busybox/files", staging); err != nil {
		return err
	}
	if err := t.edit(ctx, raw, &into.edit); err != nil {
		return fmt.Errorf("fill busybox root: %w", err)
	}
	return nil
}

// tree adds files to an image together with the folders that they need.
type tree struct {
	edit editor
	dirs map[string]bool
}

func (t *tree) dir(name string, mode, owner int) {
	if t.dirs[name] {
		return
	}
	t.dir(path.Dir(name), 0o755, 0)
	t.dirs[name] = true
	t.edit.mkdir(name, mode, owner)
}

// applets links every applet that the list names to busybox.
func (t *tree) applets(list string) error {
	data, err := os.ReadFile(list)
	if err != nil {
		return fmt.Errorf("read applets: %w", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		name := "/" + strings.TrimPrefix(strings.TrimSpace(lines.Text()), "/")
		if name == "/" || name == "/bin/busybox" || path.Clean(name) != name {
			continue
		}
		t.dir(path.Dir(name), 0o755, 0)
		t.edit.symlink(name, "/bin/busybox")
	}
	return nil
}

// recipe adds the recipe's files, which debugfs reads from the staging folder.
func (t *tree) recipe(recipes fs.FS, root, staging string) error {
	n := 0
	err := fs.WalkDir(recipes, root, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(recipes, p)
		if err != nil {
			return err
		}
		n++
		file := filepath.Join(staging, strconv.Itoa(n))
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return err
		}
		name := strings.TrimPrefix(p, root)
		t.dir(path.Dir(name), 0o755, 0)
		t.edit.write(file, name, int(modeOf(strings.TrimPrefix(name, "/"), data)), 0)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read recipe: %w", err)
	}
	return nil
}
