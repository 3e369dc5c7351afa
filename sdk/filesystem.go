package pando

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"sort"
	"strings"

	"github.com/pandovm/pando/api"
)

// Open opens a file for reading: a seekable content that is fetched as it is
// read. A Seek costs nothing until the next Read. A file that is replaced while
// it is read ends the reading with fs.ErrInvalid.
func (f *Files) Open(ctx context.Context, name string) (*RemoteFile, error) {
	r := &RemoteFile{f: f, ctx: ctx, path: name}
	if err := r.fetch(); err != nil {
		return nil, err
	}
	return r, nil
}

// RemoteFile is an open file of a guest: an io.ReadSeekCloser and an io.ReaderAt.
// It is not safe for concurrent use, but ReadAt is.
type RemoteFile struct {
	f    *Files
	ctx  context.Context //nolint:containedctx // the file lives in it
	path string
	tag  string
	size int64 // -1 if nobody knows
	at   int64
	body io.ReadCloser
}

// Size is the file's length, -1 for files that have none, as in /proc.
func (r *RemoteFile) Size() int64 { return r.size }

// fetch asks for the content from where the file stands.
func (r *RemoteFile) fetch() error {
	var h http.Header
	if r.at > 0 {
		h = rangeHeader(r.at, r.tag)
	}
	resp, err := r.f.stream(r.ctx, http.MethodGet, "read", at(r.path), nil, -1, h)
	if err != nil {
		return err
	}
	tag := resp.Header.Get("ETag")
	if r.at > 0 && (resp.StatusCode != http.StatusPartialContent || tag != r.tag) {
		_ = resp.Body.Close() // it is another file's
		return fmt.Errorf("read %s: the file was replaced: %w", r.path, fs.ErrInvalid)
	}
	if r.at == 0 {
		r.tag, r.size = tag, resp.ContentLength
	}
	r.body = resp.Body
	return nil
}

// Read implements io.Reader.
func (r *RemoteFile) Read(p []byte) (int, error) {
	if r.size >= 0 && r.at >= r.size {
		return 0, io.EOF
	}
	if r.body == nil {
		if err := r.fetch(); err != nil {
			return 0, err
		}
	}
	n, err := r.body.Read(p)
	r.at += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.f.c.transportError(r.ctx, http.MethodGet, r.path, err)
	}
	return n, err
}

// Seek implements io.Seeker.
func (r *RemoteFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		if r.size < 0 {
			return r.at, fmt.Errorf("seek in %s: it has no length: %w", r.path, fs.ErrInvalid)
		}
		offset += r.size
	}
	if offset < 0 {
		return r.at, fmt.Errorf("seek in %s: before its beginning: %w", r.path, fs.ErrInvalid)
	}
	if offset != r.at {
		_ = r.Close() // It cannot fail in a way that matters.
		r.at = offset
	}
	return offset, nil
}

