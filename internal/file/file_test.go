package file_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/file"
	"github.com/pandovm/pando/internal/testlab/guestlab"
	pando "github.com/pandovm/pando/sdk"
)

func TestContentRoundTrips(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sparse := make([]byte, 3<<20)
	sparse[2<<20] = 1
	for name, content := range map[string][]byte{
		"empty": {}, "one": {0}, "all values": allBytes(256), "64k-1": allBytes(64<<10 - 1), "64k": allBytes(64 << 10),
		"64k+1": allBytes(64<<10 + 1), "large": allBytes(5<<20 + 17), "sparse": sparse,
	} {
		p := l.path("round", name)
		if err := l.f.WriteFile(t.Context(), p, content, pando.FileOptions{}); err != nil {
			t.Fatalf("write %s: %v", name, err)
		}
		if l.read("round/"+name) != string(content) {
			t.Errorf("%s: other content in the guest", name)
		}
		got, err := l.f.ReadFile(t.Context(), p)
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: read %d bytes of %d: %v", name, len(got), len(content), err)
		}
		w := l.f.Create(t.Context(), p+".created", pando.FileOptions{})
		if _, err := w.Write(content); err != nil && len(content) > 0 {
			t.Errorf("%s: %v", name, err)
		}
		if err := w.Close(); err != nil || l.read("round/"+name+".created") != string(content) {
			t.Errorf("%s created: %v", name, err)
		}
	}
	l.nothingLeft()
}

func TestOwnersAndModes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	write := func(p string, o pando.FileOptions) {
		t.Helper()
		if err := l.f.WriteFile(t.Context(), p, []byte("x"), o); err != nil {
			t.Fatal(err)
		}
	}
	check := func(p string, want [3]int) {
		t.Helper()
		if got := l.owner(p); got != want {
			t.Errorf("%s: owner, group, mode %v, want %v (%o)", p, got, want, want[2])
		}
	}
	write(l.path("a/b/new"), pando.FileOptions{})
	check(l.path("a"), [3]int{1000, 1001, 0o755})
	check(l.path("a/b"), [3]int{1000, 1001, 0o755})
	check(l.path("a/b/new"), [3]int{1000, 1001, 0o600})
	write(l.path("c/d/named"), pando.FileOptions{Mode: 0o640, Owner: "other", Group: "staff"})
	check(l.path("c/d"), [3]int{1002, 50, 0o755})
	check(l.path("c/d/named"), [3]int{1002, 50, 0o640})
	write(l.path("numbers"), pando.FileOptions{Owner: "7", Group: "8", Mode: 0o755 | fs.ModeSetuid})
	check(l.path("numbers"), [3]int{7, 8, 0o4755})
	write(l.path("numbers"), pando.FileOptions{})
	check(l.path("numbers"), [3]int{7, 8, 0o4755})
	write(l.path("numbers"), pando.FileOptions{Mode: 0o600, Owner: "root"})
	check(l.path("numbers"), [3]int{0, 0, 0o600})
	if err := l.f.MkdirAll(t.Context(), l.path("m/n"), 0o700); err != nil {
		t.Fatal(err)
	}
	check(l.path("m"), [3]int{1000, 1001, 0o755})
	check(l.path("m/n"), [3]int{1000, 1001, 0o700})
	for field, q := range map[string][]string{"owner": {"owner", "nobody-here"}, "group": {"group", "no-group"}} {
		l.refused(l.send("PUT", "write", at(l.path("never"), q...), text("x")), 400, api.CodeBadRequest, "", field)
	}
	for mode, want := range map[string]int{"493": 0o755, "0755": 0o755, "0o755": 0o755, "420": 0o644, "0": 0} {
		if a := l.send("PUT", "write", at(l.path("mode"), "mode", mode), text("x")); a.status != 204 {
			t.Errorf("mode %s: %s", mode, a.body)
		}
		check(l.path("mode"), [3]int{1000, 1001, want})
	}
	for _, mode := range []string{"-1", "4096", "0999", "rwx", "1e3", "010000", "1.5"} {
		l.refused(l.send("PUT", "write", at(l.path("mode"), "mode", mode), text("x")), 400, api.CodeBadRequest, "", "mode")
	}
}

