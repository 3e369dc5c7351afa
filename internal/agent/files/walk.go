package files

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent/sysfile"
	"github.com/pandovm/pando/internal/link"
)

// maxDepth bounds how deep folders are followed, and so the descriptors open at
// one time.
const maxDepth = 400

func (r *request) list() error {
	p, err := checked(r.order.Path)
	if err != nil {
		return err
	}
	st, err := sysfile.Stat(p, true)
	if err != nil {
		return at(p, err)
	}
	if kind(st.Mode) != link.ModeDir {
		return at(p, syscall.ENOTDIR)
	}
	levels := 1
	if r.order.Recursive {
		levels = int(min(r.order.Depth, maxDepth))
	}
	return r.walk(p, levels, func(name string, _ *syscall.Stat_t) error {
		info, err := r.describe(p+"/"+name, name)
		if isGone(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return r.sendInfo(info)
	})
}

func isGone(err error) bool {
	if f, ok := errors.AsType[*refusal](err); ok {
		return f.Cause == link.FileNotFound
	}
	return errors.Is(err, syscall.ENOENT)
}

// walk calls f for what is below the folder root, by name relative to it, folders
// before what is in them, levels deep; 0 means all the way. Symbolic links are not
// followed, and what vanishes meanwhile is left out.
func (r *request) walk(root string, levels int, f func(name string, st *syscall.Stat_t) error) error {
	dir, err := openat(unix.AT_FDCWD, root, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return at(root, err)
	}
	defer func() { _ = unix.Close(dir) }()
	w := &walker{r: r, root: root, f: f}
	return w.folder(dir, "", 1, levels)
}

func join(root, rel string) string {
	if rel == "" {
		return root
	}
	return root + "/" + rel
}

type walker struct {
	r    *request
	root string
	f    func(name string, st *syscall.Stat_t) error
}

func (w *walker) folder(dir int, rel string, depth, levels int) error {
	if depth > maxDepth {
		return refuse(link.FileBadPath, join(w.root, rel), "more than %d folders deep", maxDepth)
	}
	return eachName(dir, func(name string) error {
		if err := w.r.abandoned(); err != nil {
			return err
		}
		return w.entry(dir, rel, name, depth, levels)
	})
}

func (w *walker) entry(dir int, rel, name string, depth, levels int) error {
	path := name
	if rel != "" {
		path = rel + "/" + name
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return at(join(w.root, path), err)
	}
	plain := toSyscall(&st)
	if err := w.f(path, &plain); err != nil {
		return err
	}
	if kind(st.Mode) != link.ModeDir || depth == levels {
		return nil
	}
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			return nil
		}
		return at(join(w.root, path), err)
	}
	defer func() { _ = unix.Close(fd) }()
	return w.folder(fd, path, depth+1, levels)
}

// toSyscall converts between the two names of one structure.
func toSyscall(st *unix.Stat_t) syscall.Stat_t {
	return syscall.Stat_t{
		Dev: st.Dev, Ino: st.Ino, Nlink: st.Nlink, Mode: st.Mode, Uid: st.Uid, Gid: st.Gid, Size: st.Size,
		Mtim: syscall.Timespec{Sec: st.Mtim.Sec, Nsec: st.Mtim.Nsec},
	}
}

// eachName calls f for the names in the folder fd, a buffer of them at a time, so
// that a folder may have any number.
func eachName(fd int, f func(name string) error) error {
	buf := make([]byte, 8<<10)
	var names []string
	for {
		n, err := unix.ReadDirent(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.ENOENT) {
			return nil // the folder itself was removed
		}
		if err != nil {
			return err
		}
		if n <= 0 {
			return nil
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}
	}
}
