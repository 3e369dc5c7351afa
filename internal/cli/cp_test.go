package cli_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandovm/pando/internal/testlab/guestlab"
)

// fileLab runs commands against the real agent, in a folder of its own.
func fileLab(t *testing.T) (l *lab, dir string) {
	t.Helper()
	g := guestlab.New(t)
	l = newLab(t, nil)
	l.env["PANDO_URL"], l.env["PANDO_API_KEY"] = g.URL, g.Key
	return l, t.TempDir()
}

func (l *lab) mustRun(t *testing.T, args ...string) string {
	t.Helper()
	if code := l.run(t.Context(), args...); code != 0 {
		t.Fatalf("%v: exit %d, %s", args, code, l.err.String())
	}
	return l.out.String()
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFsCommands(t *testing.T) {
	t.Parallel()
	l, dir := fileLab(t)
	f := filepath.Join(dir, "a/f")
	l.IO = nil
	l.in = "hello\n"
	l.mustRun(t, "vm", "fs", "write", "web", f, "-m", "0644")
	if got := l.mustRun(t, "vm", "fs", "cat", "web", f); got != "hello\n" {
		t.Errorf("cat printed %q", got)
	}
	l.mustRun(t, "vm", "fs", "mkdir", "web", filepath.Join(dir, "b/c"), "-m", "0700")
	l.mustRun(t, "vm", "fs", "mv", "web", f, filepath.Join(dir, "b/g"))
	l.mustRun(t, "vm", "fs", "chmod", "web", "0600", filepath.Join(dir, "b/g"))
	l.mustRun(t, "vm", "fs", "chown", "web", "0:0", filepath.Join(dir, "b"), "-r")
	if got := l.mustRun(t, "vm", "fs", "ls", "web", dir, "-r"); !strings.Contains(got, "b/g") || !strings.Contains(got, "-rw-------") {
		t.Errorf("ls printed %s", got)
	}
	if got := l.mustRun(t, "vm", "fs", "stat", "web", filepath.Join(dir, "b/g")); !strings.Contains(got, "0600") {
		t.Errorf("stat printed %s", got)
	}
	for _, args := range [][]string{
		{"ls", "web", dir}, {"ls", "web", dir, "-r"}, {"stat", "web", dir}, {"cat", "web", filepath.Join(dir, "b/g")}, {"mkdir", "web", filepath.Join(dir, "b")},
	} {
		if got := l.mustRun(t, append([]string{"vm", "fs", "--json"}, args...)...); !json.Valid([]byte(got)) {
			t.Errorf("%v printed %s", args, got)
		}
	}
	l.mustRun(t, "vm", "fs", "rm", "web", filepath.Join(dir, "b"))
	if code := l.run(t.Context(), "vm", "fs", "cat", "web", f); code != 1 || !strings.Contains(l.err.String(), "nothing is at") {
		t.Errorf("exit %d, %s", code, l.err.String())
	}
	if code := l.run(t.Context(), "vm", "fs", "chmod", "web", "rwx", f); code != 2 {
		t.Errorf("exit %d for a mode that is none", code)
	}
}

func TestCp(t *testing.T) {
	t.Parallel()
	l, dir := fileLab(t)
	host, guest := filepath.Join(dir, "host"), filepath.Join(dir, "guest")
	big := strings.Repeat("0123456789abcdef", 20<<20/16)
	write(t, filepath.Join(host, "f"), "f")
	write(t, filepath.Join(host, "big"), big)
	write(t, filepath.Join(host, "tree/sub/g"), "g")
	if err := os.Symlink("sub/g", filepath.Join(host, "tree/l")); err != nil {
		t.Fatal(err)
	}
	l.mustRun(t, "vm", "cp", filepath.Join(host, "f"), "web:"+guest+"/new/name")
	l.mustRun(t, "vm", "cp", filepath.Join(host, "f"), "web:"+guest+"/new")
	l.mustRun(t, "vm", "cp", filepath.Join(host, "big"), "web:"+guest+"/new")
	l.mustRun(t, "vm", "cp", filepath.Join(host, "tree"), "web:"+guest+"/new")
	l.mustRun(t, "vm", "cp", filepath.Join(host, "tree"), "web:"+guest+"/other")
	for path, want := range map[string]string{"new/name": "f", "new/f": "f", "new/big": big, "new/tree/sub/g": "g", "new/tree/l": "g", "other/sub/g": "g"} {
		if got := content(t, filepath.Join(guest, path)); got != want {
			t.Errorf("%s: %d bytes, want %d", path, len(got), len(want))
		}
	}
	back := filepath.Join(dir, "back")
	l.mustRun(t, "vm", "cp", "web:"+guest+"/new", back)
	l.mustRun(t, "vm", "cp", "web:"+guest+"/new/name", back)
	l.mustRun(t, "vm", "cp", "-p", "web:"+guest+"/new/name", filepath.Join(back, "kept"))
	l.mustRun(t, "vm", "cp", "web:"+guest+"/new/tree", "other:"+guest+"/third")
	l.mustRun(t, "vm", "cp", "web:"+guest+"/new/big", "other:"+guest+"/third")
	for path, want := range map[string]string{"back/name": "f", "back/kept": "f", "back/tree/sub/g": "g", "back/tree/l": "g", "back/big": big, "guest/third/sub/g": "g", "guest/third/big": big} {
		if got := content(t, filepath.Join(dir, path)); got != want {
			t.Errorf("%s: %d bytes, want %d", path, len(got), len(want))
		}
	}
	info, err := os.Stat(filepath.Join(back, "kept"))
	original, err2 := os.Stat(filepath.Join(guest, "new/name"))
	if err != nil || err2 != nil || !info.ModTime().Equal(original.ModTime()) || info.Mode() != original.Mode() {
		t.Errorf("-p did not keep time and mode")
	}
	if got := l.mustRun(t, "vm", "cp", "--json", filepath.Join(host, "f"), "web:"+guest+"/j"); !json.Valid([]byte(got)) || !strings.Contains(got, `"bytes": 1`) {
		t.Errorf("printed %s", got)
	}
}

func TestCpMistakes(t *testing.T) {
	t.Parallel()
	l, dir := fileLab(t)
	write(t, filepath.Join(dir, "f"), "f")
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"neither path":  {filepath.Join(dir, "f"), filepath.Join(dir, "g")},
		"absolute path": {filepath.Join(dir, "f"), "web:relative"},
		"nothing is at": {"web:" + dir + "/none", dir},
		"is no folder":  {filepath.Join(dir, "d"), "web:" + dir + "/f"},
		"neither a":     {"web:/dev/null", dir},
		"missing":       {"web:/x"},
	} {
		if code := l.run(t.Context(), append([]string{"vm", "cp"}, args...)...); code == 0 || !strings.Contains(l.err.String(), want) {
			t.Errorf("%v: exit %d, %s, want %q", args, code, l.err.String(), want)
		}
	}
}

