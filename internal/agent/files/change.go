package files

import (
	"errors"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/link"
)

func (r *request) mkdir() error {
	p, err := checked(r.order.Path)
	if err != nil {
		return err
	}
	o, err := r.newOwner()
	if err != nil {
		return err
	}
	mode := uint32(parentMode)
	if r.order.HasMode {
		mode = r.order.Mode & 0o7777
	}
	return mkdirAll(p, mode, o)
}

func (r *request) remove() error {
	p, err := checked(r.order.Path)
	if err != nil {
		return err
	}
	if p == "/" {
		return refuse(link.FileDenied, p, "the root folder stays")
	}
	st, err := lstat(p)
	if err != nil {
		return at(p, err)
	}
	if kind(st.Mode) != link.ModeDir {
		return at(p, syscall.Unlink(p))
	}
	return r.removeTree(p)
}

// removeTree removes a folder, by descriptors, so that a folder that becomes a
// symbolic link meanwhile is not followed.
func (r *request) removeTree(p string) error {
	dir, err := openat(unix.AT_FDCWD, parent(p), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return at(p, err)
	}
	defer func() { _ = unix.Close(dir) }()
	return r.removeFrom(dir, base(p), p)
}

// removeFrom removes name and what is below it; p is its path, for messages.
func (r *request) removeFrom(dir int, name, p string) error {
	if err := r.abandoned(); err != nil {
		return err
	}
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return at(p, err)
	}
	err = r.empty(fd, p)
	_ = unix.Close(fd)
	if err == nil {
		err = at(p, unix.Unlinkat(dir, name, unix.AT_REMOVEDIR))
	}
	return err
}

// empty removes what is in the folder fd. Removing moves what follows in some
// file systems, so it looks again until it finds nothing more.
func (r *request) empty(fd int, p string) error {
	for {
		removed := 0
		err := eachName(fd, func(name string) error {
			removed++
			err := unix.Unlinkat(fd, name, 0)
			if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) && isDirAt(fd, name) {
				return r.removeFrom(fd, name, p+"/"+name)
			}
			if errors.Is(err, unix.ENOENT) {
				return nil
			}
			return at(p+"/"+name, err)
		})
		if err != nil || removed == 0 {
			return err
		}
		if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
			return at(p, err)
		}
	}
}

func isDirAt(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && kind(st.Mode) == link.ModeDir
}

// abandoned is an error once nobody waits for the answer any more.
func (r *request) abandoned() error {
	select {
	case <-r.st.Done():
		return errors.New("given up by the host")
	default:
		return nil
	}
}

// target returns the two paths of a copy or move, after making the folder of the
// second.
func (r *request) target() (from, to string, err error) {
	if from, err = checked(r.order.Path); err == nil {
		to, err = checked(r.order.To)
	}
	if err != nil {
		return "", "", err
	}
	if from == to || strings.HasPrefix(to, from+"/") {
		return "", "", refuse(link.FileBadPath, to, "within what is to be put there")
	}
	if _, err := lstat(from); err != nil {
		return "", "", at(from, err)
	}
	switch _, err := lstat(to); {
	case err == nil && !r.order.Overwrite:
		return "", "", at(to, syscall.EEXIST)
	case err == nil:
		return from, to, nil
	}
	o, err := r.newOwner()
	if err == nil {
		err = mkdirAll(parent(to), parentMode, o)
	}
	return from, to, err
}

func (r *request) move() error {
	from, to, err := r.target()
	if err != nil {
		return err
	}
	err = syscall.Rename(from, to)
	if r.order.Overwrite && (errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)) {
		return refuse(link.FileExists, to, "a folder that is not empty")
	}
	if !errors.Is(err, syscall.EXDEV) {
		return at(to, err)
	}
	if err := r.copyTo(from, to); err != nil {
		return err
	}
	r.order.Path = from
	return r.remove()
}

func (r *request) chmod() error {
	p, err := checked(r.order.Path)
	if err != nil {
		return err
	}
	return r.eachBelow(p, func(q string, st *syscall.Stat_t) error {
		if kind(st.Mode) == link.ModeSymlink {
			return nil // it has no permissions of its own
		}
		return at(q, syscall.Chmod(q, r.order.Mode&0o7777))
	})
}

func (r *request) chown() error {
	p, err := checked(r.order.Path)
	if err != nil {
		return err
	}
	o, err := r.namedOwner()
	if err != nil {
		return err
	}
	if r.order.Group == "" {
		o.gid = -1 // who names an owner alone means the owner alone
	}
	return r.eachBelow(p, func(q string, _ *syscall.Stat_t) error {
		return at(q, syscall.Lchown(q, o.uid, o.gid))
	})
}

// eachBelow calls f for p and, if the order is recursive, for everything below.
// A single symbolic link is followed; those below are not.
func (r *request) eachBelow(p string, f func(string, *syscall.Stat_t) error) error {
	if !r.order.Recursive {
		var err error
		if p, err = follow(p); err != nil {
			return err
		}
	}
	st, err := lstat(p)
	if err != nil {
		return at(p, err)
	}
	if err := f(p, &st); err != nil || !r.order.Recursive || kind(st.Mode) != link.ModeDir {
		return err
	}
	return r.walk(p, 0, func(name string, st *syscall.Stat_t) error { return f(p+"/"+name, st) })
}
