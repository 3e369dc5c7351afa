package httpapi

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/file"
)

const octets = "application/octet-stream"

func (s *server) fileStreamRoutes() []route {
	return []route{
		handleRaw(Operation{
			Method: "GET", Path: fsPath + "read", ID: "readFile", Status: 200, Gives: octets, Summary: "Read a file.",
			Description: "Symbolic links are followed. A Range header with one range gives 206. " +
				"Files without a size of their own, as in /proc, come without a Content-Length.",
			Query: []Parameter{pathParameter()}, Errors: fileErrors(api.CodeRangeNotSatisfiable),
		}, s.readFile),
		handleRaw(Operation{
			Method: "PUT", Path: fsPath + "write", ID: "writeFile", Status: 204, Takes: octets, Request: reflect.TypeFor[api.WriteFileRequest](),
			MaxBody: file.MaxJSONFile, Summary: "Replace a file, at once or not at all.",
			Description: "The body is the content as it is, up to 16 GiB, and the query says where it goes; " +
				"or it is a JSON document of up to 32 MiB without a query. Folders above are made.",
			Query: append([]Parameter{
				pathParameter(),
				{Name: "mode", Type: "string", Description: "Permissions: a decimal number (420), or octal after a zero (0644). Omitted keeps those of a file that exists and means 0600 for a new one."},
				{Name: "sha256", Type: "string", Description: "That of the content in hexadecimal; it is verified."},
			}, ownerParameters()...),
			Errors: fileErrors(api.CodePayloadTooLarge),
		}, s.writeFile),
		handleRaw(Operation{
			Method: "GET", Path: fsPath + "archive", ID: "archiveFiles", Status: 200, Gives: "application/x-tar", Summary: "Read a tree as a tar stream.",
			Description: "Names are relative to the path. Sockets, FIFOs and devices are left out; the trailer X-Pando-Skipped counts them.",
			Query: []Parameter{
				pathParameter(), {Name: "compress", Type: "string", Values: []string{"gzip", "none"}, Description: "Compress the stream."},
			},
			Errors: fileErrors(),
		}, s.archiveFiles),
		handleRaw(Operation{
			Method: "PUT", Path: fsPath + "archive", ID: "extractFiles", Status: 204, Takes: "application/x-tar", Summary: "Unpack a tar stream into a folder.",
			Description: "The folder is made if it is missing. Names and symbolic links that would leave it are refused, and so are devices, " +
				"FIFOs and sockets. What came before the refused entry stays.",
			Query: append([]Parameter{
				pathParameter(),
				{Name: "compress", Type: "string", Values: []string{"gzip", "none"}, Description: "How the stream is compressed."},
				flagParameter("keepOwner", "Take the numbers of owners and groups from the archive."),
			}, ownerParameters()...),
			Errors: fileErrors(),
		}, s.extractFiles),
		handleRaw(Operation{
			Method: "GET", Path: fsPath + "watch", ID: "watchFiles", Status: 200, Gives: "application/x-ndjson", Response: reflect.TypeFor[api.FileEvent](),
			Summary:     "Report what happens to files, one event per line, until the client leaves.",
			Description: "The first event is watching: nothing is missed from there on. After rescan, events were lost.",
			Query:       []Parameter{pathParameter(), flagParameter("recursive", "Watch what is below, too.")},
			Errors:      fileErrors(),
		}, s.watchFiles),
	}
}

// cut ends an answer of which a part is out already: only a cut connection tells
// the client that it is not whole.
func (s *server) cut(w http.ResponseWriter, r *http.Request, err error) {
	if e, ok := w.(*exchange); ok {
		e.err = err
		s.logExchange(e, r)
	}
	panic(http.ErrAbortHandler)
}

func (s *server) readFile(w http.ResponseWriter, r *http.Request, in call[none]) error {
	span, ranged, err := parseRange(r.Header.Get("Range"))
	if err != nil {
		return err
	}
	c, err := s.files.Read(r.Context(), in.ref, in.query["path"], span)
	if condition := r.Header.Get("If-Range"); err == nil && ranged && condition != "" && condition != etag(c.Info()) {
		_ = c.Close() // another file by now: the client wants all of it
		ranged = false
		c, err = s.files.Read(r.Context(), in.ref, in.query["path"], file.Range{})
	}
	if err != nil {
		if f := fault.As(err); f != nil && f.Code == api.CodeRangeNotSatisfiable {
			w.Header().Set("Content-Range", "bytes */"+strconv.FormatInt(f.Available, 10))
		}
		return err
	}
	defer func() { _ = c.Close() }()
	status := describeContent(w.Header(), c, ranged)
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := c.WriteTo(newPatientWriter(w)); err != nil {
		s.cut(w, r, fmt.Errorf("read file: %w", err))
	}
	return nil
}