func TestJSONWrite(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	write := func(body string) answer {
		t.Helper()
		return l.send("PUT", "write", nil, text(body), "Content-Type", "application/json")
	}
	p, _ := json.Marshal(l.path("j"))
	sum := sha256.Sum256([]byte("hä"))
	for body, want := range map[string]string{
		`{"path":%s,"content":"hä"}`:                                                                "hä",
		`{"path":%s,"content":"hä","encoding":"utf8","mode":420}`:                                   "hä",
		`{"path":%s,"content":"","encoding":"base64","mode":"0600"}`:                                "",
		`{"path":%s,"content":"AP8=","encoding":"base64","mode":null}`:                              "\x00\xff",
		`{"path":%s,"content":"hä","sha256":"` + strings.ToUpper(hex.EncodeToString(sum[:])) + `"}`: "hä",
	} {
		if a := write(fmt.Sprintf(body, p)); a.status != 204 || l.read("j") != want {
			t.Errorf("%s: %d %s, file %q", body, a.status, a.body, l.read("j"))
		}
	}
	for field, body := range map[string]string{
		"content": `{"path":%s,"content":"!","encoding":"base64"}`, "encoding": `{"path":%s,"content":"","encoding":"latin1"}`,
		"mode": `{"path":%s,"content":"","mode":-1}`, "path": `{"content":""}`, "extra": `{"path":%s,"content":"","extra":1}`,
		"sha256": `{"path":%s,"content":"","sha256":"00"}`,
	} {
		if strings.Contains(body, "%s") {
			body = fmt.Sprintf(body, p)
		}
		l.refused(write(body), 400, api.CodeBadRequest, "", field)
	}
	l.refused(write(fmt.Sprintf(`{"path":%s,"content":"x","sha256":"%064d"}`, p, 0)), 400, api.CodeBadRequest, api.ReasonChecksumMismatch, "sha256")
	big := fmt.Sprintf(`{"path":%s,"content":%q}`, p, strings.Repeat("x", file.MaxJSONFile))
	l.refused(write(big), 413, api.CodePayloadTooLarge, "", "body")
	l.nothingLeft()
}

func TestWritesAreAtomic(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.make("kept", "old")
	sum := sha256.Sum256([]byte("new"))
	l.refused(l.send("PUT", "write", at(l.path("kept"), "sha256", hex.EncodeToString(sum[:])), text("something else")),
		400, api.CodeBadRequest, api.ReasonChecksumMismatch, "sha256")
	if a := l.send("PUT", "write", at(l.path("kept"), "sha256", hex.EncodeToString(sum[:])), text("new")); a.status != 204 || l.read("kept") != "new" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if err := os.Symlink("kept", l.path("link")); err != nil {
		t.Fatal(err)
	}
	if err := l.f.WriteFile(t.Context(), l.path("link"), []byte("through"), pando.FileOptions{}); err != nil || l.read("kept") != "through" {
		t.Errorf("through a link: %v, %q", err, l.read("kept"))
	}
	if target, err := os.Readlink(l.path("link")); err != nil || target != "kept" {
		t.Errorf("the link was replaced: %v", err)
	}
	if err := os.Symlink("fresh", l.path("dangling")); err != nil {
		t.Fatal(err)
	}
	if err := l.f.WriteFile(t.Context(), l.path("dangling"), []byte("made"), pando.FileOptions{}); err != nil || l.read("fresh") != "made" {
		t.Errorf("through a dangling link: %v", err)
	}
	l.nothingLeft()
}

// A client that vanishes in the middle leaves the old file and nothing else.
func TestVanishingClients(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.make("kept", "old")
	for _, q := range []string{"write?path=" + l.path("kept"), "write?path=" + l.path("new"), "archive?path=" + l.path("tree")} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(l.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = fmt.Fprintf(conn, "PUT /v5/vms/%s/fs/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 10000000\r\n\r\n%s",
			guestlab.Ref, q, l.Key, strings.Repeat("x", 3<<20))
		if err := errors.Join(err, conn.Close()); err != nil {
			t.Fatal(err)
		}
	}
	l.Server.CloseClientConnections()
	eventually(t, func() bool {
		left, err := filepath.Glob(l.path(".pando-*"))
		return err == nil && len(left) == 0
	})
	if l.read("kept") != "old" {
		t.Error("the file has changed")
	}
	if _, err := os.Lstat(l.path("new")); err == nil {
		t.Error("half a file appeared")
	}
}