// What a guest sends is not trusted: its archive stays in the folder.
func TestCpFromAHostileGuest(t *testing.T) {
	t.Parallel()
	for name, entries := range map[string][]tar.Header{
		"dots":           {{Name: "../escaped", Typeflag: tar.TypeReg, Mode: 0o644}},
		"absolute":       {{Name: "/tmp/pando-escaped", Typeflag: tar.TypeReg, Mode: 0o644}},
		"through a link": {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "l/escaped", Typeflag: tar.TypeReg, Mode: 0o644}},
		"hard link":      {{Name: "h", Typeflag: tar.TypeLink, Linkname: "../secret"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var archive bytes.Buffer
			w := tar.NewWriter(&archive)
			for _, h := range entries {
				if err := w.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			l := newLab(t, hostileGuest(archive.Bytes()))
			dir := t.TempDir()
			write(t, filepath.Join(dir, "secret"), "secret")
			if code := l.run(t.Context(), "vm", "cp", "web:/tree", filepath.Join(dir, "in")); code == 0 {
				t.Error("it was unpacked")
			}
			left, err := os.ReadDir(dir)
			if err != nil || len(left) != 2 {
				t.Errorf("there is %v", left)
			}
		})
	}
}

func hostileGuest(archive []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/fs/stat") {
			_, _ = w.Write([]byte(`{"isDirectory":true,"kind":"directory","permissions":"0755"}`))
			return
		}
		_, _ = w.Write(archive)
	})
}
