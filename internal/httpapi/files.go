package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/file"
)

// Files are the use cases on files; ref is a VM's id or slug.
type Files interface {
	Stat(ctx context.Context, ref, path string) (file.Info, error)
	Exists(ctx context.Context, ref, path string) (bool, error)
	List(ctx context.Context, ref string, l file.List) ([]file.Info, error)
	Each(ctx context.Context, ref string, l file.List, f func(file.Info) error) error
	Change(ctx context.Context, ref string, c file.Change) error
	Read(ctx context.Context, ref, path string, r file.Range) (file.Content, error)
	Write(ctx context.Context, ref string, w file.Write, content io.Reader) error
	Archive(ctx context.Context, ref, path string, w io.Writer) (skipped int64, err error)
	Extract(ctx context.Context, ref string, e file.Extract, archive io.Reader) error
	Watch(ctx context.Context, ref, path string, recursive bool, each func(file.Event) error) error

	OpenUpload(ctx context.Context, ref string, w file.Write) (file.Upload, error)
	WriteUpload(ctx context.Context, ref, upload string, offset, size int64, content io.Reader) (file.Upload, error)
	Upload(ctx context.Context, ref, upload string) (file.Upload, error)
	AbortUpload(ctx context.Context, ref, upload string) error
	CommitUpload(ctx context.Context, ref, upload string) error
}

// fileErrors are the codes of every route for files.
func fileErrors(more ...api.Code) []api.Code {
	return append([]api.Code{api.CodeNotFound, api.CodeConflict, api.CodeVMNonResponsive}, more...)
}

func pathParameter() Parameter {
	return Parameter{Name: "path", Type: "string", Description: "An absolute path in the guest, without .. and of at most 4096 characters."}
}

func flagParameter(name, description string) Parameter {
	return Parameter{Name: name, Type: "string", Values: []string{"true", "false"}, Description: description}
}

func ownerParameters() []Parameter {
	return []Parameter{
		{Name: "owner", Type: "string", Description: "A name or number of the guest; omitted means the account that commands run as, and keeps that of a file that exists."},
		{Name: "group", Type: "string", Description: "A name or number of the guest; omitted means the owner's."},
	}
}

const fsPath = "/v5/vms/{id}/fs/"

func (s *server) fileRoutes() []route {
	return []route{
		handleRaw(Operation{
			Method: "GET", Path: fsPath + "dir", ID: "listFiles", Status: 200, Summary: "List a folder of the guest.",
			Description: "Sorted by name, at most 100,000 entries. With format=ndjson any number of DirEntry lines, in the guest's order.",
			Query: []Parameter{
				pathParameter(), flagParameter("recursive", "List what is below, too; names are then relative paths."),
				{Name: "depth", Type: "integer", Minimum: 1, Description: "How many levels to list with recursive; omitted means all."},
				{Name: "format", Type: "string", Values: []string{"json", "ndjson"}, Description: "One document, or one entry per line."},
			},
			Response: reflect.TypeFor[api.DirList](), Errors: fileErrors(),
		}, s.listFiles),
		handle(Operation{
			Method: "GET", Path: fsPath + "exists", ID: "fileExists", Status: 200, Summary: "Tell whether something is at a path.",
			Query: []Parameter{pathParameter()}, Errors: fileErrors(),
		}, s.fileExists),
		handle(Operation{
			Method: "GET", Path: fsPath + "stat", ID: "statFile", Status: 200, Summary: "Describe what is at a path.",
			Query: []Parameter{pathParameter()}, Errors: fileErrors(),
		}, s.statFile),
		handle(Operation{
			Method: "POST", Path: fsPath + "mkdir", ID: "makeFolder", Status: 204, Summary: "Make a folder and those above it.",
			Errors: fileErrors(),
		}, s.makeFolder),
		handle(Operation{
			Method: "DELETE", Path: fsPath + "remove", ID: "removeFile", Status: 204, Summary: "Remove a file, or a folder with all that is in it.",
			Query: []Parameter{pathParameter()}, Errors: fileErrors(),
		}, s.removeFile),
		handle(Operation{
			Method: "POST", Path: fsPath + "copy", ID: "copyFile", Status: 204, Errors: fileErrors(),
			Summary: "Copy a file or a tree within the guest, with permissions, owners and times.",
		}, s.transfer(file.Copy)),
		handle(Operation{
			Method: "POST", Path: fsPath + "move", ID: "moveFile", Status: 204, Errors: fileErrors(),
			Summary: "Rename a file or a tree within the guest.",
		}, s.transfer(file.Move)),
		handle(Operation{
			Method: "POST", Path: fsPath + "chmod", ID: "chmodFile", Status: 204, Errors: fileErrors(),
			Summary: "Set permissions.",
		}, s.chmodFile),
		handle(Operation{
			Method: "POST", Path: fsPath + "chown", ID: "chownFile", Status: 204, Errors: fileErrors(),
			Summary: "Set owner and group.",
		}, s.chownFile),
	}
}

