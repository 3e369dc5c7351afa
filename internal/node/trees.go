package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/file"
	"github.com/pandovm/pando/internal/link"
)

// FileArchive implements file.Node.
func (f *Files) FileArchive(ctx context.Context, id, path string, each func(file.Info, io.Reader) error) (int64, error) {
	t := &treeReader{each: each}
	defer func() { _ = t.end(errTreeCut) }() // take has returned what end could say
	done, err := f.files(ctx, id, link.FileOrder{Op: link.FileArchive, Path: path}, nil, t.take)
	if err != nil {
		return 0, err
	}
	if t.left > 0 {
		return 0, fmt.Errorf("guest archive: %w", errTreeCut)
	}
	return done.Skipped, t.end(nil)
}

// treeReader turns frames into files whose content is read while it comes.
type treeReader struct {
	each func(file.Info, io.Reader) error
	// pipe leads to the reader of the present file's content; it is nil between
	// files. result is what that reader returned.
	pipe   *io.PipeWriter
	result chan error
	left   int64
}

func (t *treeReader) take(k link.FrameType, payload []byte) error {
	switch {
	case k == link.FrameFileData && t.pipe != nil && int64(len(payload)) <= t.left:
		t.left -= int64(len(payload))
		if _, err := t.pipe.Write(payload); err != nil {
			return err
		}
		if t.left == 0 {
			return t.end(nil)
		}
		return nil
	case k == link.FrameFileInfo && t.left == 0:
		var i link.FileInfo
		if err := i.UnmarshalBinary(payload); err != nil {
			return err
		}
		return t.begin(infoOf(i))
	case k == link.FrameFileEvent:
		return nil
	}
	return fmt.Errorf("guest archive: %w", link.ErrFrame)
}

func (t *treeReader) begin(i file.Info) error {
	if i.Kind != api.FileKindFile || i.LinkTo != "" || i.Size == 0 {
		return t.each(i, eof{})
	}
	if i.Size < 0 {
		return fmt.Errorf("guest archive: %w", link.ErrFrame)
	}
	r, w := io.Pipe()
	t.pipe, t.result, t.left = w, make(chan error, 1), i.Size
	go func() {
		err := t.each(i, r)
		_ = r.CloseWithError(errors.Join(err, errTreeCut))
		t.result <- err
	}()
	return nil
}

// end says that the present file's content ends here, and returns what its reader
// makes of it.
func (t *treeReader) end(cause error) error {
	if t.pipe == nil {
		return nil
	}
	_ = t.pipe.CloseWithError(cause) // It never fails.
	t.pipe, t.left = nil, 0
	return <-t.result
}

// eof is a reader of nothing.
type eof struct{}

// Read implements io.Reader.
func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// FileExtract implements file.Node.
func (f *Files) FileExtract(ctx context.Context, id string, e file.Extract, next func() (file.Info, io.Reader, error)) error {
	o := link.FileOrder{Op: link.FileExtract, Path: e.Path, Owner: e.Owner, Group: e.Group, KeepOwner: e.KeepOwner}
	_, err := f.files(ctx, id, o, &treeWriter{next: next}, nil)
	return err
}

// treeWriter turns files into frames, as a reader.
type treeWriter struct {
	next func() (file.Info, io.Reader, error)
	// ready is what can be read; buf is behind it.
	ready, buf []byte
	content    io.Reader
	left       int64
}

// treeFrame is how much content one frame carries.
const treeFrame = 64 << 10

// Read implements io.Reader.
func (t *treeWriter) Read(p []byte) (int, error) {
	for len(t.ready) == 0 {
		if err := t.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, t.ready)
	t.ready = t.ready[n:]
	return n, nil
}

func (t *treeWriter) fill() error {
	if t.left > 0 {
		return t.fillContent()
	}
	info, content, err := t.next()
	if err != nil {
		return err
	}
	i := wireInfo(info)
	body, _ := i.MarshalBinary()
	t.buf = link.AppendFrame(t.buf[:0], link.FrameFileInfo, body)
	t.ready = t.buf
	if info.Kind == api.FileKindFile && info.LinkTo == "" {
		t.content, t.left = content, info.Size
	}
	return nil
}

func (t *treeWriter) fillContent() error {
	if cap(t.buf) < link.FrameHeader+treeFrame {
		t.buf = make([]byte, link.FrameHeader+treeFrame)
	}
	want := int(min(treeFrame, t.left))
	t.buf = t.buf[:link.FrameHeader+want]
	if _, err := io.ReadFull(t.content, t.buf[link.FrameHeader:]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	t.buf[0] = byte(link.FrameFileData)
	binary.BigEndian.PutUint32(t.buf[1:], uint32(want))
	t.ready = t.buf
	t.left -= int64(want)
	return nil
}

func wireInfo(i file.Info) link.FileInfo {
	out := link.FileInfo{
		Name: i.Name, Mode: i.Mode & 0o7777, Size: i.Size, ModifiedNs: i.Modified.UnixNano(),
		UID: uint32(i.UID), GID: uint32(i.GID), Target: i.Target, LinkTo: i.LinkTo,
	}
	switch i.Kind {
	case api.FileKindDirectory:
		out.Mode |= link.ModeDir
	case api.FileKindSymlink:
		out.Mode |= link.ModeSymlink
	case api.FileKindFifo:
		out.Mode |= link.ModeFifo
	case api.FileKindSocket:
		out.Mode |= link.ModeSocket
	case api.FileKindDevice:
		out.Mode |= link.ModeChar
	case api.FileKindFile:
		out.Mode |= link.ModeFile
	}
	return out
}
