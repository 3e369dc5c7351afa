package file_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/file"
	"github.com/pandovm/pando/internal/testlab/guestlab"
	pando "github.com/pandovm/pando/sdk"
)

func (l *lab) open(path string, size int, more string) api.Upload {
	l.t.Helper()
	a := l.send("POST", "uploads", nil, text(fmt.Sprintf(`{"path":%q,"size":%d%s}`, path, size, more)))
	var u api.Upload
	if err := json.Unmarshal([]byte(a.body), &u); err != nil || a.status != 200 || u.Path != path || u.Size != int64(size) || u.ReceivedBytes != 0 {
		l.t.Fatalf("open: %d %s", a.status, a.body)
	}
	return u
}

func (l *lab) chunk(id string, offset int, content string) answer {
	l.t.Helper()
	return l.send("PUT", "uploads/"+id, url.Values{"offset": {strconv.Itoa(offset)}}, text(content))
}

func (l *lab) received(a answer, want int) {
	l.t.Helper()
	var u api.Upload
	if err := json.Unmarshal([]byte(a.body), &u); err != nil || a.status != 200 || u.ReceivedBytes != int64(want) {
		l.t.Errorf("got %d %s, want %d bytes", a.status, a.body, want)
	}
}

func (l *lab) commit(id string) answer {
	l.t.Helper()
	return l.send("POST", "uploads/"+id+"/commit", nil, text("{}"))
}

func TestUploadInParts(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sum := sha256.Sum256([]byte("helloworld"))
	u := l.open(l.path("deep/file"), 10, `,"mode":493,"sha256":"`+hex.EncodeToString(sum[:])+`"`)
	l.refused(l.commit(u.UploadID), 400, api.CodeBadRequest, api.ReasonUploadIncomplete, "size")
	l.received(l.chunk(u.UploadID, 0, "hello"), 5)
	l.received(l.chunk(u.UploadID, 0, "hello"), 5)
	l.received(l.chunk(u.UploadID, 3, "other"), 5)
	l.refused(l.chunk(u.UploadID, 6, "x"), 409, api.CodeConflict, api.ReasonUploadGap, "offset")
	l.refused(l.chunk(u.UploadID, 5, "world!"), 400, api.CodeBadRequest, "", "body")
	l.received(l.send("GET", "uploads/"+u.UploadID, nil, nil), 5)
	l.refused(l.commit(u.UploadID), 400, api.CodeBadRequest, api.ReasonUploadIncomplete, "size")
	l.received(l.chunk(u.UploadID, 5, "world"), 10)
	l.received(l.chunk(u.UploadID, 10, ""), 10)
	if _, err := os.Lstat(l.path("deep/file")); err == nil {
		t.Error("the file appeared before the commit")
	}
	if a := l.commit(u.UploadID); a.status != 204 || l.read("deep/file") != "helloworld" {
		t.Errorf("commit: %d %s", a.status, a.body)
	}
	if got := l.owner(l.path("deep/file")); got != [3]int{1000, 1001, 0o755} {
		t.Errorf("owner, group, mode %v", got)
	}
	for _, a := range []answer{l.commit(u.UploadID), l.send("GET", "uploads/"+u.UploadID, nil, nil), l.chunk(u.UploadID, 0, "x"), l.send("DELETE", "uploads/"+u.UploadID, nil, nil)} {
		l.refused(a, 404, api.CodeNotFound, api.ReasonUploadNotFound, "")
	}
	l.nothingLeft()
}

func TestUploadRefusals(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for field, body := range map[string]string{
		"size": `{"path":"/tmp/x","size":-1}`, "path": `{"size":1}`, "sha256": `{"path":"/tmp/x","size":1,"sha256":"zz"}`,
		"mode": `{"path":"/tmp/x","size":1,"mode":99999}`, "owner": `{"path":"/tmp/x","size":1,"owner":"no-one"}`,
	} {
		l.refused(l.send("POST", "uploads", nil, text(body)), 400, api.CodeBadRequest, "", field)
	}
	l.refused(l.send("POST", "uploads", nil, text(fmt.Sprintf(`{"path":"/tmp/x","size":%d}`, int64(file.MaxFile)+1))), 400, api.CodeBadRequest, "", "size")
	u := l.open(l.path("f"), 4, "")
	for _, offset := range []string{"", "-1", "x", "1.5", "99999999999999999999"} {
		l.refused(l.send("PUT", "uploads/"+u.UploadID, url.Values{"offset": {offset}}, text("x")), 400, api.CodeBadRequest, "", "offset")
	}
	for _, id := range []string{"x", "up-1", "..%2f", "up-" + strings.Repeat("0", 32)} {
		l.refused(l.send("GET", "uploads/"+id, nil, nil), 404, api.CodeNotFound, api.ReasonUploadNotFound, "")
	}
	r := httptest.NewRequestWithContext(t.Context(), "PUT", "/v5/vms/x/fs/uploads/"+u.UploadID+"?offset=0", text("x"))
	r.ContentLength = file.MaxChunk + 1
	r.Header.Set("Authorization", "Bearer "+l.Key)
	w := httptest.NewRecorder()
	l.Server.Config.Handler.ServeHTTP(w, r)
	l.refused(answer{w.Code, w.Header(), w.Body.String()}, 413, api.CodePayloadTooLarge, "", "body")
	if a := l.send("DELETE", "uploads/"+u.UploadID, nil, nil); a.status != 204 {
		t.Errorf("delete: %d %s", a.status, a.body)
	}
	l.nothingLeft()
}

