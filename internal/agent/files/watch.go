package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent/sysfile"
	"github.com/pandovm/pando/internal/link"
)

const (
	// maxWatches bounds the watches at one time, maxWatched the folders of each.
	maxWatches = 32
	maxWatched = 8192
	// moveGap is how long the second half of a move is waited for.
	moveGap = 20 * time.Millisecond

	watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK
)

// errRootGone ends a watch whose subject is gone.
var errRootGone = errors.New("what was watched is gone")

// watcher follows one path.
type watcher struct {
	r    *request
	fd   int
	file *os.File
	// root is the folder watched; only is the one name in it that counts, if it is
	// not the folder itself that was asked for.
	root, only string
	paths      map[int32]string
	// from is the first half of a move whose second half may follow.
	from *moved
}

type moved struct {
	path   string
	cookie uint32
	dir    bool
}

func (r *request) watch() error {
	p, err := checked(r.order.Path)
	if err != nil {
		return err
	}
	if r.watches.Add(1) > maxWatches {
		r.watches.Add(-1)
		return refuse(link.FileTooMany, p, "%d watches", maxWatches)
	}
	defer r.watches.Add(-1)
	st, err := sysfile.Stat(p, true)
	if err != nil {
		return at(p, err)
	}
	w := &watcher{r: r, root: p, paths: map[int32]string{}}
	if kind(st.Mode) != link.ModeDir {
		w.root, w.only = parent(p), base(p)
		r.order.Recursive = false
	}
	w.fd, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return refuse(link.FileTooMany, p, "%s", err.Error())
	}
	w.file = os.NewFile(uintptr(w.fd), "inotify")
	defer func() { _ = w.file.Close() }()
	return w.run()
}

func (w *watcher) run() error {
	if err := w.add(w.root, false); err != nil {
		return err
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-w.r.st.Done():
			_ = w.file.SetReadDeadline(time.Unix(1, 0))
		case <-ended:
		}
	}()
	if err := w.send(link.FileWatching, w.subject(), "", false); err != nil {
		return err
	}
	err := w.follow()
	if errors.Is(err, errRootGone) {
		return nil
	}
	return err
}

func (w *watcher) subject() string {
	if w.only != "" {
		return w.root + "/" + w.only
	}
	return w.root
}

func (w *watcher) follow() error {
	buf := make([]byte, 16<<10)
	for {
		if w.from != nil {
			_ = w.file.SetReadDeadline(time.Now().Add(moveGap))
		}
		n, err := w.file.Read(buf)
		if abandoned := w.r.abandoned(); abandoned != nil {
			return abandoned
		}
		_ = w.file.SetReadDeadline(time.Time{})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if err := w.flushMove(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		if err := w.batch(buf[:n]); err != nil {
			return err
		}
	}
}

func (w *watcher) batch(b []byte) error {
	for len(b) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(b))
		mask := binary.NativeEndian.Uint32(b[4:])
		cookie := binary.NativeEndian.Uint32(b[8:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		if end > len(b) {
			return errors.New("malformed event")
		}
		name := string(bytes.TrimRight(b[unix.SizeofInotifyEvent:end], "\x00"))
		b = b[end:]
		if err := w.event(wd, mask, cookie, name); err != nil {
			return err
		}
	}
	return nil
}

func (w *watcher) event(wd int32, mask, cookie uint32, name string) error {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		return w.overflow()
	}
	dir, known := w.paths[wd]
	if !known {
		return nil
	}
	if mask&unix.IN_IGNORED != 0 {
		delete(w.paths, wd)
		return nil
	}
	if name == "" {
		return w.self(dir, mask)
	}
	if w.only != "" && name != w.only {
		return nil
	}
	return w.entry(dir+strings.Repeat("/", min(1, len(dir)-1))+name, mask, cookie)
}

// self is about a watched folder, of which the folder above tells as well unless
// it is the root.
func (w *watcher) self(dir string, mask uint32) error {
	if dir != w.root {
		return nil
	}
	switch {
	case mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0:
		if err := w.send(link.FileRemoved, w.subject(), "", w.only == ""); err != nil {
			return err
		}
		return errRootGone
	case mask&unix.IN_ATTRIB != 0 && w.only == "":
		return w.send(link.FileAttributes, dir, "", true)
	}
	return nil
}

