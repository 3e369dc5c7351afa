package files

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/agent/sysfile"
	"github.com/pandovm/pando/internal/link"
)

func (r *request) write() error {
	d, err := r.newDraft()
	if err != nil {
		return err
	}
	n, err := r.receive(d.fd, 0, r.order.Size)
	switch {
	case err != nil:
	case r.order.Size >= 0 && n != r.order.Size:
		err = refuse(link.FileIncomplete, r.order.Path, "%d bytes of %d", n, r.order.Size)
	default:
		err = d.publish()
	}
	return d.close(err)
}

// draft is content on its way into a file.
type draft struct {
	// path is the file that will be replaced, temp where the content is till then.
	path, temp string
	fd         int
	mode       uint32
	owner      owner
	published  bool
}

// newDraft makes a temporary file beside the order's path.
func (r *request) newDraft() (*draft, error) {
	p, err := checked(r.order.Path)
	if err == nil {
		p, err = follow(p)
	}
	if err != nil {
		return nil, err
	}
	d := &draft{path: p, mode: newMode}
	st, err := lstat(p)
	switch {
	case err == nil:
		err = r.overExisting(d, &st)
	case errors.Is(err, syscall.ENOENT):
		err = r.intoNew(d)
	default:
		err = at(p, err)
	}
	if err != nil {
		return nil, err
	}
	if r.order.HasMode {
		d.mode = r.order.Mode & 0o7777
	}
	d.temp = parent(p) + "/" + tempName()
	d.fd, err = sysfile.Open(d.temp, syscall.O_RDWR|syscall.O_CREAT|syscall.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, at(p, err)
	}
	return d, nil
}

// overExisting keeps what the order does not change of the file that is there.
func (r *request) overExisting(d *draft, st *syscall.Stat_t) error {
	if err := wantRegular(d.path, st.Mode); err != nil {
		return err
	}
	var err error
	d.owner, err = r.namedOwner()
	if d.owner.uid < 0 {
		d.owner.uid = int(st.Uid)
	}
	if d.owner.gid < 0 {
		d.owner.gid = int(st.Gid)
	}
	d.mode = st.Mode & 0o7777
	return err
}

// intoNew makes the folder.
func (r *request) intoNew(d *draft) error {
	var err error
	if d.owner, err = r.newOwner(); err != nil {
		return err
	}
	return mkdirAll(parent(d.path), parentMode, d.owner)
}

const tempPrefix = ".pando-"

func tempName() string {
	t := link.NewToken()
	const digits = "0123456789abcdef"
	name := []byte(tempPrefix)
	for _, b := range t {
		name = append(name, digits[b>>4], digits[b&15])
	}
	return string(name) + ".part"
}

// publish puts the content in its place.
func (d *draft) publish() error {
	err := d.owner.apply(d.fd, d.mode)
	if err == nil {
		err = syscall.Rename(d.temp, d.path)
	}
	d.published = err == nil
	return at(d.path, err)
}

// close ends the draft, which leaves nothing behind unless it was published, and
// returns err or what went wrong now.
func (d *draft) close(err error) error {
	if closeErr := syscall.Close(d.fd); err == nil {
		err = at(d.path, closeErr)
	}
	if !d.published {
		_ = syscall.Unlink(d.temp)
	}
	return err
}

// receive writes the rest of the body to fd from offset on. It takes no more than
// limit bytes, if that is not negative, and returns how many there were.
func (r *request) receive(fd int, offset, limit int64) (int64, error) {
	var total int64
	var buf []byte
	for {
		var err error
		if buf, err = r.st.Take(buf, http2.MaxTake); errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, fmt.Errorf("receive: %w", err)
		}
		if limit >= 0 && total+int64(len(buf)) > limit {
			return total, refuse(link.FileOverrun, r.order.Path, "more than the %s bytes announced", strconv.FormatInt(limit, 10))
		}
		if err := pwriteAll(fd, buf, offset+total); err != nil {
			return total, at(r.order.Path, err)
		}
		total += int64(len(buf))
	}
}

func pwriteAll(fd int, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := unix.Pwrite(fd, p, off)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return syscall.ENOSPC
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}