func TestRanges(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	content := string(allBytes(200_000))
	p := l.make("r", content)
	empty := l.make("empty", "")
	n := len(content)
	for header, want := range map[string]string{
		"bytes=0-0": content[:1], "bytes=0-99": content[:100], "bytes=65530-65545": content[65530:65546], "bytes=70000-": content[70000:],
		"bytes=-10": content[n-10:], "bytes=-999999": content, "bytes=199999-": content[n-1:], "bytes=100000-99999999": content[100000:],
	} {
		a := l.send("GET", "read", at(p), nil, "Range", header)
		if a.status != 206 || a.body != want || a.header.Get("Content-Length") != strconv.Itoa(len(want)) ||
			!strings.HasSuffix(a.header.Get("Content-Range"), "/200000") {
			t.Errorf("%s: %d, %d bytes, %v", header, a.status, len(a.body), a.header)
		}
	}
	for _, header := range []string{"bytes=200000-", "bytes=999999-1000000", "bytes=-0"} {
		a := l.send("GET", "read", at(p), nil, "Range", header)
		l.refused(a, 416, api.CodeRangeNotSatisfiable, "", "Range")
		if a.header.Get("Content-Range") != "bytes */200000" {
			t.Errorf("%s: %v", header, a.header)
		}
	}
	for _, header := range []string{"bytes=a-b", "bytes=5-1", "bytes=1-2,4-5", "lines=1-2", "bytes=--1", "bytes=", "bytes=99999999999999999999-"} {
		l.refused(l.send("GET", "read", at(p), nil, "Range", header), 400, api.CodeBadRequest, "", "Range")
	}
	if a := l.send("GET", "read", at(empty), nil, "Range", "bytes=0-"); a.status != 200 || a.body != "" {
		t.Errorf("a range of an empty file: %d", a.status)
	}
	head := l.send("HEAD", "read", at(p), nil)
	if head.status != 200 || head.header.Get("Content-Length") != "200000" || head.header.Get("ETag") == "" {
		t.Errorf("head: %d %v", head.status, head.header)
	}
	if a := l.send("GET", "read", at(p), nil, "Range", "bytes=1-2", "If-Range", head.header.Get("ETag")); a.status != 206 {
		t.Errorf("the same file: %d", a.status)
	}
	if a := l.send("GET", "read", at(p), nil, "Range", "bytes=1-2", "If-Range", `"other"`); a.status != 200 || a.body != content {
		t.Errorf("another file: %d", a.status)
	}
}