// ReadAt implements io.ReaderAt.
func (r *RemoteFile) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read %s: before its beginning: %w", r.path, fs.ErrInvalid)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if r.size >= 0 && off >= r.size {
		return 0, io.EOF
	}
	c := &RemoteFile{f: r.f, ctx: r.ctx, path: r.path, tag: r.tag, size: r.size, at: off}
	defer func() { _ = c.Close() }() // what was read counts
	n, err := io.ReadFull(c, p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// Close ends the reading. The file can be read again after it.
func (r *RemoteFile) Close() error {
	if r.body == nil {
		return nil
	}
	body := r.body
	r.body = nil
	return body.Close()
}

// FS returns what is below a folder as an fs.FS, for reading; it also implements
// fs.ReadDirFS, fs.StatFS, fs.ReadFileFS and fs.ReadLinkFS. Symbolic links are
// followed, also out of the folder: like os.DirFS it is no boundary. Calls end
// with ctx.
func (f *Files) FS(ctx context.Context, root string) fs.FS { return &fileSystem{f, ctx, root} }

type fileSystem struct {
	f    *Files
	ctx  context.Context //nolint:containedctx // the methods of fs.FS have none
	root string
}

// full checks a name as io/fs has it and returns the guest's path.
func (s *fileSystem) full(op, name string) (string, error) {
	if !fs.ValidPath(name) || strings.IndexByte(name, 0) >= 0 {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return path.Join(s.root, name), nil
}

func wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Open implements fs.FS.
func (s *fileSystem) Open(name string) (fs.File, error) {
	info, full, err := s.stat("open", name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return &folder{s: s, name: name, info: info}, nil
	}
	r, err := s.f.Open(s.ctx, full)
	if err != nil {
		return nil, wrap("open", name, err)
	}
	return &openFile{r, info}, nil
}

// stat follows symbolic links and returns where they lead.
func (s *fileSystem) stat(op, name string) (*fileInfo, string, error) {
	full, err := s.full(op, name)
	if err != nil {
		return nil, "", err
	}
	const maxLinks = 40
	for range maxLinks {
		st, err := s.f.Stat(s.ctx, full)
		if err != nil {
			return nil, "", wrap(op, name, err)
		}
		if !st.IsSymlink {
			return infoOf(path.Base(name), st), full, nil
		}
		if path.IsAbs(st.Target) {
			full = path.Clean(st.Target)
		} else {
			full = path.Join(path.Dir(full), st.Target)
		}
	}
	return nil, "", wrap(op, name, errors.New("too many symbolic links"))
}

// Stat implements fs.StatFS.
func (s *fileSystem) Stat(name string) (fs.FileInfo, error) {
	info, _, err := s.stat("stat", name)
	if err != nil {
		return nil, err
	}
	return info, nil
}

// Lstat implements fs.ReadLinkFS.
func (s *fileSystem) Lstat(name string) (fs.FileInfo, error) {
	full, err := s.full("lstat", name)
	if err != nil {
		return nil, err
	}
	st, err := s.f.Stat(s.ctx, full)
	if err != nil {
		return nil, wrap("lstat", name, err)
	}
	return infoOf(path.Base(name), st), nil
}

// ReadLink implements fs.ReadLinkFS.
func (s *fileSystem) ReadLink(name string) (string, error) {
	full, err := s.full("readlink", name)
	if err != nil {
		return "", err
	}
	st, err := s.f.Stat(s.ctx, full)
	if err == nil && !st.IsSymlink {
		err = fs.ErrInvalid
	}
	if err != nil {
		return "", wrap("readlink", name, err)
	}
	return st.Target, nil
}

// ReadFile implements fs.ReadFileFS.
func (s *fileSystem) ReadFile(name string) ([]byte, error) {
	full, err := s.full("read", name)
	if err != nil {
		return nil, err
	}
	b, err := s.f.ReadFile(s.ctx, full)
	return b, wrap("read", name, err)
}

// ReadDir implements fs.ReadDirFS.
func (s *fileSystem) ReadDir(name string) ([]fs.DirEntry, error) {
	full, err := s.full("readdir", name)
	if err != nil {
		return nil, err
	}
	entries, err := s.f.ReadDir(s.ctx, full)
	if err != nil {
		return nil, wrap("readdir", name, err)
	}
	return dirEntries(entries), nil
}

func dirEntries(entries []api.DirEntry) []fs.DirEntry {
	out := make([]fs.DirEntry, 0, len(entries))
	for _, e := range entries {
		out = append(out, entryOf(e))
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name() < out[j].Name() })
	return out
}

// openFile is a regular file of an fs.FS.
type openFile struct {
	*RemoteFile
	info *fileInfo
}

// Stat implements fs.File.
func (o *openFile) Stat() (fs.FileInfo, error) { return o.info, nil }

// folder is an open folder of an fs.FS.
type folder struct {
	s    *fileSystem
	name string
	info *fileInfo
	rest []fs.DirEntry
	read bool
}

func (d *folder) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *folder) Close() error               { return nil }

func (d *folder) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: errors.New("is a folder")}
}

// ReadDir implements fs.ReadDirFile.
func (d *folder) ReadDir(n int) ([]fs.DirEntry, error) {
	if !d.read {
		entries, err := d.s.ReadDir(d.name)
		if err != nil {
			return nil, err
		}
		d.rest, d.read = entries, true
	}
	if n <= 0 {
		out := d.rest
		d.rest = nil
		return out, nil
	}
	if len(d.rest) == 0 {
		return nil, io.EOF
	}
	out := d.rest[:min(n, len(d.rest))]
	d.rest = d.rest[len(out):]
	return out, nil
}
