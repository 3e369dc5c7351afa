package files

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/agent/process"
	"github.com/pandovm/pando/internal/link"
)

// Service serves orders. It is safe for concurrent use.
type Service struct {
	accounts process.Accounts
	uploads  uploads
	watches  atomic.Int32
}

// New returns a service for the guest whose accounts these are.
func New(accounts process.Accounts) *Service {
	return &Service{accounts: accounts, uploads: uploads{open: map[string]*upload{}}}
}

// request is one order under way.
type request struct {
	*Service
	st    *http2.Stream
	order link.FileOrder
	// frames are those that follow the order.
	frames *link.FrameReader
	done   link.FileDone
	// names holds the accounts once somebody asked.
	names *process.Names
	// out is the buffer of send.
	out []byte
}

// Serve serves one PathFiles request.
func (s *Service) Serve(st *http2.Stream) {
	r := &request{Service: s, st: st, frames: link.NewFrameReader(st)}
	if err := r.serve(); err != nil {
		body, _ := refusalOf(err).MarshalBinary()
		_, _ = st.Write(link.AppendFrame(nil, link.FrameFileRefused, body))
		return
	}
	body, _ := r.done.MarshalBinary()
	_, _ = st.Write(link.AppendFrame(nil, link.FrameFileDone, body))
}

func (r *request) serve() error {
	t, payload, err := r.frames.Next()
	if err == nil && t != link.FrameFileOrder {
		err = link.ErrFrame
	}
	if err == nil {
		err = r.order.UnmarshalBinary(payload)
	}
	if err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	if o := r.operation(); o != nil {
		return o()
	}
	return fmt.Errorf("unknown operation %d", r.order.Op)
}

func (r *request) operation() func() error {
	switch r.order.Op {
	case link.FileStat:
		return r.stat
	case link.FileList:
		return r.list
	case link.FileMkdir:
		return r.mkdir
	case link.FileRemove:
		return r.remove
	case link.FileRead:
		return r.read
	case link.FileWrite:
		return r.write
	case link.FileCopy:
		return r.copy
	case link.FileMove:
		return r.move
	case link.FileChmod:
		return r.chmod
	case link.FileChown:
		return r.chown
	case link.FileArchive:
		return r.archive
	case link.FileExtract:
		return r.extract
	case link.FileWatch:
		return r.watch
	default:
		return r.uploadOperation()
	}
}

// send sends a frame. An error says that nobody listens any more.
func (r *request) send(t link.FrameType, payload []byte) error {
	r.out = link.AppendFrame(r.out[:0], t, payload)
	_, err := r.st.Write(r.out)
	return err
}

func (r *request) sendInfo(i link.FileInfo) error {
	body, _ := i.MarshalBinary()
	return r.send(link.FrameFileInfo, body)
}

// refusal is a failure whose cause the host is told.
type refusal struct {
	link.FileRefusal
}

func (r *refusal) Error() string { return r.Path + ": " + r.Text }

func refuse(cause link.FileCause, path, format string, args ...any) error {
	return &refusal{link.FileRefusal{Cause: cause, Path: path, Text: fmt.Sprintf(format, args...)}}
}

// at makes the error of a system call on path.
func at(path string, err error) error {
	if err == nil {
		return nil
	}
	return refuse(causeOf(err), path, "%s", err.Error())
}

func refusalOf(err error) link.FileRefusal {
	const longest = 4096
	out := link.FileRefusal{Text: err.Error()}
	if r, ok := errors.AsType[*refusal](err); ok {
		out = r.FileRefusal
	} else {
		out.Cause = causeOf(err)
	}
	out.Text = out.Text[:min(len(out.Text), longest)]
	out.Path = out.Path[:min(len(out.Path), longest)]
	return out
}

func causeOf(err error) link.FileCause {
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		return link.FileFailed
	}
	switch errno {
	case syscall.ENOENT:
		return link.FileNotFound
	case syscall.ENOTDIR:
		return link.FileNotADir
	case syscall.EISDIR, syscall.ENXIO, syscall.ENODEV:
		return link.FileNotAFile
	case syscall.EEXIST, syscall.ENOTEMPTY:
		return link.FileExists
	case syscall.ENOSPC, syscall.EDQUOT:
		return link.FileNoSpace
	case syscall.EFBIG:
		return link.FileTooLarge
	case syscall.EROFS, syscall.EOPNOTSUPP:
		return link.FileReadOnly
	case syscall.EACCES, syscall.EPERM:
		return link.FileDenied
	case syscall.ENAMETOOLONG, syscall.ELOOP, syscall.EINVAL, syscall.EXDEV:
		return link.FileBadPath
	case syscall.EBUSY, syscall.ETXTBSY:
		return link.FileBusy
	default:
		return link.FileFailed
	}
}