// describeContent sets the headers of a content and returns the status.
func describeContent(h http.Header, c file.Content, ranged bool) int {
	i := c.Info()
	offset, length := c.Span()
	h.Set("Content-Type", octets)
	h.Set("Last-Modified", i.Modified.UTC().Format(http.TimeFormat))
	h.Set("Accept-Ranges", "bytes")
	if length < 0 {
		return http.StatusOK
	}
	h.Set("ETag", etag(i))
	h.Set("Content-Length", strconv.FormatInt(length, 10))
	if !ranged || length == 0 {
		return http.StatusOK
	}
	h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", offset, offset+length-1, i.Size))
	return http.StatusPartialContent
}

func etag(i file.Info) string {
	return fmt.Sprintf(`"%x-%x-%x"`, i.Inode, i.Size, i.Modified.UnixNano())
}

// parseRange reads a Range header of one range.
func parseRange(header string) (r file.Range, given bool, err error) {
	if header == "" {
		return file.Range{}, false, nil
	}
	bad := fault.BadField("Range", "is not one range of bytes").Hint("send bytes=first-last, bytes=first- or bytes=-count")
	spec, ok := strings.CutPrefix(header, "bytes=")
	first, last, dash := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok || !dash {
		return r, false, bad
	}
	if first == "" {
		n, err := strconv.ParseInt(last, 10, 63)
		if err != nil || n < 0 {
			return r, false, bad
		}
		return file.Range{Offset: -1, Length: n}, true, nil
	}
	from, err := strconv.ParseUint(first, 10, 62)
	if err != nil {
		return r, false, bad
	}
	if last == "" {
		return file.Range{Offset: int64(from)}, true, nil
	}
	to, err := strconv.ParseUint(last, 10, 62)
	if err != nil || to < from {
		return r, false, bad
	}
	return file.Range{Offset: int64(from), Length: int64(to-from) + 1}, true, nil
}