func (s *server) listFiles(w http.ResponseWriter, r *http.Request, in call[none]) error {
	l := file.List{Path: in.query["path"], Recursive: in.query["recursive"] == "true", Depth: in.query.number("depth")}
	if in.query["format"] == "ndjson" {
		lines := newLines(w)
		err := s.files.Each(r.Context(), in.ref, l, func(i file.Info) error { return lines.write(viewEntry(i)) })
		return lines.end(s, r, err)
	}
	entries, err := s.files.List(r.Context(), in.ref, l)
	if err != nil {
		return err
	}
	out := api.DirList{Entries: make([]api.DirEntry, 0, len(entries))}
	for _, i := range entries {
		out.Entries = append(out.Entries, viewEntry(i))
	}
	return writeJSON(w, http.StatusOK, out)
}

func permissions(mode uint32) string {
	text := strconv.FormatUint(uint64(mode&0o7777), 8)
	return strings.Repeat("0", 4-len(text)) + text
}

// utf8Text is a text of the guest's as JSON can hold it.
func utf8Text(s string) string { return strings.ToValidUTF8(s, string(utf8.RuneError)) }

func viewEntry(i file.Info) api.DirEntry {
	return api.DirEntry{
		Name: utf8Text(i.Name), Kind: i.Kind, Size: i.Size, Permissions: permissions(i.Mode),
		Owner: utf8Text(i.Owner), Group: utf8Text(i.Group), Modified: i.Modified, Target: utf8Text(i.Target),
	}
}

func (s *server) fileExists(ctx context.Context, c call[none]) (api.FileExists, error) {
	exists, err := s.files.Exists(ctx, c.ref, c.query["path"])
	return api.FileExists{Exists: exists}, err
}

func (s *server) statFile(ctx context.Context, c call[none]) (api.FileStat, error) {
	i, err := s.files.Stat(ctx, c.ref, c.query["path"])
	if err != nil {
		return api.FileStat{}, err
	}
	return api.FileStat{
		Size: i.Size, IsFile: i.Kind == api.FileKindFile, IsDirectory: i.Kind == api.FileKindDirectory, IsSymlink: i.Kind == api.FileKindSymlink,
		Permissions: permissions(i.Mode), Owner: utf8Text(i.Owner), Group: utf8Text(i.Group), Modified: i.Modified,
		Kind: i.Kind, UID: i.UID, GID: i.GID, Target: utf8Text(i.Target), TargetKind: i.TargetKind,
	}, nil
}

func (s *server) makeFolder(ctx context.Context, c call[api.MkdirRequest]) (none, error) {
	mode, err := modeOf(c.body.Mode)
	if err != nil {
		return none{}, err
	}
	return none{}, s.files.Change(ctx, c.ref, file.Change{
		Kind: file.Mkdir, Path: c.body.Path, Mode: mode, Owner: c.body.Owner, Group: c.body.Group,
	})
}

