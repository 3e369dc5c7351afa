package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/link"
)

// FileSink takes what the agent says during an operation on files. The payload
// is valid during the call. An error ends the operation.
type FileSink func(t link.FrameType, payload []byte) error

// Files carries an operation on files out and returns how it ended. Content
// follows the order if the operation takes some; an error of its reader takes the
// order back, and is then the error of the call. sink gets infos, data and events
// as they come; it may be nil.
//
// A refusal by the guest is a fault with a reason; a guest that stops answering,
// or answers with nonsense, is fault VM_NON_RESPONSIVE.
func (l *Link) Files(ctx context.Context, o link.FileOrder, content io.Reader, sink FileSink) (link.FileDone, error) {
	e, err := l.openFiles(ctx, o, content)
	if err != nil {
		return link.FileDone{}, err
	}
	defer e.Close()
	frames := link.NewFrameReader(e.body)
	for {
		t, payload, done, err := e.nextOfFiles(o, frames)
		if err != nil || done != nil {
			return orZeroDone(done), err
		}
		if sink == nil {
			continue
		}
		if err := sink(t, payload); err != nil {
			return link.FileDone{}, err
		}
	}
}

func orZeroDone(d *link.FileDone) link.FileDone {
	if d == nil {
		return link.FileDone{}
	}
	return *d
}

func (l *Link) openFiles(ctx context.Context, o link.FileOrder, content io.Reader) (*exchange, error) {
	record, _ := o.MarshalBinary()
	var body io.Reader = bytes.NewReader(link.AppendFrame(nil, link.FrameFileOrder, record))
	if content == nil {
		return l.open(ctx, link.PathFiles, body)
	}
	source := &contentReader{r: content}
	// Hidden in a struct: the client would otherwise look for a length in it.
	e, err := l.open(ctx, link.PathFiles, struct{ io.Reader }{io.MultiReader(body, source)})
	if err != nil {
		if cause := source.failed.Load(); cause != nil {
			return nil, *cause
		}
	}
	return e, err
}

// contentReader remembers what its reader failed with. The client may still read
// when the exchange is over.
type contentReader struct {
	r      io.Reader
	failed atomic.Pointer[error]
}