func (w *watcher) entry(p string, mask, cookie uint32) error {
	dir := mask&unix.IN_ISDIR != 0
	if mask&unix.IN_MOVED_TO == 0 || w.from == nil || w.from.cookie != cookie {
		if err := w.flushMove(); err != nil {
			return err
		}
	}
	switch {
	case mask&unix.IN_MOVED_FROM != 0:
		w.from = &moved{p, cookie, dir}
		return nil
	case mask&unix.IN_MOVED_TO != 0 && w.from != nil:
		from := w.from.path
		w.from = nil
		w.rename(from, p)
		return w.send(link.FileMoved, p, from, dir)
	case mask&(unix.IN_MOVED_TO|unix.IN_CREATE) != 0:
		if err := w.send(link.FileCreated, p, "", dir); err != nil || !dir || !w.r.order.Recursive {
			return err
		}
		return w.add(p, true)
	case mask&unix.IN_DELETE != 0:
		return w.send(link.FileRemoved, p, "", dir)
	case mask&unix.IN_MODIFY != 0:
		return w.send(link.FileModified, p, "", dir)
	case mask&unix.IN_ATTRIB != 0:
		return w.send(link.FileAttributes, p, "", dir)
	}
	return nil
}

// flushMove reports a move whose second half did not come: the file is out of
// sight.
func (w *watcher) flushMove() error {
	m := w.from
	if m == nil {
		return nil
	}
	w.from = nil
	if m.dir {
		w.forget(m.path)
	}
	return w.send(link.FileRemoved, m.path, "", m.dir)
}

// rename follows the folders below a path that was moved.
func (w *watcher) rename(from, to string) {
	for wd, p := range w.paths {
		if p == from || strings.HasPrefix(p, from+"/") {
			w.paths[wd] = to + p[len(from):]
		}
	}
}

func (w *watcher) forget(p string) {
	for wd, q := range w.paths {
		if q == p || strings.HasPrefix(q, p+"/") {
			_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
			delete(w.paths, wd)
		}
	}
}

// add watches the folder p and, if the order is recursive, those below it. With
// report it tells of what is already in them: it came before the watch did.
func (w *watcher) add(p string, report bool) error {
	if err := w.addOne(p); err != nil || !w.r.order.Recursive {
		return w.tolerate(p, err)
	}
	err := w.r.walk(p, 0, func(name string, st *syscall.Stat_t) error {
		dir := kind(st.Mode) == link.ModeDir
		q := strings.TrimSuffix(p, "/") + "/" + name
		if report {
			if err := w.send(link.FileCreated, q, "", dir); err != nil {
				return err
			}
		}
		if dir {
			return w.tolerate(q, w.addOne(q))
		}
		return nil
	})
	return w.tolerate(p, err)
}

// tolerate drops the error of a folder below the root that is gone by now.
func (w *watcher) tolerate(p string, err error) error {
	if p != w.root && isGone(err) {
		return nil
	}
	return err
}

func (w *watcher) addOne(p string) error {
	if len(w.paths) >= maxWatched {
		return refuse(link.FileTooMany, p, "%d watched folders", len(w.paths))
	}
	wd, err := unix.InotifyAddWatch(w.fd, p, watchMask)
	if errors.Is(err, unix.ENOSPC) {
		return refuse(link.FileTooMany, p, "the kernel watches no more folders")
	}
	if err != nil {
		return at(p, err)
	}
	w.paths[int32(wd)] = p
	return nil
}

// overflow says that events were lost, after watching again what is there now.
func (w *watcher) overflow() error {
	w.from = nil
	if err := w.add(w.root, false); err != nil {
		return err
	}
	return w.send(link.FileRescan, w.subject(), "", false)
}

func (w *watcher) send(k link.FileEventKind, p, from string, dir bool) error {
	body, _ := link.FileEvent{Kind: k, Path: p, From: from, Dir: dir}.MarshalBinary()
	return w.r.send(link.FrameFileEvent, body)
}
