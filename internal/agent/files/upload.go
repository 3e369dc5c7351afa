package files

import (
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent/sysfile"
	"github.com/pandovm/pando/internal/link"
)

const (
	// maxUploads bounds the uploads that are open at one time.
	maxUploads = 32
	// uploadIdle is how long an upload may be left alone before it is dropped.
	uploadIdle = time.Hour
)

// uploads are those that are open. They live in this process: so they outlive the
// daemon, are paused with the VM, and a fork's child has its own copy.
type uploads struct {
	mu   sync.Mutex
	open map[string]*upload
}

// upload is content that arrives in parts. Its draft is used by who holds turn.
type upload struct {
	id   string
	size int64
	turn sync.Mutex

	// All below is guarded by uploads.mu; draft's fields by turn.
	draft      *draft
	received   int64
	committing bool
	gone       bool
	expire     *time.Timer
}

func (r *request) uploadOperation() func() error {
	switch r.order.Op {
	case link.UploadOpen:
		return r.uploadOpen
	case link.UploadWrite:
		return r.uploadWrite
	case link.UploadStatus:
		return r.uploadStatus
	case link.UploadAbort:
		return r.uploadAbort
	case link.UploadCommit:
		return r.uploadCommit
	case link.UploadRead:
		return r.uploadRead
	default:
		return nil
	}
}

func (r *request) uploadOpen() error {
	if err := r.uploads.full(); err != nil {
		return err
	}
	d, err := r.newDraft()
	if err != nil {
		return err
	}
	r.sweep(parent(d.path))
	u := &upload{id: r.order.ID, size: r.order.Size, draft: d}
	if err := r.uploads.add(u); err != nil {
		return d.close(err)
	}
	r.uploads.report(u, &r.done)
	return nil
}

func (us *uploads) full() error {
	us.mu.Lock()
	defer us.mu.Unlock()
	if len(us.open) >= maxUploads {
		return refuse(link.FileTooMany, "", "%d uploads are open", len(us.open))
	}
	return nil
}

func (us *uploads) add(u *upload) error {
	us.mu.Lock()
	defer us.mu.Unlock()
	if len(us.open) >= maxUploads || us.open[u.id] != nil {
		return refuse(link.FileTooMany, "", "%d uploads are open", len(us.open))
	}
	us.open[u.id] = u
	u.expire = time.AfterFunc(uploadIdle, func() { _ = us.drop(u) })
	return nil
}

