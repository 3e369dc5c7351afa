package files

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/link"
)

func (r *request) copy() error {
	from, to, err := r.target()
	if err != nil {
		return err
	}
	return r.copyTo(from, to)
}

// copyTo copies a file, a symbolic link or a tree, with permissions, owners and
// times.
func (r *request) copyTo(from, to string) error {
	st, err := lstat(from)
	if err != nil {
		return at(from, err)
	}
	if kind(st.Mode) != link.ModeDir {
		return r.copyOne(from, to, &st)
	}
	if err := r.copyOne(from, to, &st); err != nil {
		return err
	}
	err = r.walk(from, 0, func(name string, st *syscall.Stat_t) error {
		return r.copyOne(from+"/"+name, to+"/"+name, st)
	})
	if err != nil {
		return err
	}
	return at(to, setTimes(to, &st))
}

func (r *request) copyOne(from, to string, st *syscall.Stat_t) error {
	switch kind(st.Mode) {
	case link.ModeDir:
		return copyFolder(to, st)
	case link.ModeSymlink:
		return copyLink(from, to, st)
	case link.ModeFile:
		return r.copyFile(from, to, st)
	}
	return refuse(link.FileNotAFile, from, "%s", kindName(st.Mode))
}

func copyFolder(to string, st *syscall.Stat_t) error {
	err := mkdirAt(unix.AT_FDCWD, to, st.Mode&0o7777, owner{int(st.Uid), int(st.Gid)})
	if errors.Is(err, syscall.EEXIST) {
		if there, statErr := lstat(to); statErr == nil && kind(there.Mode) == link.ModeDir {
			return nil
		}
	}
	return at(to, err)
}

func copyLink(from, to string, st *syscall.Stat_t) error {
	target, err := readlink(from)
	if err != nil {
		return at(from, err)
	}
	err = syscall.Symlink(target, to)
	if errors.Is(err, syscall.EEXIST) {
		if err = syscall.Unlink(to); err == nil {
			err = syscall.Symlink(target, to)
		}
	}
	if err == nil {
		err = syscall.Lchown(to, int(st.Uid), int(st.Gid))
	}
	return at(to, err)
}

// copyFile copies content into a draft, so that a copy over an existing file is
// atomic too.
func (r *request) copyFile(from, to string, st *syscall.Stat_t) error {
	src, now, err := openFile(from)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(src) }()
	if there, err := lstat(to); err == nil && kind(there.Mode) == link.ModeDir {
		return at(to, syscall.EISDIR)
	}
	d := &draft{path: to, mode: st.Mode & 0o7777, owner: owner{int(st.Uid), int(st.Gid)}, temp: parent(to) + "/" + tempName()}
	d.fd, err = openat(unix.AT_FDCWD, d.temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return at(to, err)
	}
	if err = r.copyContent(d.fd, src, to); err == nil {
		err = at(to, setTimesOf(d.fd, now))
	}
	if err == nil {
		err = d.publish()
	}
	return d.close(err)
}

// copyContent copies from the beginning to the end, within the kernel if it can.
func (r *request) copyContent(dst, src int, to string) error {
	const step = 8 << 20
	var buf []byte
	for {
		if err := r.abandoned(); err != nil {
			return err
		}
		n, err := unix.CopyFileRange(src, nil, dst, nil, step, 0)
		if err == nil && n > 0 {
			continue
		}
		// Files of /proc look empty to it, and some file systems refuse it.
		if err != nil && errors.Is(err, unix.ENOSPC) {
			return at(to, err)
		}
		if buf == nil {
			buf = make([]byte, readBuffer)
		}
		n, err = unix.Read(src, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return at(to, err)
		}
		if n <= 0 {
			return nil
		}
		if err := writeAll(dst, buf[:n]); err != nil {
			return at(to, err)
		}
	}
}

func writeAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Write(fd, p)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func setTimesOf(fd int, st *syscall.Stat_t) error {
	times := times(st.Mtim.Nano())
	return unix.UtimesNanoAt(unix.AT_FDCWD, "/proc/self/fd/"+itoa(fd), times, 0)
}

func setTimes(p string, st *syscall.Stat_t) error {
	return unix.UtimesNanoAt(unix.AT_FDCWD, p, times(st.Mtim.Nano()), unix.AT_SYMLINK_NOFOLLOW)
}

// times are those for utimensat: the access time stays.
func times(modifiedNs int64) []unix.Timespec {
	return []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(modifiedNs)}
}