func (s *server) writeFile(w http.ResponseWriter, r *http.Request, in call[none]) error {
	write, content, err := s.writeOf(w, r, in)
	if err != nil {
		return err
	}
	defer content.release()
	if err := s.files.Write(r.Context(), in.ref, write, content); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// writeOf reads what a write says of itself, in the query or in a document.
func (s *server) writeOf(w http.ResponseWriter, r *http.Request, in call[none]) (file.Write, *patientReader, error) {
	if !writeFromJSON(r, in) {
		mode, err := modeOfQuery(in.query["mode"])
		return file.Write{
			Path: in.query["path"], Mode: mode, Owner: in.query["owner"], Group: in.query["group"],
			SHA256: in.query["sha256"], Size: r.ContentLength,
		}, newPatientReader(w, r.Body), err
	}
	if len(in.query) > 0 {
		return file.Write{}, nil, fault.BadField("query", "a JSON document names everything itself").Hint("leave the query out, or add path and send the content as it is")
	}
	var b api.WriteFileRequest
	op := Operation{MaxBody: file.MaxJSONFile}
	if err := decodeBody(w, r, op, &b); err != nil {
		return file.Write{}, nil, err
	}
	content, err := jsonContent(b)
	if err != nil {
		return file.Write{}, nil, err
	}
	mode, err := modeOf(b.Mode)
	return file.Write{
		Path: b.Path, Mode: mode, Owner: b.Owner, Group: b.Group, SHA256: b.SHA256, Size: int64(len(content)),
	}, newPatientReader(nil, bytes.NewReader(content)), err
}

func (s *server) archiveFiles(w http.ResponseWriter, r *http.Request, in call[none]) error {
	out := &lateWriter{w: newPatientWriter(w), start: func() {
		h := w.Header()
		h.Set("Trailer", skippedTrailer)
		h.Set("Content-Type", "application/x-tar")
		if in.query["compress"] == "gzip" {
			h.Set("Content-Type", "application/gzip")
		}
		w.WriteHeader(http.StatusOK)
	}}
	var to io.Writer = out
	end := func() error { return nil }
	if in.query["compress"] == "gzip" {
		z, _ := gzip.NewWriterLevel(out, gzip.BestSpeed) // It fails for unknown levels only.
		to, end = z, z.Close
	}
	skipped, err := s.files.Archive(r.Context(), in.ref, in.query["path"], to)
	if err == nil {
		err = end()
	}
	if err != nil {
		if !out.started {
			return err
		}
		s.cut(w, r, fmt.Errorf("archive: %w", err))
	}
	w.Header().Set(skippedTrailer, strconv.FormatInt(skipped, 10))
	return nil
}

const skippedTrailer = "X-Pando-Skipped"

// lateWriter starts the answer with its first byte.
type lateWriter struct {
	w       io.Writer
	start   func()
	started bool
}

// Write implements io.Writer.
func (l *lateWriter) Write(p []byte) (int, error) {
	if !l.started {
		l.started = true
		l.start()
	}
	return l.w.Write(p)
}

func (s *server) extractFiles(w http.ResponseWriter, r *http.Request, in call[none]) error {
	body := newPatientReader(w, r.Body)
	defer body.release()
	var archive io.Reader = body
	if in.query["compress"] == "gzip" || slices.Contains(r.Header.Values("Content-Encoding"), "gzip") {
		z, err := gzip.NewReader(body)
		if err != nil {
			return badGzip(err)
		}
		archive = &gunzip{z}
	}
	e := file.Extract{
		Path: in.query["path"], Owner: in.query["owner"], Group: in.query["group"], KeepOwner: in.query["keepOwner"] == "true",
	}
	if err := s.files.Extract(r.Context(), in.ref, e, archive); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// gunzip names a broken stream as the client's fault.
type gunzip struct{ z *gzip.Reader }

// Read implements io.Reader.
func (g *gunzip) Read(p []byte) (int, error) {
	n, err := g.z.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && fault.As(err) == nil {
		err = badGzip(err)
	}
	return n, err
}

func badGzip(err error) error {
	if f := fault.As(err); f != nil {
		return f
	}
	f := fault.BadField("body", "is not a gzip stream, or broken off").Hint("compress the archive with gzip, or leave compress out")
	f.Reason = api.ReasonBadArchive
	return f.With(err)
}

func (s *server) watchFiles(w http.ResponseWriter, r *http.Request, in call[none]) error {
	out := newLines(w)
	err := s.files.Watch(r.Context(), in.ref, in.query["path"], in.query["recursive"] == "true", func(e file.Event) error {
		if err := out.write(api.FileEvent{Type: e.Type, Path: utf8Text(e.Path), From: utf8Text(e.From), IsDirectory: e.Dir}); err != nil {
			return err
		}
		return out.flush()
	})
	if err != nil && out.started && r.Context().Err() == nil {
		p := problem(err, exchangeID(r.Context()))
		_ = out.write(api.FileEvent{Type: api.FileWatchError, Error: &p})
	}
	return out.end(s, r, err)
}

// patientReader reads a body that may take as long as it likes, as long as it
// keeps coming.
type patientReader struct {
	r    io.Reader
	conn *http.ResponseController

	mu   sync.Mutex
	done bool
}

// newPatientReader returns a reader of r; w of nil means that r does not come from
// a connection.
func newPatientReader(w http.ResponseWriter, r io.Reader) *patientReader {
	p := &patientReader{r: r}
	if w != nil {
		p.conn = http.NewResponseController(w)
	}
	return p
}

// Read implements io.Reader.
func (p *patientReader) Read(b []byte) (int, error) {
	if err := p.extend(time.Now().Add(bodyPatience)); err != nil {
		return 0, err
	}
	n, err := p.r.Read(b)
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return n, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, fault.BadField("body", "has stopped arriving").Hint("send at least one byte every %s", bodyPatience).With(err)
	}
	return n, fault.BadField("body", "broke off").Hint("send it whole").With(err)
}

// extend sets the deadline, unless the answer is out: the connection then belongs
// to the next request.
func (p *patientReader) extend(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return http.ErrBodyReadAfterClose
	}
	if p.conn != nil {
		// Not every writer has a connection, and one without needs no deadline.
		_ = p.conn.SetReadDeadline(t)
	}
	return nil
}

// release ends the patience. A read that is under way may go on until its deadline.
func (p *patientReader) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
}

// patientWriter writes an answer that may take as long as it likes, as long as
// the client keeps taking it.
type patientWriter struct {
	w    io.Writer
	conn *http.ResponseController
}

func newPatientWriter(w http.ResponseWriter) *patientWriter {
	return &patientWriter{w: w, conn: http.NewResponseController(w)}
}

// Write implements io.Writer.
func (p *patientWriter) Write(b []byte) (int, error) {
	_ = p.conn.SetWriteDeadline(time.Now().Add(bodyPatience)) // as for reading
	n, err := p.w.Write(b)
	if err != nil {
		return n, fmt.Errorf("the client does not take the answer: %w", err)
	}
	return n, nil
}