// sweep removes drafts in the folder that no upload of ours owns and nobody has
// touched for long: what an agent that ended in the middle left behind.
func (r *request) sweep(dir string) {
	fd, err := openat(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	_ = eachName(fd, func(name string) error {
		p := dir + "/" + name
		if !strings.HasPrefix(name, tempPrefix) || !strings.HasSuffix(name, ".part") || r.uploads.owns(p) {
			return nil
		}
		if st, err := lstat(p); err == nil && kind(st.Mode) == link.ModeFile &&
			time.Since(time.Unix(st.Mtim.Unix())) > 2*uploadIdle {
			_ = syscall.Unlink(p)
		}
		return nil
	})
}

func (us *uploads) owns(temp string) bool {
	us.mu.Lock()
	defer us.mu.Unlock()
	for _, u := range us.open {
		if u.draft.temp == temp {
			return true
		}
	}
	return false
}

// find returns the upload of that id, which is used now.
func (us *uploads) find(id string) (*upload, error) {
	us.mu.Lock()
	defer us.mu.Unlock()
	u := us.open[id]
	if u == nil {
		return nil, refuse(link.FileNoUpload, id, "no such upload")
	}
	u.expire.Reset(uploadIdle)
	return u, nil
}

// take is find for who wants to use the draft; it waits for its turn. The caller
// unlocks turn.
func (us *uploads) take(id string) (*upload, error) {
	u, err := us.find(id)
	if err != nil {
		return nil, err
	}
	u.turn.Lock()
	us.mu.Lock()
	defer us.mu.Unlock()
	if u.gone {
		u.turn.Unlock()
		return nil, refuse(link.FileNoUpload, id, "no such upload")
	}
	return u, nil
}

func (us *uploads) report(u *upload, to *link.FileDone) {
	us.mu.Lock()
	defer us.mu.Unlock()
	to.ID, to.Path, to.Size, to.Received = u.id, u.draft.path, u.size, u.received
}

// drop forgets an upload and removes its content.
func (us *uploads) drop(u *upload) error {
	us.mu.Lock()
	if u.committing {
		us.mu.Unlock()
		return refuse(link.FileCommitting, u.id, "the upload is being committed")
	}
	gone := u.gone
	u.gone = true
	delete(us.open, u.id)
	u.expire.Stop()
	us.mu.Unlock()
	if gone {
		return nil
	}
	_ = syscall.Unlink(u.draft.temp) // who writes at this moment writes into nothing
	go func() {
		u.turn.Lock()
		defer u.turn.Unlock()
		_ = syscall.Close(u.draft.fd)
	}()
	return nil
}

func (r *request) uploadWrite() error {
	u, err := r.uploads.take(r.order.ID)
	if err != nil {
		return err
	}
	defer u.turn.Unlock()
	r.order.Path = u.draft.path
	switch offset := r.order.Offset; {
	case offset < u.received:
		r.uploads.report(u, &r.done)
		return nil
	case offset > u.received:
		return &refusal{link.FileRefusal{Cause: link.FileGap, Path: u.draft.path, Size: u.received, Text: "a gap"}}
	}
	n, err := r.receive(u.draft.fd, u.received, u.size-u.received)
	if err != nil {
		return err
	}
	if err := r.uploads.advance(u, n); err != nil {
		return err
	}
	r.uploads.report(u, &r.done)
	return nil
}

// advance says that n bytes more have arrived, in whole. A part that was broken
// off counts as nothing: its sender sends it again.
func (us *uploads) advance(u *upload, n int64) error {
	us.mu.Lock()
	defer us.mu.Unlock()
	if u.gone {
		return refuse(link.FileNoUpload, u.id, "no such upload")
	}
	u.received += n
	u.expire.Reset(uploadIdle)
	return nil
}

func (r *request) uploadStatus() error {
	u, err := r.uploads.find(r.order.ID)
	if err != nil {
		return err
	}
	r.uploads.report(u, &r.done)
	return nil
}

func (r *request) uploadAbort() error {
	u, err := r.uploads.find(r.order.ID)
	if err != nil {
		return err
	}
	return r.uploads.drop(u)
}

// uploadRead sends what has arrived, for who must check it again.
func (r *request) uploadRead() error {
	u, err := r.uploads.take(r.order.ID)
	if err != nil {
		return err
	}
	defer u.turn.Unlock()
	var st syscall.Stat_t
	if err := syscall.Fstat(u.draft.fd, &st); err != nil {
		return at(u.draft.path, err)
	}
	r.order.Offset, r.order.Length = 0, u.received
	return r.sendFile(u.draft.path, u.draft.fd, &st)
}

func (r *request) uploadCommit() error {
	u, err := r.uploads.find(r.order.ID)
	if err == nil {
		err = r.uploads.beginCommit(u)
	}
	if err != nil {
		return err
	}
	u.turn.Lock()
	err = r.commit(u)
	u.turn.Unlock()
	r.uploads.endCommit(u, err == nil)
	return err
}

func (us *uploads) beginCommit(u *upload) error {
	us.mu.Lock()
	defer us.mu.Unlock()
	switch {
	case u.gone:
		return refuse(link.FileNoUpload, u.id, "no such upload")
	case u.committing:
		return refuse(link.FileCommitting, u.id, "the upload is being committed")
	}
	u.committing = true
	return nil
}

func (us *uploads) endCommit(u *upload, done bool) {
	us.mu.Lock()
	defer us.mu.Unlock()
	u.committing = false
	if done {
		u.gone = true
		u.expire.Stop()
		delete(us.open, u.id)
	}
}

// commit puts a complete upload in its place.
func (r *request) commit(u *upload) error {
	if u.received != u.size {
		return refuse(link.FileIncomplete, u.draft.path, "%d bytes of %d", u.received, u.size)
	}
	d := u.draft
	// A part that was broken off may have left something behind the end.
	if err := syscall.Ftruncate(d.fd, u.size); err != nil {
		return at(d.path, err)
	}
	// What is there now decides, not what was there when the upload began.
	if st, err := lstat(d.path); err == nil {
		if err := wantRegular(d.path, st.Mode); err != nil {
			return err
		}
	} else if err := mkdirAll(parent(d.path), parentMode, d.owner); err != nil {
		return err
	}
	if !sysfile.Same(d.temp, "/proc/self/fd/"+itoa(d.fd)) {
		return refuse(link.FileNotFound, d.path, "the content was removed in the guest")
	}
	if err := d.publish(); err != nil {
		return err
	}
	return at(d.path, syscall.Close(d.fd))
}
