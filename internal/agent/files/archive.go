package files

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/link"
)

// maxHardlinks bounds the files with several names that an archive remembers;
// further ones are sent once per name.
const maxHardlinks = 64 << 10

// archiver sends a tree.
type archiver struct {
	r    *request
	root string
	buf  []byte
	// seen holds the first names of files that have several.
	seen map[inode]string
}

type inode struct{ dev, ino uint64 }

func (r *request) archive() error {
	p, err := checked(r.order.Path)
	if err == nil {
		p, err = follow(p) // the tree's own name may be a link; those within are kept
	}
	if err != nil {
		return err
	}
	st, err := lstat(p)
	if err != nil {
		return at(p, err)
	}
	a := &archiver{r: r, root: p, buf: make([]byte, link.FrameHeader+readBuffer), seen: map[inode]string{}}
	switch kind(st.Mode) {
	case link.ModeDir, link.ModeFile, link.ModeSymlink:
	default:
		return refuse(link.FileNotAFile, p, "%s", kindName(st.Mode))
	}
	if err := a.entry("", &st); err != nil || kind(st.Mode) != link.ModeDir {
		return err
	}
	return r.walk(p, 0, a.entry)
}

func (a *archiver) entry(name string, st *syscall.Stat_t) error {
	p := join(a.root, name)
	switch kind(st.Mode) {
	case link.ModeDir:
		return a.r.sendInfo(a.r.info(name, st))
	case link.ModeSymlink:
		info, err := a.r.describe(p, name)
		if isGone(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return a.r.sendInfo(info)
	case link.ModeFile:
		return a.file(p, name, st)
	}
	a.r.done.Skipped++
	return nil
}

func (a *archiver) file(p, name string, st *syscall.Stat_t) error {
	if st.Nlink > 1 {
		id := inode{st.Dev, st.Ino}
		if first, ok := a.seen[id]; ok {
			info := a.r.info(name, st)
			info.LinkTo, info.Size = first, 0
			return a.r.sendInfo(info)
		}
		if len(a.seen) < maxHardlinks {
			a.seen[id] = name
		}
	}
	fd, now, err := openFile(p)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	info := a.r.info(name, now)
	if info.Size == 0 {
		return a.small(p, fd, info)
	}
	if err := a.r.sendInfo(info); err != nil {
		return err
	}
	return a.content(p, fd, info.Size)
}

// small sends a file that says to be empty, and may be one of /proc.
func (a *archiver) small(p string, fd int, info link.FileInfo) error {
	n, ended, err := readFirst(fd, a.buf[link.FrameHeader:], 0)
	if errors.Is(err, unix.EAGAIN) {
		n, ended, err = 0, true, nil
	}
	if err != nil {
		return at(p, err)
	}
	if !ended {
		return refuse(link.FileNotAFile, p, "without a size, and long")
	}
	info.Size = int64(n)
	if err := a.r.sendInfo(info); err != nil || n == 0 {
		return err
	}
	return sendData(a.r.st, a.buf, n)
}

// content sends exactly size bytes: a file that has become shorter since is
// filled up with zeros, as the size is already out.
func (a *archiver) content(p string, fd int, size int64) error {
	room := a.buf[link.FrameHeader:]
	for off := int64(0); off < size; {
		want := int(min(int64(len(room)), size-off))
		n, err := preadOnce(fd, room[:want], off)
		if err != nil {
			return at(p, err)
		}
		if n == 0 {
			n = want
			clear(room[:n])
		}
		if err := sendData(a.r.st, a.buf, n); err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}
