package pando

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/pandovm/pando/api"
)

// Files holds the calls on the files of one VM. Paths are absolute; operations
// run as root, and what is made belongs to the account that commands run as
// unless an owner is named. A paused VM wakes. Errors answer errors.Is for
// fs.ErrNotExist, fs.ErrExist, fs.ErrPermission and fs.ErrInvalid. It is safe for
// concurrent use.
type Files struct {
	c   *Client
	ref string
}

// Files returns the files of the VM with that id or slug.
func (v *VMs) Files(ref string) *Files { return &Files{v.c, ref} }

// FileOptions say what a file that is written shall be. The zero FileOptions keep
// what is there of a file that exists.
type FileOptions struct {
	// Mode of 0 means 0600 for a new file.
	Mode fs.FileMode
	// Owner and Group are names or numbers of the guest.
	Owner, Group string
	// SHA256 of the content in hexadecimal is verified if it is not empty.
	SHA256 string
}

// Is maps the reasons about files to the errors of io/fs, for errors.Is.
func (e *StatusError) Is(target error) bool {
	switch e.API.Reason {
	case api.ReasonFileNotFound:
		return target == fs.ErrNotExist
	case api.ReasonFileExists:
		return target == fs.ErrExist
	case api.ReasonFileDenied, api.ReasonReadOnlyFileSystem:
		return target == fs.ErrPermission
	case api.ReasonNotAFile, api.ReasonNotADirectory:
		return target == fs.ErrInvalid
	default:
	}
	return false
}

func (f *Files) path(verb string, q url.Values) (string, error) {
	path, err := objectPath("vms", f.ref, "fs/"+verb)
	return withQuery(path, q), err
}

// fileCall makes a call with a JSON answer or none.
func fileCall[T any](ctx context.Context, f *Files, method, verb string, q url.Values, in any) (T, error) {
	path, err := f.path(verb, q)
	if err != nil {
		var none T
		return none, err
	}
	return call[T](ctx, f.c, method, path, in)
}

func at(path string) url.Values { return url.Values{"path": {path}} }

// Stat describes what is at path itself: a symbolic link is not followed.
func (f *Files) Stat(ctx context.Context, path string) (api.FileStat, error) {
	return fileCall[api.FileStat](ctx, f, http.MethodGet, "stat", at(path), nil)
}

// Exists tells whether something is at path.
func (f *Files) Exists(ctx context.Context, path string) (bool, error) {
	r, err := fileCall[api.FileExists](ctx, f, http.MethodGet, "exists", at(path), nil)
	return r.Exists, err
}

// ReadDir returns the entries of a folder, sorted by name.
func (f *Files) ReadDir(ctx context.Context, path string) ([]api.DirEntry, error) {
	r, err := fileCall[api.DirList](ctx, f, http.MethodGet, "dir", at(path), nil)
	return r.Entries, err
}

// Walk yields everything below a folder as the guest has it, folders before what
// is in them, named relative to path. Depth bounds the levels; 0 means all.
func (f *Files) Walk(ctx context.Context, path string, depth int) iter.Seq2[api.DirEntry, error] {
	q := at(path)
	q.Set("recursive", "true")
	q.Set("format", "ndjson")
	if depth > 0 {
		q.Set("depth", strconv.Itoa(depth))
	}
	return documents[api.DirEntry](ctx, f, "dir", q)
}

// documents yields the lines of an answer.
func documents[T any](ctx context.Context, f *Files, verb string, q url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		resp, err := f.stream(ctx, http.MethodGet, verb, q, nil, -1, nil)
		if err != nil {
			yield(none, err)
			return
		}
		defer func() { _ = resp.Body.Close() }() // nothing more is wanted of it
		lines := json.NewDecoder(resp.Body)
		for {
			var v T
			err := lines.Decode(&v)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(none, f.c.transportError(ctx, http.MethodGet, resp.Request.URL.Path, err))
				return
			}
			if !yield(v, nil) {
				return
			}
		}
	}
}

