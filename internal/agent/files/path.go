package files

import (
	"errors"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent/sysfile"
	"github.com/pandovm/pando/internal/link"
)

const (
	// parentMode is that of folders that are made on the way.
	parentMode = 0o755
	// newMode is that of files that are made without one.
	newMode = 0o600
	// maxLinks is how many symbolic links in a row are followed, as the kernel has it.
	maxLinks = 40
)

// checked returns the order's path. The host has checked it too; this is against
// our own mistakes, not against the host.
func checked(p string) (string, error) {
	if !strings.HasPrefix(p, "/") || strings.IndexByte(p, 0) >= 0 {
		return "", refuse(link.FileBadPath, p, "not an absolute path")
	}
	return path.Clean(p), nil
}

func lstat(p string) (syscall.Stat_t, error) { return sysfile.Stat(p, false) }

func kind(mode uint32) uint32 { return mode & link.ModeType }

// follow returns where content written to p ends up: p, or what it leads to
// through symbolic links, whether or not that exists.
func follow(p string) (string, error) {
	for range maxLinks {
		st, err := lstat(p)
		if err != nil || kind(st.Mode) != link.ModeSymlink {
			return p, nil //nolint:nilerr // what does not exist leads nowhere else
		}
		target, err := readlink(p)
		if err != nil {
			return "", at(p, err)
		}
		if strings.HasPrefix(target, "/") {
			p = target
		} else {
			// Not path.Clean: a ".." after a symbolic link is the kernel's to resolve.
			p = parent(p) + "/" + target
		}
	}
	return "", at(p, syscall.ELOOP)
}

func readlink(p string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlink(p, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// parent is the folder part of a path.
func parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i > 0 {
		return p[:i]
	}
	return "/"
}

// base is the last part of a path.
func base(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }

// mkdirAll makes the folder p and those above it that are missing.
func mkdirAll(p string, mode uint32, o owner) error {
	st, err := sysfile.Stat(p, true)
	if err == nil {
		if kind(st.Mode) == link.ModeDir {
			return nil
		}
		return at(p, syscall.ENOTDIR)
	}
	if !errors.Is(err, syscall.ENOENT) {
		return at(p, err)
	}
	if p != "/" {
		if err := mkdirAll(parent(p), parentMode, o); err != nil {
			return err
		}
	}
	if err := mkdirAt(unix.AT_FDCWD, p, mode, o); err != nil && !errors.Is(err, syscall.EEXIST) {
		return at(p, err)
	}
	return nil
}

// mkdirAt makes one folder. It is nobody else's until it has its owner.
func mkdirAt(dir int, name string, mode uint32, o owner) error {
	if err := unix.Mkdirat(dir, name, 0o700); err != nil {
		return err
	}
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(o.apply(fd, mode), unix.Close(fd))
}

// openat opens a file that commands do not inherit.
func openat(dir int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}