// Read implements io.Reader.
func (c *contentReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		c.failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// nextOfFiles returns the next frame, or how the operation ended.
func (e *exchange) nextOfFiles(o link.FileOrder, frames *link.FrameReader) (link.FrameType, []byte, *link.FileDone, error) {
	for {
		t, payload, err := frames.Next()
		if err != nil {
			return 0, nil, nil, e.broken(err)
		}
		switch t {
		case link.FrameFileInfo, link.FrameFileData, link.FrameFileEvent:
			return t, payload, nil, nil
		case link.FrameFileDone:
			var done link.FileDone
			if err := done.UnmarshalBinary(payload); err != nil {
				return 0, nil, nil, e.broken(err)
			}
			return t, nil, &done, nil
		case link.FrameFileRefused:
			var r link.FileRefusal
			if err := r.UnmarshalBinary(payload); err != nil {
				return 0, nil, nil, e.broken(err)
			}
			return t, nil, nil, fileRefused(o, r)
		default: // a newer agent may say more than we understand
		}
	}
}

// FileContent is the content of a file on its way. Close ends it, read to the
// end or not.
type FileContent struct {
	// Info says what follows.
	Info link.FileInfo

	e      *exchange
	order  link.FileOrder
	frames *link.FrameReader
	rest   []byte
	left   int64 // -1 if nobody knows
	err    error
}

// OpenFile starts a FileRead or UploadRead and returns when the guest has said
// what it will send.
func (l *Link) OpenFile(ctx context.Context, o link.FileOrder) (*FileContent, error) {
	e, err := l.openFiles(ctx, o, nil)
	if err != nil {
		return nil, err
	}
	c := &FileContent{e: e, order: o, frames: link.NewFrameReader(e.body)}
	if err := c.begin(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *FileContent) begin() error {
	t, payload, done, err := c.e.nextOfFiles(c.order, c.frames)
	if err == nil && (done != nil || t != link.FrameFileInfo) {
		err = c.e.broken(link.ErrFrame)
	}
	if err != nil {
		return err
	}
	if err := c.Info.UnmarshalBinary(payload); err != nil {
		return c.e.broken(err)
	}
	i := &c.Info
	if i.Offset < 0 || i.Length < -1 || i.Length >= 0 && (i.Size < 0 || i.Offset > i.Size || i.Length > i.Size-i.Offset) {
		return c.e.broken(fmt.Errorf("impossible range: %w", link.ErrFrame))
	}
	c.left = i.Length
	return nil
}

// Read implements io.Reader. A content that the guest breaks off is an error,
// never io.EOF.
func (c *FileContent) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		if err := c.fill(); err != nil {
			c.err = err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// WriteTo implements io.WriterTo, without a copy in between.
func (c *FileContent) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for {
		if len(c.rest) > 0 {
			n, err := w.Write(c.rest)
			total += int64(n)
			c.rest = c.rest[n:]
			if err != nil {
				return total, err
			}
		}
		if errors.Is(c.err, io.EOF) {
			return total, nil
		}
		if c.err != nil {
			return total, c.err
		}
		c.err = c.fill()
	}
}

func (c *FileContent) fill() error {
	t, payload, done, err := c.e.nextOfFiles(c.order, c.frames)
	switch {
	case err != nil:
		return err
	case done != nil && c.left > 0:
		return c.e.broken(io.ErrUnexpectedEOF)
	case done != nil:
		return io.EOF
	case t != link.FrameFileData || c.left >= 0 && int64(len(payload)) > c.left:
		return c.e.broken(link.ErrFrame)
	}
	if c.left >= 0 {
		c.left -= int64(len(payload))
	}
	c.rest = payload
	return nil
}

// Close ends the exchange.
func (c *FileContent) Close() { c.e.Close() }

// fileRefused makes the error of an operation that the guest refused.
func fileRefused(o link.FileOrder, r link.FileRefusal) error {
	field, p := "path", o.Path
	if r.Path != "" {
		p = r.Path
	}
	if o.Op == link.FileCopy || o.Op == link.FileMove {
		field = "from"
		if r.Path != o.Path && (o.To == r.Path || r.Cause != link.FileNotFound) {
			field = "to"
		}
	}
	f := refusalFault(r, field, shown(p))
	if f == nil {
		return fmt.Errorf("file operation %d in the guest: agent reports %.300q", o.Op, r.Text)
	}
	return f.With(fmt.Errorf("agent reports %.300q", r.Text))
}

// shown is a path as a message has it: the guest may have said anything.
func shown(p string) string { return fmt.Sprintf("%.1000q", p) }

func refusalFault(r link.FileRefusal, field, p string) *fault.Error {
	bad := func(reason api.Reason, remedy, format string, args ...any) *fault.Error {
		f := fault.BadField(field, format, args...).Hint("%s", remedy)
		f.Reason = reason
		return f
	}
	conflict := func(reason api.Reason, remedy, format string, args ...any) *fault.Error {
		f := fault.Conflict(reason, field+": "+format, args...).Hint("%s", remedy)
		f.Field = field
		return f
	}
	switch r.Cause {
	case link.FileNotFound:
		return &fault.Error{
			Code: api.CodeNotFound, Reason: api.ReasonFileNotFound, Field: field,
			Message: field + ": nothing is at " + p, Remedy: "list the folder above it",
		}
	case link.FileNotAFile:
		return bad(api.ReasonNotAFile, "name a regular file; FIFOs, sockets and devices have no content to move", "%s is %.60s", p, plainText(r.Text))
	case link.FileNotADir:
		return bad(api.ReasonNotADirectory, "name a folder", "%s, or a part of it, is not a folder", p)
	case link.FileExists:
		return conflict(api.ReasonFileExists, "choose another path, set overwrite, or remove what is there", "something is at %s already", p)
	case link.FileNoSpace:
		return conflict(api.ReasonGuestDiskFull, "remove files in the guest, or give the vm a larger disk", "the guest has no room for %s", p)
	case link.FileTooLarge:
		return bad("", "use another file system", "the guest's file system takes no file that large at %s", p)
	case link.FileReadOnly:
		return conflict(api.ReasonReadOnlyFileSystem, "choose a path on a file system that takes writes", "%s is on a file system that takes no writes", p)
	case link.FileDenied:
		return conflict(api.ReasonFileDenied, "look at the file's attributes in the guest: lsattr", "the guest's kernel refuses it at %s", p)
	case link.FileBadPath:
		return bad("", "use a shorter path without loops of symbolic links, and not one inside of the source", "%s cannot be used", p)
	case link.FileBusy:
		return conflict(api.ReasonFileBusy, "end what uses it, or unmount it", "%s is in use in the guest", p)
	default:
		return otherFault(r, p)
	}
}

// otherFault is about what is no path of the order.
func otherFault(r link.FileRefusal, p string) *fault.Error {
	switch r.Cause {
	case link.FileNoOwner:
		return fault.BadField("owner", "the guest has no account %s", p).Hint("name one of the guest's /etc/passwd, or a number")
	case link.FileNoGroup:
		return fault.BadField("group", "the guest has no group %s", p).Hint("name one of the guest's /etc/group, or a number")
	case link.FileRange:
		f := &fault.Error{
			Code: api.CodeRangeNotSatisfiable, Field: "Range", Available: max(0, r.Size),
			Message: fmt.Sprintf("Range: nothing of it is in the file, which has %d bytes", max(0, r.Size)),
		}
		return f.Hint("ask for bytes within the file")
	case link.FileBadEntry:
		f := fault.BadField("body", "the archive's entry %s: %s", p, plainText(r.Text)).Hint("pack regular files, folders and links that stay within the folder")
		f.Reason = api.ReasonBadArchive
		return f
	case link.FileNoUpload:
		return &fault.Error{
			Code: api.CodeNotFound, Reason: api.ReasonUploadNotFound, Message: "no upload of this vm has that id",
			Remedy: "an upload ends an hour after its last use and with the guest's agent: begin a new one",
		}
	case link.FileTooMany:
		return fault.Conflict(api.ReasonTooMany, "too many of these are open in this vm: %s", plainText(r.Text)).Hint("end one, or wait until it expires")
	case link.FileGap:
		f := fault.Conflict(api.ReasonUploadGap, "offset: the chunk begins beyond the %d bytes received", max(0, r.Size))
		f.Field = "offset"
		return f.Hint("go on at offset %d", max(0, r.Size))
	case link.FileOverrun:
		return fault.BadField("body", "has more bytes than announced").Hint("send what the size says")
	case link.FileIncomplete:
		f := fault.BadField("size", "not all bytes have arrived: %s", plainText(r.Text)).Hint("send the rest, then commit again")
		f.Reason = api.ReasonUploadIncomplete
		return f
	case link.FileCommitting:
		return fault.Conflict(api.ReasonUploadCommitting, "the upload is being committed").Hint("wait until it is done")
	default:
		return nil
	}
}

// plainText is a text of the agent's that is shown to users.
func plainText(s string) string {
	const longest = 120
	out := make([]byte, 0, longest)
	for _, c := range []byte(s[:min(len(s), longest)]) {
		if c >= ' ' && c <= '~' {
			out = append(out, c)
		}
	}
	return string(out)
}