func TestFilesWithoutASize(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, p := range []string{"/proc/self/status", "/proc/version", "/proc/self/maps"} {
		a := l.send("GET", "read", at(p), nil)
		if a.status != 200 || len(a.body) == 0 {
			t.Errorf("%s: %d, %d bytes", p, a.status, len(a.body))
		}
	}
	want, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil {
		want, err = os.ReadFile("/proc/version")
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.f.ReadFile(t.Context(), "/proc/version")
	if err != nil || len(got) == 0 || len(want) == 0 {
		t.Errorf("%q: %v", got, err)
	}
}

// What is no regular file has no content, and asking for it never blocks.
func TestSpecialFilesAreRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	fifo, sock, dir := l.path("fifo"), l.path("sock"), l.path("dir")
	if err := errors.Join(unix.Mkfifo(fifo, 0o600), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	s, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, p := range []string{fifo, sock, dir, "/dev/null", "/dev/zero", "/"} {
		l.refused(l.send("GET", "read", at(p), nil), 400, api.CodeBadRequest, api.ReasonNotAFile, "path")
		l.refused(l.send("PUT", "write", at(p), text("x")), 400, api.CodeBadRequest, api.ReasonNotAFile, "path")
		body := fmt.Sprintf(`{"path":%q,"size":1}`, p)
		l.refused(l.send("POST", "uploads", nil, text(body)), 400, api.CodeBadRequest, api.ReasonNotAFile, "path")
	}
	for _, p := range []string{fifo, sock, "/dev/null"} {
		l.refused(l.send("GET", "archive", at(p), nil), 400, api.CodeBadRequest, api.ReasonNotAFile, "path")
		l.refused(l.send("POST", "copy", nil, text(fmt.Sprintf(`{"from":%q,"to":%q}`, p, l.path("copy")))), 400, api.CodeBadRequest, api.ReasonNotAFile, "from")
	}
	kinds := map[string]api.FileKind{fifo: api.FileKindFifo, sock: api.FileKindSocket, dir: api.FileKindDirectory, "/dev/null": api.FileKindDevice}
	for p, kind := range kinds {
		if st, err := l.f.Stat(t.Context(), p); err != nil || st.Kind != kind || st.IsFile || st.IsSymlink {
			t.Errorf("%s: %+v, %v", p, st, err)
		}
	}
}

func TestStatTellsTheTruthAboutLinks(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.make("f", "12345")
	if err := errors.Join(os.Symlink("f", l.path("l")), os.Symlink("nowhere", l.path("d")), os.Symlink("l", l.path("ll")), os.Mkdir(l.path("dir"), 0o711)); err != nil {
		t.Fatal(err)
	}
	st, err := l.f.Stat(t.Context(), l.path("l"))
	if err != nil || !st.IsSymlink || st.IsFile || st.Target != "f" || st.TargetKind != api.FileKindFile {
		t.Errorf("%+v, %v", st, err)
	}
	if st, err := l.f.Stat(t.Context(), l.path("d")); err != nil || !st.IsSymlink || st.TargetKind != "" || st.Target != "nowhere" {
		t.Errorf("dangling: %+v, %v", st, err)
	}
	st, err = l.f.Stat(t.Context(), l.path("f"))
	if err != nil || !st.IsFile || st.Size != 5 || st.Permissions != "0644" || st.Owner != "root" || st.Group != "root" || st.Modified.IsZero() {
		t.Errorf("%+v, %v", st, err)
	}
	if got, err := l.f.ReadFile(t.Context(), l.path("ll")); err != nil || string(got) != "12345" {
		t.Errorf("through two links: %q, %v", got, err)
	}
	for name, want := range map[string]bool{"f": true, "d": true, "dir": true, "none": false, "f/below": false, "none/below": false} {
		if got, err := l.f.Exists(t.Context(), l.path(name)); err != nil || got != want {
			t.Errorf("%s exists: %v, %v", name, got, err)
		}
	}
	entries, err := l.f.ReadDir(t.Context(), l.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name+" "+string(e.Kind))
	}
	if got := strings.Join(names, ", "); got != "d symlink, dir directory, f file, l symlink, ll symlink" {
		t.Errorf("listed %s", got)
	}
}

func TestPathsAreChecked(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	bad := []string{"", "relative", "/a/../b", "/..", "/a\x00b", "/" + strings.Repeat("x", 4096), "/\xff\xfe", "../etc/passwd"}
	for _, p := range bad {
		for verb, method := range map[string]string{
			"dir": "GET", "exists": "GET", "stat": "GET", "read": "GET", "remove": "DELETE", "archive": "GET", "watch": "GET",
		} {
			l.refused(l.send(method, verb, at(p), nil), 400, api.CodeBadRequest, "", "path")
		}
		for _, verb := range []string{"write", "archive"} {
			q := at(p)
			l.refused(l.send("PUT", verb, q, text("x"), "Content-Type", "application/octet-stream"), 400, api.CodeBadRequest, "", "path")
		}
		if strings.Contains(p, "\xff") {
			continue // JSON has no such strings
		}
		b, _ := json.Marshal(p)
		for verb, body := range map[string]string{
			"mkdir": `{"path":%s}`, "chmod": `{"path":%s,"mode":420}`, "chown": `{"path":%s,"owner":"root"}`, "uploads": `{"path":%s,"size":1}`,
		} {
			l.refused(l.send("POST", verb, nil, text(fmt.Sprintf(body, b))), 400, api.CodeBadRequest, "", "path")
		}
		for _, verb := range []string{"copy", "move"} {
			l.refused(l.send("POST", verb, nil, text(fmt.Sprintf(`{"from":%s,"to":"/tmp/x"}`, b))), 400, api.CodeBadRequest, "", "from")
			l.refused(l.send("POST", verb, nil, text(fmt.Sprintf(`{"from":"/tmp/x","to":%s}`, b))), 400, api.CodeBadRequest, "", "to")
		}
	}
	for _, p := range []string{l.path("none"), l.path("none/below")} {
		for verb, method := range map[string]string{"dir": "GET", "stat": "GET", "read": "GET", "remove": "DELETE", "archive": "GET", "watch": "GET"} {
			l.refused(l.send(method, verb, at(p), nil), 404, api.CodeNotFound, api.ReasonFileNotFound, "path")
		}
	}
	f := l.make("f", "x")
	for verb, method := range map[string]string{"stat": "GET", "read": "GET", "dir": "GET"} {
		l.refused(l.send(method, verb, at(f+"/below"), nil), 400, api.CodeBadRequest, api.ReasonNotADirectory, "path")
	}
	l.refused(l.send("GET", "dir", at(f), nil), 400, api.CodeBadRequest, api.ReasonNotADirectory, "path")
	l.refused(l.send("PUT", "write", at(f+"/below"), text("x")), 400, api.CodeBadRequest, api.ReasonNotADirectory, "path")
	l.refused(l.send("POST", "mkdir", nil, text(fmt.Sprintf(`{"path":%q}`, f))), 400, api.CodeBadRequest, api.ReasonNotADirectory, "path")
	l.refused(l.send("DELETE", "remove", at("/"), nil), 400, api.CodeBadRequest, "", "path")
	long := l.path(strings.Repeat("n", 300))
	l.refused(l.send("PUT", "write", at(long), text("x")), 400, api.CodeBadRequest, "", "path")
	if _, err := l.Client.VMs.Files(guestlab.Missing).Stat(t.Context(), "/"); err == nil {
		t.Error("a vm that does not exist has files")
	}
}