// Watch yields what happens to a path and, if recursive, below it, until the
// caller stops or ctx ends. The first event is FileWatching; after FileRescan,
// events were lost.
func (f *Files) Watch(ctx context.Context, path string, recursive bool) iter.Seq2[api.FileEvent, error] {
	q := at(path)
	q.Set("recursive", strconv.FormatBool(recursive))
	return func(yield func(api.FileEvent, error) bool) {
		for e, err := range documents[api.FileEvent](ctx, f, "watch", q) {
			if err == nil && e.Error != nil {
				err = e.Error
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// MkdirAll makes a folder and those above it. One that exists is fine. A mode of
// 0 means 0755.
func (f *Files) MkdirAll(ctx context.Context, path string, mode fs.FileMode) error {
	r := api.MkdirRequest{Path: path}
	if mode != 0 {
		r.Mode = unixMode(mode)
	}
	_, err := fileCall[nothing](ctx, f, http.MethodPost, "mkdir", nil, r)
	return err
}

// RemoveAll removes a file, or a folder with all that is in it. What is not there
// is an error.
func (f *Files) RemoveAll(ctx context.Context, path string) error {
	_, err := fileCall[nothing](ctx, f, http.MethodDelete, "remove", at(path), nil)
	return err
}

// Rename moves a file or a tree. Folders above the new path are made; a file that
// is there is replaced.
func (f *Files) Rename(ctx context.Context, from, to string) error {
	_, err := fileCall[nothing](ctx, f, http.MethodPost, "move", nil, api.CopyFileRequest{From: from, To: to, Overwrite: true})
	return err
}

// Copy copies a file or a tree within the guest. Something at the new path is an
// error unless overwrite is set; a tree is then merged.
func (f *Files) Copy(ctx context.Context, from, to string, overwrite bool) error {
	_, err := fileCall[nothing](ctx, f, http.MethodPost, "copy", nil, api.CopyFileRequest{From: from, To: to, Overwrite: overwrite})
	return err
}

// Chmod sets permissions.
func (f *Files) Chmod(ctx context.Context, path string, mode fs.FileMode, recursive bool) error {
	_, err := fileCall[nothing](ctx, f, http.MethodPost, "chmod", nil, api.ChmodRequest{Path: path, Mode: unixMode(mode), Recursive: recursive})
	return err
}

// Chown sets owner and group, by name or number; an empty one stays.
func (f *Files) Chown(ctx context.Context, path, owner, group string, recursive bool) error {
	_, err := fileCall[nothing](ctx, f, http.MethodPost, "chown", nil, api.ChownRequest{
		Path: path, Owner: owner, Group: group, Recursive: recursive,
	})
	return err
}

// ReadFile returns the content of a file.
func (f *Files) ReadFile(ctx context.Context, path string) ([]byte, error) {
	resp, err := f.stream(ctx, http.MethodGet, "read", at(path), nil, -1, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // the content is already read
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, f.c.transportError(ctx, http.MethodGet, resp.Request.URL.Path, err)
	}
	return b, nil
}

// WriteFile replaces a file by data, at once or not at all. Folders above it are
// made.
func (f *Files) WriteFile(ctx context.Context, path string, data []byte, o FileOptions) error {
	return f.put(ctx, "write", o.query(path), bytesReader(data), int64(len(data)))
}

// Write replaces a file by what r gives, up to its end. Size is the length, -1 if
// it is not known. It is not repeated if the connection breaks; see Upload.
func (f *Files) Write(ctx context.Context, path string, r io.Reader, size int64, o FileOptions) error {
	return f.put(ctx, "write", o.query(path), r, size)
}

func (o FileOptions) query(path string) url.Values {
	q := at(path)
	if o.Mode != 0 {
		q.Set("mode", "0"+strconv.FormatUint(uint64(unixMode(o.Mode)), 8))
	}
	set(q, "owner", o.Owner)
	set(q, "group", o.Group)
	set(q, "sha256", o.SHA256)
	return q
}

// Create returns a writer whose content replaces the file when it is closed, and
// only then: Close returns what became of it. Cancelling ctx gives the file up.
func (f *Files) Create(ctx context.Context, path string, o FileOptions) io.WriteCloser {
	r, w := io.Pipe()
	c := &fileWriter{PipeWriter: w, done: make(chan error, 1)}
	go func() {
		err := f.put(ctx, "write", o.query(path), r, -1)
		_ = r.CloseWithError(errors.Join(err, io.ErrClosedPipe)) // who still writes gets to know
		c.done <- err
	}()
	return c
}

type fileWriter struct {
	*io.PipeWriter
	done chan error
	err  error
}

// Close ends the content and waits until the file is in its place.
func (w *fileWriter) Close() error {
	if w.done != nil {
		_ = w.PipeWriter.Close() // It never fails.
		w.err = <-w.done
		w.done = nil
	}
	return w.err
}

// Archive returns a tree as a tar stream, with names relative to path. Sockets,
// FIFOs and devices are left out.
func (f *Files) Archive(ctx context.Context, path string) (io.ReadCloser, error) {
	resp, err := f.stream(ctx, http.MethodGet, "archive", at(path), nil, -1, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// ExtractOptions say to whom the files of an archive shall belong.
type ExtractOptions struct {
	// Owner and Group are names or numbers of the guest; KeepOwner takes the
	// numbers in the archive instead.
	Owner, Group string
	KeepOwner    bool
	// Gzip says that the archive is compressed.
	Gzip bool
}

// Extract unpacks a tar stream into a folder, which is made if it is missing.
func (f *Files) Extract(ctx context.Context, path string, archive io.Reader, o ExtractOptions) error {
	q := at(path)
	set(q, "owner", o.Owner)
	set(q, "group", o.Group)
	if o.KeepOwner {
		q.Set("keepOwner", "true")
	}
	if o.Gzip {
		q.Set("compress", "gzip")
	}
	return f.put(ctx, "archive", q, archive, -1)
}

func (f *Files) put(ctx context.Context, verb string, q url.Values, body io.Reader, size int64) error {
	resp, err := f.stream(ctx, http.MethodPut, verb, q, body, size, nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// stream makes a call whose bodies are content. The caller closes the answer's.
func (f *Files) stream(ctx context.Context, method, verb string, q url.Values, body io.Reader, size int64, header http.Header) (*http.Response, error) {
	path, err := f.path(verb, q)
	if err != nil {
		return nil, err
	}
	req, err := f.c.request(ctx, method, path, nil)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	if body != nil {
		req.Body, req.ContentLength = io.NopCloser(body), size
		if size == 0 {
			req.Body = http.NoBody
		}
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	resp, err := f.c.http.Do(req)
	if err != nil {
		return nil, f.c.transportError(ctx, method, path, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer func() { _ = resp.Body.Close() }() // the answer is already read
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		return nil, statusError(method, path, resp, text)
	}
	return resp, nil
}

// unixMode is a mode as Linux counts it.
func unixMode(m fs.FileMode) uint32 {
	mode := uint32(m.Perm())
	if m&fs.ModeSetuid != 0 {
		mode |= 0o4000
	}
	if m&fs.ModeSetgid != 0 {
		mode |= 0o2000
	}
	if m&fs.ModeSticky != 0 {
		mode |= 0o1000
	}
	return mode
}

// FileMode returns the mode that kind and permissions of a file say.
func FileMode(kind api.FileKind, permissions string) fs.FileMode {
	n, _ := strconv.ParseUint(permissions, 8, 12)
	m := fs.FileMode(n) & fs.ModePerm
	if n&0o4000 != 0 {
		m |= fs.ModeSetuid
	}
	if n&0o2000 != 0 {
		m |= fs.ModeSetgid
	}
	if n&0o1000 != 0 {
		m |= fs.ModeSticky
	}
	switch kind {
	case api.FileKindDirectory:
		m |= fs.ModeDir
	case api.FileKindSymlink:
		m |= fs.ModeSymlink
	case api.FileKindFifo:
		m |= fs.ModeNamedPipe
	case api.FileKindSocket:
		m |= fs.ModeSocket
	case api.FileKindDevice:
		m |= fs.ModeDevice
	case api.FileKindFile:
	}
	return m
}

// fileInfo implements fs.FileInfo and fs.DirEntry.
type fileInfo struct {
	name     string
	size     int64
	mode     fs.FileMode
	modified time.Time
	sys      any
}

func (i *fileInfo) Name() string               { return i.name }
func (i *fileInfo) Size() int64                { return i.size }
func (i *fileInfo) Mode() fs.FileMode          { return i.mode }
func (i *fileInfo) ModTime() time.Time         { return i.modified }
func (i *fileInfo) IsDir() bool                { return i.mode.IsDir() }
func (i *fileInfo) Sys() any                   { return i.sys }
func (i *fileInfo) Type() fs.FileMode          { return i.mode.Type() }
func (i *fileInfo) Info() (fs.FileInfo, error) { return i, nil }
func (i *fileInfo) String() string             { return fs.FormatFileInfo(i) }

// infoOf is a stat as an fs.FileInfo.
func infoOf(name string, s api.FileStat) *fileInfo {
	return &fileInfo{name, s.Size, FileMode(s.Kind, s.Permissions), s.Modified, s}
}

func entryOf(e api.DirEntry) *fileInfo {
	return &fileInfo{e.Name, e.Size, FileMode(e.Kind, e.Permissions), e.Modified, e}
}

func rangeHeader(offset int64, tag string) http.Header {
	h := http.Header{"Range": {fmt.Sprintf("bytes=%d-", offset)}}
	if tag != "" {
		h.Set("If-Range", tag)
	}
	return h
}
