package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/file"
	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/link"
)

// Linker returns the link to a VM's guest and a context that ends with the VM; the
// caller cancels it.
type Linker func(ctx context.Context, id string) (*guest.Link, context.Context, context.CancelFunc, error)

// Files implements file.Node over guest links. It is safe for concurrent use.
type Files struct{ link Linker }

// NewFiles returns the files of the guests that a linker reaches.
func NewFiles(l Linker) *Files { return &Files{l} }

// Files returns the files of the VMs that run here.
func (n *Node) Files() *Files { return NewFiles(n.filesLink) }

// filesLink returns a VM's link and a context that ends with the VM. It holds no
// lock: operations on files run beside each other and beside captures.
func (n *Node) filesLink(ctx context.Context, id string) (*guest.Link, context.Context, context.CancelFunc, error) {
	m, l, err := n.running(id)
	if err != nil {
		return nil, nil, nil, err
	}
	k, err := n.linked(ctx, m, l)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := l.whileAlive(ctx, unlimited)
	return k, ctx, cancel, nil
}

// unlimited is how long an operation on files may take: who asked decides.
const unlimited = 365 * 24 * time.Hour

// files carries out an operation on files.
func (f *Files) files(ctx context.Context, id string, o link.FileOrder, content io.Reader, sink guest.FileSink) (link.FileDone, error) {
	k, ctx, cancel, err := f.link(ctx, id)
	if err != nil {
		return link.FileDone{}, err
	}
	defer cancel()
	return k.Files(ctx, o, content, sink)
}

// FileStat implements file.Node.
func (f *Files) FileStat(ctx context.Context, id, path string) (file.Info, error) {
	var info file.Info
	got := false
	_, err := f.files(ctx, id, link.FileOrder{Op: link.FileStat, Path: path}, nil, eachInfo(func(i file.Info) error {
		info, got = i, true
		return nil
	}))
	if err == nil && !got {
		err = fmt.Errorf("guest stat: no answer: %w", link.ErrFrame)
	}
	return info, err
}

// eachInfo is a sink of infos.
func eachInfo(f func(file.Info) error) guest.FileSink {
	return func(t link.FrameType, payload []byte) error {
		if t != link.FrameFileInfo {
			return nil
		}
		var i link.FileInfo
		if err := i.UnmarshalBinary(payload); err != nil {
			return err
		}
		return f(infoOf(i))
	}
}

func infoOf(i link.FileInfo) file.Info {
	info := file.Info{
		Name: i.Name, Kind: kindOf(i.Mode), Mode: i.Mode & 0o7777, Size: i.Size, Modified: time.Unix(0, i.ModifiedNs).UTC(),
		UID: int(i.UID), GID: int(i.GID), Owner: i.Owner, Group: i.Group, Target: i.Target, LinkTo: i.LinkTo, Inode: uint64(i.Inode),
	}
	if i.TargetMode != 0 {
		info.TargetKind = kindOf(i.TargetMode)
	}
	return info
}

func kindOf(mode uint32) api.FileKind {
	switch mode & link.ModeType {
	case link.ModeDir:
		return api.FileKindDirectory
	case link.ModeSymlink:
		return api.FileKindSymlink
	case link.ModeFifo:
		return api.FileKindFifo
	case link.ModeSocket:
		return api.FileKindSocket
	case link.ModeChar, link.ModeBlock:
		return api.FileKindDevice
	}
	return api.FileKindFile
}

// FileList implements file.Node.
func (f *Files) FileList(ctx context.Context, id string, l file.List, each func(file.Info) error) error {
	o := link.FileOrder{Op: link.FileList, Path: l.Path, Recursive: l.Recursive, Depth: int64(l.Depth)}
	_, err := f.files(ctx, id, o, nil, eachInfo(each))
	return err
}

// FileChange implements file.Node.
func (f *Files) FileChange(ctx context.Context, id string, c file.Change) error {
	o := link.FileOrder{
		Path: c.Path, To: c.To, Owner: c.Owner, Group: c.Group, Recursive: c.Recursive, Overwrite: c.Overwrite,
	}
	setMode(&o, c.Mode)
	switch c.Kind {
	case file.Mkdir:
		o.Op = link.FileMkdir
	case file.Remove:
		o.Op = link.FileRemove
	case file.Copy:
		o.Op = link.FileCopy
	case file.Move:
		o.Op = link.FileMove
	case file.Chmod:
		o.Op = link.FileChmod
	case file.Chown:
		o.Op = link.FileChown
	}
	_, err := f.files(ctx, id, o, nil, nil)
	return err
}

func setMode(o *link.FileOrder, mode *uint32) {
	if mode != nil {
		o.Mode, o.HasMode = *mode, true
	}
}

// content adapts a guest.FileContent.
type content struct {
	*guest.FileContent
	cancel context.CancelFunc
}

// Info implements file.Content.
func (c *content) Info() file.Info { return infoOf(c.FileContent.Info) }