func TestChanges(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ctx := t.Context()
	l.make("src/a/b", "b")
	l.make("src/c", "c")
	if err := errors.Join(os.Symlink("c", l.path("src/l")), os.Chmod(l.path("src/c"), 0o751), os.Lchown(l.path("src/c"), 5, 6)); err != nil {
		t.Fatal(err)
	}
	if err := l.f.Copy(ctx, l.path("src"), l.path("new/parent/copy"), false); err != nil {
		t.Fatal(err)
	}
	if l.read("new/parent/copy/a/b") != "b" || l.owner(l.path("new/parent/copy/c")) != [3]int{5, 6, 0o751} ||
		l.owner(l.path("new/parent")) != [3]int{1000, 1001, 0o755} {
		t.Error("the copy differs")
	}
	if target, err := os.Readlink(l.path("new/parent/copy/l")); err != nil || target != "c" {
		t.Errorf("the link was not copied: %v", err)
	}
	if err := l.f.Copy(ctx, l.path("src"), l.path("new/parent/copy"), false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a folder: %v", err)
	}
	if err := l.f.Copy(ctx, l.path("src"), l.path("new/parent/copy"), true); err != nil {
		t.Errorf("into a folder: %v", err)
	}
	if err := l.f.Copy(ctx, l.path("src"), l.path("src/a/itself"), false); err == nil {
		t.Error("a folder was copied into itself")
	}
	if err := l.f.Rename(ctx, l.path("src/c"), l.path("moved/to")); err != nil || l.read("moved/to") != "c" {
		t.Errorf("move: %v", err)
	}
	l.make("moved/other", "other")
	if err := l.f.Rename(ctx, l.path("moved/other"), l.path("moved/to")); err != nil || l.read("moved/to") != "other" {
		t.Errorf("move over a file: %v", err)
	}
	l.refused(l.send("POST", "move", nil, text(fmt.Sprintf(`{"from":%q,"to":%q}`, l.path("moved/to"), l.path("src/a/b")))),
		409, api.CodeConflict, api.ReasonFileExists, "to")
	if err := l.f.Rename(ctx, l.path("none"), l.path("x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("move of nothing: %v", err)
	}
	if err := l.f.Chmod(ctx, l.path("new"), 0o700, true); err != nil || l.owner(l.path("new/parent/copy/a/b"))[2] != 0o700 {
		t.Errorf("chmod: %v", err)
	}
	if err := l.f.Chown(ctx, l.path("new"), "other", "", true); err != nil || l.owner(l.path("new/parent/copy/l"))[0] != 1002 || l.owner(l.path("new/parent/copy/a/b"))[1] != 0 {
		t.Errorf("chown: %v, %v", err, l.owner(l.path("new/parent/copy/a/b")))
	}
	l.refused(l.send("POST", "chmod", nil, text(fmt.Sprintf(`{"path":%q,"mode":null}`, l.dir))), 400, api.CodeBadRequest, "", "mode")
	l.refused(l.send("POST", "chown", nil, text(fmt.Sprintf(`{"path":%q}`, l.dir))), 400, api.CodeBadRequest, "", "owner")
	outside := l.make("outside/kept", "kept")
	if err := os.Symlink(filepath.Dir(outside), l.path("new/way-out")); err != nil {
		t.Fatal(err)
	}
	if err := l.f.RemoveAll(ctx, l.path("new")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(l.path("new")); err == nil || l.read("outside/kept") != "kept" {
		t.Error("not removed, or too much")
	}
	if err := l.f.RemoveAll(ctx, l.path("new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removing nothing: %v", err)
	}
}

func TestLargeFolders(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for i := range 3000 {
		l.make(fmt.Sprintf("big/%d/%d", i%7, i), "")
	}
	seen := map[string]bool{}
	for e, err := range l.f.Walk(t.Context(), l.path("big"), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if dir := filepath.Dir(e.Name); dir != "." && !seen[dir] {
			t.Fatalf("%s came before its folder", e.Name)
		}
		seen[e.Name] = true
	}
	if len(seen) != 3007 {
		t.Errorf("%d entries, want 3007", len(seen))
	}
	n := 0
	for _, err := range l.f.Walk(t.Context(), l.path("big"), 1) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 7 {
		t.Errorf("%d entries on one level", n)
	}
	if err := l.f.RemoveAll(t.Context(), l.path("big")); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(l.dir); len(left) != 0 {
		t.Errorf("%d entries are left", len(left))
	}
}

// A full file system is a typed error, and leaves nothing behind.
func TestNoSpaceAndReadOnly(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	small, ro := l.path("small"), l.path("ro")
	if err := errors.Join(os.Mkdir(small, 0o755), os.Mkdir(ro, 0o755)); err != nil {
		t.Fatal(err)
	}
	mount(t, small, "size=64k", 0)
	mount(t, ro, "size=64k", unix.MS_RDONLY)
	big := bytes.Repeat([]byte("x"), 1<<20)
	l.refused(l.send("PUT", "write", at(small+"/f"), bytes.NewReader(big)), 409, api.CodeConflict, api.ReasonGuestDiskFull, "path")
	l.refused(l.send("PUT", "write", at(ro+"/f"), text("x")), 409, api.CodeConflict, api.ReasonReadOnlyFileSystem, "path")
	err := l.f.Upload(t.Context(), small+"/up", bytes.NewReader(big), int64(len(big)), pando.FileOptions{}, nil)
	if e := (*api.Error)(nil); !errors.As(err, &e) || e.Reason != api.ReasonGuestDiskFull {
		t.Errorf("upload: %v", err)
	}
	l.make("src", strings.Repeat("x", 1<<20))
	l.refused(l.send("POST", "copy", nil, text(fmt.Sprintf(`{"from":%q,"to":%q}`, l.path("src"), small+"/copy"))), 409, api.CodeConflict, api.ReasonGuestDiskFull, "to")
	if left, err := os.ReadDir(small); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := l.f.Rename(t.Context(), l.path("ro"), l.path("ro2")); err == nil {
		t.Error("a mount point was moved")
	}
}

func mount(t *testing.T, dir, data string, flags uintptr) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", flags, data); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

func TestConcurrentWritersLeaveOneWhole(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			content := bytes.Repeat([]byte{byte('a' + i)}, 300_000)
			if err := l.f.WriteFile(t.Context(), l.path("shared"), content, pando.FileOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	got := l.read("shared")
	if len(got) != 300_000 || strings.Trim(got, got[:1]) != "" {
		t.Errorf("%d bytes of several writers", len(got))
	}
	l.nothingLeft()
}

func TestEncodingOfNames(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if err := os.WriteFile(l.path("bad\xffname"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"with space", "per%cent", "plus+", "ünï", "new\nline", "quo\"te", "#hash?"} {
		if err := l.f.WriteFile(t.Context(), l.path(name), []byte(name), pando.FileOptions{}); err != nil || l.read(name) != name {
			t.Errorf("%q: %v", name, err)
		}
	}
	entries, err := l.f.ReadDir(t.Context(), l.dir)
	if err != nil || len(entries) != 8 || entries[0].Name != "#hash?" {
		t.Errorf("%v, %v", entries, err)
	}
}

func eventually(t *testing.T, f func() bool) {
	t.Helper()
	for !f() {
		if t.Context().Err() != nil {
			t.Fatal("it never happened")
		}
		syscall.Select(0, nil, nil, nil, &syscall.Timeval{Usec: 5000})
	}
}
