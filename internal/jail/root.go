package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// stage is where the new root is put together. Any folder that every host has
// will do: what is to be mounted was opened before.
const stage = "/tmp"

// hostName is what the program sees instead of the host's.
const hostName = "pando"

// systemFolders hold programs and libraries. On most hosts all but the first
// are links into it.
func systemFolders() []string {
	return []string{"/usr", "/bin", "/lib", "/lib32", "/lib64", "/libx32"}
}

// tree is a detached copy of a mount, ready to be put somewhere.
type tree struct {
	fd     int
	target string
	folder bool
}

// useNamespaces shows that the new namespaces are of use: some hosts let anybody
// make them, and then forbid what they are for.
func useNamespaces(o orders) error {
	if o.Level == LevelBare {
		return nil
	}
	if err := unix.Sethostname([]byte(hostName)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	// Otherwise what is mounted here would appear on the host as well.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	return nil
}

// buildRoot replaces this process's root by one that has only what the program
// may see.
func buildRoot(o orders) error {
	if o.Level == LevelBare {
		return changeDir(o.Dir)
	}
	trees, err := openTrees(o)
	if err != nil {
		return err
	}
	if err := mountStage(); err != nil {
		return err
	}
	if err := linkSystem(); err != nil {
		return err
	}
	for _, t := range trees {
		if err := t.place(); err != nil {
			return fmt.Errorf("mount on %s: %w", t.target, err)
		}
	}
	if o.Level == LevelFull {
		if err := ownDevices(o); err != nil {
			return err
		}
	}
	if err := enterStage(); err != nil {
		return err
	}
	return changeDir(o.Dir)
}

// openTrees takes hold of everything that will be visible, in the order in
// which it is placed: what the caller asked for may lie on top of the system.
func openTrees(o orders) ([]tree, error) {
	var trees []tree
	add := func(source, target string, attributes uint64) error {
		t, err := openTree(source, target, attributes)
		if err == nil {
			trees = append(trees, t)
		}
		return err
	}
	for _, folder := range systemFolders() {
		if info, err := os.Lstat(folder); err != nil || !info.IsDir() {
			continue // a link, made by linkSystem, or not on this host
		}
		if err := add(folder, folder, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV); err != nil {
			return nil, err
		}
	}
	// Without its index the loader searches for each of a hundred libraries.
	const loaderIndex = "/etc/ld.so.cache"
	if err := add(loaderIndex, loaderIndex, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, device := range sharedDevices(o) {
		if err := add(device, device, unix.MOUNT_ATTR_NOEXEC); err != nil {
			return nil, err
		}
	}
	for _, mount := range o.Mounts {
		attributes := uint64(unix.MOUNT_ATTR_NODEV)
		if !mount.Writable {
			attributes |= unix.MOUNT_ATTR_RDONLY
		}
		if err := add(mount.Source, mount.Target, attributes); err != nil {
			return nil, err
		}
	}
	return trees, nil
}

// sharedDevices are bound from the host. With root the caller's devices are
// made instead, see ownDevices.
func sharedDevices(o orders) []string {
	devices := []string{"/dev/null", "/dev/urandom"}
	if o.Level == LevelUser {
		devices = append(devices, o.Devices...)
	}
	return devices
}

func openTree(source, target string, attributes uint64) (tree, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return tree{}, &fs.PathError{Op: "open mount source", Path: source, Err: err}
	}
	attr := unix.MountAttr{Attr_set: attributes | unix.MOUNT_ATTR_NOSUID}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return tree{}, &fs.PathError{Op: "restrict mount", Path: source, Err: err}
	}
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return tree{}, &fs.PathError{Op: "stat mount source", Path: source, Err: err}
	}
	return tree{fd: fd, target: target, folder: info.Mode&unix.S_IFMT == unix.S_IFDIR}, nil
}

// place puts the tree at its target below the stage, and makes the target if it
// is not there.
func (t tree) place() error {
	at := filepath.Join(stage, t.target)
	if err := makeTarget(at, t.folder); err != nil {
		return err
	}
	err := unix.MoveMount(t.fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
	return errors.Join(err, unix.Close(t.fd))
}

func makeTarget(at string, folder bool) error {
	if folder {
		return os.MkdirAll(at, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(at, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	return f.Close()
}

// mountStage puts an empty file system over the stage. It stays free of devices
// of others because nobody in it can make one.
func mountStage() error {
	const flags = unix.MS_NOSUID | unix.MS_NOEXEC
	if err := unix.Mount("pando", stage, "tmpfs", flags, "mode=0755,size=1m,nr_inodes=4k"); err != nil {
		return fmt.Errorf("mount new root: %w", err)
	}
	return nil
}

// linkSystem repeats the host's links such as /lib to usr/lib.
func linkSystem() error {
	for _, folder := range systemFolders() {
		link, err := os.Readlink(folder)
		if err != nil {
			continue // a folder, or not on this host
		}
		if err := os.Symlink(link, filepath.Join(stage, folder)); err != nil {
			return fmt.Errorf("link system folder: %w", err)
		}
	}
	return nil
}

// ownDevices makes the caller's devices for the program's uid alone: the host's
// device files often belong to a group that the program is not in.
func ownDevices(o orders) error {
	for _, device := range o.Devices {
		var info unix.Stat_t
		if err := unix.Stat(device, &info); err != nil {
			return &fs.PathError{Op: "find device", Path: device, Err: err}
		}
		if info.Mode&unix.S_IFMT != unix.S_IFCHR {
			return &fs.PathError{Op: "make device", Path: device, Err: unix.ENODEV}
		}
		at := filepath.Join(stage, device)
		if err := unix.Mknod(at, unix.S_IFCHR|0o600, int(info.Rdev)); err != nil {
			return &fs.PathError{Op: "make device", Path: device, Err: err}
		}
		if err := os.Chown(at, o.UID, o.GID); err != nil {
			return fmt.Errorf("make device: %w", err)
		}
	}
	return nil
}

// enterStage makes the stage the root, forgets the old one and forbids changes.
func enterStage() error {
	if err := unix.Chdir(stage); err != nil {
		return fmt.Errorf("enter new root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave old root: %w", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &attr); err != nil {
		return fmt.Errorf("make root read-only: %w", err)
	}
	return nil
}

func changeDir(dir string) error {
	if dir == "" {
		dir = "/"
	}
	if err := unix.Chdir(dir); err != nil {
		return &fs.PathError{Op: "enter", Path: dir, Err: err}
	}
	return nil
}