// Span implements file.Content.
func (c *content) Span() (offset, length int64) {
	return c.FileContent.Info.Offset, c.FileContent.Info.Length
}

// Close implements file.Content.
func (c *content) Close() error {
	c.FileContent.Close()
	c.cancel()
	return nil
}

func (f *Files) openContent(ctx context.Context, id string, o link.FileOrder) (file.Content, error) {
	k, ctx, cancel, err := f.link(ctx, id)
	if err != nil {
		return nil, err
	}
	c, err := k.OpenFile(ctx, o)
	if err != nil {
		cancel()
		return nil, err
	}
	return &content{FileContent: c, cancel: cancel}, nil
}

// FileRead implements file.Node.
func (f *Files) FileRead(ctx context.Context, id, path string, r file.Range) (file.Content, error) {
	o := link.FileOrder{Op: link.FileRead, Path: path, Offset: r.Offset, Length: r.Length}
	if r.Length == 0 && r.Offset >= 0 {
		o.Length = -1
	}
	return f.openContent(ctx, id, o)
}

func writeOrder(op link.FileOp, w file.Write) link.FileOrder {
	o := link.FileOrder{Op: op, Path: w.Path, Owner: w.Owner, Group: w.Group, Size: w.Size}
	setMode(&o, w.Mode)
	return o
}

// FileWrite implements file.Node.
func (f *Files) FileWrite(ctx context.Context, id string, w file.Write, content io.Reader) error {
	_, err := f.files(ctx, id, writeOrder(link.FileWrite, w), content, nil)
	return err
}

// FileWatch implements file.Node.
func (f *Files) FileWatch(ctx context.Context, id, path string, recursive bool, each func(file.Event) error) error {
	o := link.FileOrder{Op: link.FileWatch, Path: path, Recursive: recursive}
	_, err := f.files(ctx, id, o, nil, func(t link.FrameType, payload []byte) error {
		if t != link.FrameFileEvent {
			return nil
		}
		var e link.FileEvent
		if err := e.UnmarshalBinary(payload); err != nil {
			return err
		}
		return each(file.Event{Type: eventOf(e.Kind), Path: e.Path, From: e.From, Dir: e.Dir})
	})
	return err
}

func eventOf(k link.FileEventKind) api.FileEventType {
	switch k {
	case link.FileCreated:
		return api.FileCreated
	case link.FileModified:
		return api.FileModified
	case link.FileRemoved:
		return api.FileRemoved
	case link.FileMoved:
		return api.FileMoved
	case link.FileAttributes:
		return api.FileAttributes
	case link.FileWatching:
		return api.FileWatching
	case link.FileRescan:
	}
	return api.FileRescan // also what a newer agent says and we do not know
}

func uploadOf(d link.FileDone) file.Upload {
	return file.Upload{ID: d.ID, Path: d.Path, Size: d.Size, Received: d.Received}
}

func (f *Files) upload(ctx context.Context, id string, o link.FileOrder, content io.Reader) (file.Upload, error) {
	done, err := f.files(ctx, id, o, content, nil)
	if err == nil && (done.ID != o.ID || done.Received < 0 || done.Received > done.Size) {
		err = fmt.Errorf("guest upload: impossible state: %w", link.ErrFrame)
	}
	return uploadOf(done), err
}

// UploadOpen implements file.Node.
func (f *Files) UploadOpen(ctx context.Context, id, upload string, w file.Write) (file.Upload, error) {
	o := writeOrder(link.UploadOpen, w)
	o.ID = upload
	return f.upload(ctx, id, o, nil)
}

// UploadWrite implements file.Node.
func (f *Files) UploadWrite(ctx context.Context, id, upload string, offset int64, content io.Reader) (file.Upload, error) {
	return f.upload(ctx, id, link.FileOrder{Op: link.UploadWrite, ID: upload, Offset: offset}, content)
}

// UploadStatus implements file.Node.
func (f *Files) UploadStatus(ctx context.Context, id, upload string) (file.Upload, error) {
	return f.upload(ctx, id, link.FileOrder{Op: link.UploadStatus, ID: upload}, nil)
}

// UploadAbort implements file.Node.
func (f *Files) UploadAbort(ctx context.Context, id, upload string) error {
	_, err := f.files(ctx, id, link.FileOrder{Op: link.UploadAbort, ID: upload}, nil, nil)
	return err
}

// UploadCommit implements file.Node.
func (f *Files) UploadCommit(ctx context.Context, id, upload string) error {
	_, err := f.files(ctx, id, link.FileOrder{Op: link.UploadCommit, ID: upload}, nil, nil)
	return err
}

// UploadRead implements file.Node.
func (f *Files) UploadRead(ctx context.Context, id, upload string) (file.Content, error) {
	return f.openContent(ctx, id, link.FileOrder{Op: link.UploadRead, ID: upload})
}

var errTreeCut = errors.New("content of a file broken off")