func (s *server) removeFile(ctx context.Context, c call[none]) (none, error) {
	return none{}, s.files.Change(ctx, c.ref, file.Change{Kind: file.Remove, Path: c.query["path"]})
}

func (s *server) transfer(kind file.ChangeKind) func(context.Context, call[api.CopyFileRequest]) (none, error) {
	return func(ctx context.Context, c call[api.CopyFileRequest]) (none, error) {
		return none{}, s.files.Change(ctx, c.ref, file.Change{
			Kind: kind, Path: c.body.From, To: c.body.To, Overwrite: c.body.Overwrite,
		})
	}
}

func (s *server) chmodFile(ctx context.Context, c call[api.ChmodRequest]) (none, error) {
	mode, err := modeOf(c.body.Mode)
	if err != nil {
		return none{}, err
	}
	return none{}, s.files.Change(ctx, c.ref, file.Change{Kind: file.Chmod, Path: c.body.Path, Mode: mode, Recursive: c.body.Recursive})
}

func (s *server) chownFile(ctx context.Context, c call[api.ChownRequest]) (none, error) {
	b := c.body
	return none{}, s.files.Change(ctx, c.ref, file.Change{
		Kind: file.Chown, Path: b.Path, Owner: b.Owner, Group: b.Group, Recursive: b.Recursive,
	})
}

// modeOf reads permissions: a JSON number is what it is, digits in a string are
// octal.
func modeOf(v any) (*uint32, error) {
	var n uint64
	var err error
	switch v := v.(type) {
	case nil:
		return nil, nil
	case float64:
		if n = uint64(max(0, v)); v != float64(n) {
			return nil, badMode()
		}
	case string:
		n, err = strconv.ParseUint(strings.TrimPrefix(v, "0o"), 8, 32)
	default:
		return nil, badMode()
	}
	if err != nil || n > 0o7777 {
		return nil, badMode()
	}
	return new(uint32(n)), nil
}

// modeOfQuery reads permissions in a query: decimal, as the reference has it, or
// octal after a leading zero.
func modeOfQuery(text string) (*uint32, error) {
	if text == "" {
		return nil, nil
	}
	if text[0] == '0' {
		return modeOf(text)
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, badMode()
	}
	return modeOf(float64(n))
}

func badMode() error {
	return fault.BadField("mode", "is not between 0 and 07777").Hint(`send a number such as 420, or octal digits such as "0644"`)
}

// writeFromJSON tells whether a write's body is a document, which names its path
// itself.
func writeFromJSON(r *http.Request, in call[none]) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	_, named := in.query["path"]
	return kind != octets && !named
}

// jsonContent decodes the content of a document.
func jsonContent(b api.WriteFileRequest) ([]byte, error) {
	switch b.Encoding {
	case "", "utf8":
		return []byte(b.Content), nil
	case "base64":
		content, err := base64.StdEncoding.DecodeString(b.Content)
		if err != nil {
			return nil, fault.BadField("content", "is not base64").Hint("encode it in standard base64 with padding").With(err)
		}
		return content, nil
	}
	return nil, fault.BadField("encoding", "%q is not one of its values", clip(b.Encoding)).Hint(`use "utf8" or "base64"`)
}

// lines writes one JSON document per line.
type lines struct {
	w       http.ResponseWriter
	out     *patientWriter
	enc     *json.Encoder
	started bool
}

func newLines(w http.ResponseWriter) *lines {
	out := newPatientWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	return &lines{w: w, out: out, enc: enc}
}

func (l *lines) start() {
	if !l.started {
		l.started = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		l.w.WriteHeader(http.StatusOK)
	}
}

func (l *lines) write(v any) error {
	l.start()
	return l.enc.Encode(v)
}

func (l *lines) flush() error { return http.NewResponseController(l.w).Flush() }

// end ends the answer with err: as an error answer if nothing is out yet, else by
// cutting it off.
func (l *lines) end(s *server, r *http.Request, err error) error {
	if err == nil {
		l.start()
		return nil
	}
	if !l.started {
		return err
	}
	s.cut(l.w, r, err)
	return nil
}