func TestUploadChecksums(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	sum := sha256.Sum256([]byte("right"))
	more := `,"sha256":"` + hex.EncodeToString(sum[:]) + `"`
	wrong := l.open(l.path("wrong"), 5, more)
	l.received(l.chunk(wrong.UploadID, 0, "wrong"), 5)
	l.refused(l.commit(wrong.UploadID), 400, api.CodeBadRequest, api.ReasonChecksumMismatch, "sha256")
	l.received(l.send("GET", "uploads/"+wrong.UploadID, nil, nil), 5)
	// Another daemon took the first part: it knows no checksum of it.
	right := l.open(l.path("right"), 5, more)
	l.received(l.chunk(right.UploadID, 0, "ri"), 2)
	again := *l
	again.Lab = l.Restarted(t)
	again.received(again.chunk(right.UploadID, 2, "ght"), 5)
	if a := again.commit(right.UploadID); a.status != 204 || l.read("right") != "right" {
		t.Errorf("after a restart: %d %s", a.status, a.body)
	}
	again.refused(again.commit(wrong.UploadID), 400, api.CodeBadRequest, api.ReasonChecksumMismatch, "sha256")
	if a := again.send("DELETE", "uploads/"+wrong.UploadID, nil, nil); a.status != 204 {
		t.Errorf("delete: %d", a.status)
	}
	l.nothingLeft()
}

func TestUploadsAreBounded(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var open []string
	for range 32 {
		open = append(open, l.open(l.path("f"), 1, "").UploadID)
	}
	body := text(fmt.Sprintf(`{"path":%q,"size":1}`, l.path("f")))
	l.refused(l.send("POST", "uploads", nil, body), 409, api.CodeConflict, api.ReasonTooMany, "")
	for _, id := range open {
		if a := l.send("DELETE", "uploads/"+id, nil, nil); a.status != 204 {
			t.Errorf("delete: %d %s", a.status, a.body)
		}
	}
	l.nothingLeft()
	l.open(l.path("f"), 1, "")
}

// Many writers send the same chunks; each counts once.
func TestConcurrentChunks(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	content := allBytes(400_000)
	u := l.open(l.path("f"), len(content), "")
	for at := 0; at < len(content); at += 100_000 {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { l.received(l.chunk(u.UploadID, at, string(content[at:at+100_000])), at+100_000) })
		}
		all.Wait()
	}
	var committed atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if a := l.commit(u.UploadID); a.status == 204 {
				committed.Add(1)
			} else if a.status != 409 && a.status != 404 {
				t.Errorf("commit: %d %s", a.status, a.body)
			}
		})
	}
	all.Wait()
	if committed.Load() != 1 || l.read("f") != string(content) {
		t.Errorf("committed %d times", committed.Load())
	}
	l.nothingLeft()
}

// flaky drops every third request for a chunk after a part of it.
func flaky(next http.Handler) http.Handler {
	var n atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "PUT" && strings.Contains(r.URL.Path, "/uploads/") {
			switch n.Add(1) % 3 {
			case 1:
				r.Body = io.NopCloser(io.MultiReader(io.LimitReader(r.Body, 100_000), broken{}))
				next.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			case 2:
				next.ServeHTTP(httptest.NewRecorder(), r) // it arrives, and the answer is lost
				panic(http.ErrAbortHandler)
			}
		}
		next.ServeHTTP(w, r)
	})
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestUploadSurvivesABadLine(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	srv := httptest.NewServer(flaky(l.Server.Config.Handler))
	defer srv.Close()
	c, err := pando.New(pando.Options{BaseURL: srv.URL, APIKey: l.Key, HTTPClient: srv.Client()})
	if err != nil {
		t.Fatal(err)
	}
	content := allBytes(40 << 20)
	sum := sha256.Sum256(content)
	var last int64
	err = c.VMs.Files(guestlab.Ref).Upload(t.Context(), l.path("up"), bytes.NewReader(content), int64(len(content)),
		pando.FileOptions{SHA256: hex.EncodeToString(sum[:])}, func(n int64) { last = n })
	if e, ok := err.(*pando.StatusError); ok && e.API.Code == api.CodeBadRequest { //nolint:errorlint // shown as it is
		t.Fatalf("a broken chunk is not repeated: %v", err)
	}
	if err != nil || l.read("up") != string(content) || last != int64(len(content)) {
		t.Errorf("%v, %d bytes reported", err, last)
	}
	l.nothingLeft()
}
