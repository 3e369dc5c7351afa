package file_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/guest/guesttest"
	"github.com/pandovm/pando/internal/testlab/guestlab"
	pando "github.com/pandovm/pando/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	passwd = "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1001:Agent:/tmp:/bin/sh\nother:x:1002:1003::/:/bin/sh\n"
	group  = "root:x:0:\nagents:x:1001:\nothers:x:1003:\nstaff:x:50:\n"
)

// lab is a guestlab with a folder to work in.
type lab struct {
	*guestlab.Lab

	t   *testing.T
	f   *pando.Files
	dir string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{Lab: guestlab.New(t, guesttest.WithAccounts(t, passwd, group)), t: t}
	l.f = l.Client.VMs.Files(guestlab.Ref)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l.dir = dir
	return l
}

func (l *lab) path(parts ...string) string {
	return filepath.Join(append([]string{l.dir}, parts...)...)
}

// make writes a file behind the guest's back.
func (l *lab) make(name, content string) string {
	l.t.Helper()
	p := l.path(name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		l.t.Fatal(err)
	}
	return p
}

func (l *lab) read(name string) string {
	l.t.Helper()
	b, err := os.ReadFile(l.path(name))
	if err != nil {
		l.t.Fatal(err)
	}
	return string(b)
}

// owner returns uid, gid and permissions of a path itself.
func (l *lab) owner(p string) [3]int {
	l.t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(p, &st); err != nil {
		l.t.Fatalf("stat %s: %v", p, err)
	}
	return [3]int{int(st.Uid), int(st.Gid), int(st.Mode & 0o7777)}
}

// nothingLeft fails if temporary files are left anywhere below the folder.
func (l *lab) nothingLeft() {
	l.t.Helper()
	err := filepath.WalkDir(l.dir, func(p string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(p, ".part") {
			l.t.Errorf("%s was left behind", p)
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// answer is a response whose body was read.
type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request to fs/verb; a body of nil sends none.
func (l *lab) send(method, verb string, q url.Values, body io.Reader, header ...string) answer {
	l.t.Helper()
	req, err := http.NewRequestWithContext(l.t.Context(), method, l.URL+"/v5/vms/"+guestlab.Ref+"/fs/"+verb+"?"+q.Encode(), body)
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+l.Key)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := l.Server.Client().Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// refused checks an error answer.
func (l *lab) refused(a answer, status int, code api.Code, reason api.Reason, field string) api.Error {
	l.t.Helper()
	var e api.Error
	if err := json.Unmarshal([]byte(a.body), &e); err != nil {
		l.t.Fatalf("status %d with %q: %v", a.status, a.body, err)
	}
	if a.status != status || e.Code != code || e.Reason != reason || e.Field != field || e.Message == "" || e.Remedy == "" {
		l.t.Errorf("got %d with %s, want %d %s %s of %q", a.status, a.body, status, code, reason, field)
	}
	return e
}

func at(p string, more ...string) url.Values {
	q := url.Values{"path": {p}}
	for i := 0; i < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return q
}

func text(s string) io.Reader { return strings.NewReader(s) }

// allBytes is n bytes in which every value occurs.
func allBytes(n int) []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return bytes.Repeat(all, n/256+1)[:n]
}

func inode(st os.FileInfo) uint64 {
	s, _ := st.Sys().(*syscall.Stat_t)
	return s.Ino
}
