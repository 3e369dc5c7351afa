package file_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

// pack makes an archive of entries; names and links are as given.
func pack(t *testing.T, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range entries {
		content := strings.Repeat("x", int(h.Size))
		if h.Typeflag == tar.TypeReg && h.Mode == 0 {
			h.Mode = 0o644
		}
		h.Format = tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

func reg(name string, size int64) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Size: size}
}

func folder(name string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}
}

func symlink(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
}

func hardlink(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to}
}

// No archive writes, links or reads outside of its folder, whatever its names and
// links, and whatever links lie in the folder already.
func TestArchivesStayInTheirFolder(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	secret := l.make("outside/secret", "secret")
	for name, entries := range map[string][]tar.Header{
		"absolute":                  {reg("/"+strings.TrimPrefix(l.path("outside/x"), "/"), 1)},
		"dots":                      {reg("../outside/x", 1)},
		"dots inside":               {reg("a/../../outside/x", 1)},
		"folder by dots":            {folder("../outside/x")},
		"through a link":            {symlink("l", l.path("outside")), reg("l/x", 1)},
		"through a relative link":   {symlink("l", "../outside"), reg("l/x", 1)},
		"through two links":         {symlink("a", "b"), symlink("b", "../outside"), reg("a/x", 1)},
		"folder through a link":     {symlink("l", "../outside"), folder("l/x")},
		"folder over a link":        {symlink("l", "../outside"), folder("l")},
		"link through a link":       {symlink("l", "../outside"), symlink("l/x", "y")},
		"hard link out":             {hardlink("x", "../outside/secret")},
		"hard link absolute":        {hardlink("x", secret)},
		"hard link through a link":  {symlink("l", "../outside"), hardlink("x", "l/secret")},
		"hard link to a link":       {symlink("l", "../outside/secret"), hardlink("x", "l")},
		"existing link out":         {reg("planted/x", 1)},
		"existing link out, folder": {folder("planted/x")},
		"magic link":                {symlink("m", "/proc/self/root"), reg("m/tmp/x", 1)},
	} {
		dir := l.path("in-" + name)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Symlink("../outside", filepath.Join(dir, "planted"))); err != nil {
			t.Fatal(err)
		}
		l.refused(l.send("PUT", "archive", at(dir), pack(t, entries...)), 400, api.CodeBadRequest, api.ReasonBadArchive, "body")
		left, err := os.ReadDir(l.path("outside"))
		if err != nil || len(left) != 1 || l.read("outside/secret") != "secret" {
			t.Fatalf("%s: outside there is %v, %v", name, left, err)
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(secret, &st); err != nil || st.Nlink != 1 {
			t.Errorf("%s: the file outside has %d names", name, st.Nlink)
		}
	}
	l.nothingLeft()
}

func TestArchivesReplaceLinksInsteadOfFollowingThem(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.make("outside/secret", "secret")
	dir := l.path("in")
	if err := l.f.Extract(t.Context(), dir, pack(t, symlink("l", "../outside/secret"), reg("l", 3)), pando.ExtractOptions{}); err != nil {
		t.Fatal(err)
	}
	if l.read("outside/secret") != "secret" || l.read("in/l") != "xxx" {
		t.Error("the link was followed")
	}
	// Links that stay inside are followed, as in a system whose /bin is one.
	if err := l.f.Extract(t.Context(), dir, pack(t, folder("usr/"), folder("usr/bin"), symlink("bin", "usr/bin"), reg("bin/tool", 2)), pando.ExtractOptions{}); err != nil {
		t.Fatal(err)
	}
	if l.read("in/usr/bin/tool") != "xx" {
		t.Error("a link within the folder was not followed")
	}
}

func TestArchiveRefusals(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	dir := l.path("in")
	for name, h := range map[string]tar.Header{
		"fifo": {Name: "f", Typeflag: tar.TypeFifo}, "device": {Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3},
		"block device": {Name: "b", Typeflag: tar.TypeBlock, Devmajor: 7},
	} {
		e := l.refused(l.send("PUT", "archive", at(dir), pack(t, reg("before", 1), h)), 400, api.CodeBadRequest, api.ReasonNotAFile, "body")
		if !strings.Contains(e.Message, h.Name) {
			t.Errorf("%s: %s", name, e.Message)
		}
	}
	whole := pack(t, reg("a", 5000)).Bytes()
	for name, archive := range map[string][]byte{
		"garbage": bytes.Repeat([]byte("not a tar "), 200), "cut in the content": whole[:2000], "cut in the head": whole[:100],
	} {
		a := l.send("PUT", "archive", at(dir), bytes.NewReader(archive))
		l.refused(a, 400, api.CodeBadRequest, api.ReasonBadArchive, "body")
		if _, err := os.Lstat(filepath.Join(dir, "a")); err == nil {
			t.Errorf("%s: half a file appeared", name)
		}
	}
	l.refused(l.send("PUT", "archive", at(dir, "compress", "gzip"), bytes.NewReader(whole)), 400, api.CodeBadRequest, api.ReasonBadArchive, "body")
	l.refused(l.send("PUT", "archive", at(dir, "compress", "zip"), bytes.NewReader(whole)), 400, api.CodeBadRequest, "", "compress")
	f := l.make("file", "")
	l.refused(l.send("PUT", "archive", at(f), bytes.NewReader(whole)), 400, api.CodeBadRequest, api.ReasonNotADirectory, "path")
	l.nothingLeft()
}

func TestArchiveKeepsWhatMatters(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.make("src/run", "#!")
	l.make("src/dir/data", "data")
	when := time.Date(2001, 2, 3, 4, 5, 6, 700, time.UTC)
	err := errors.Join(
		os.Chmod(l.path("src/run"), 0o4755|os.ModeSetuid), os.Lchown(l.path("src/run"), 7, 8), os.Chmod(l.path("src/run"), 0o755|os.ModeSetuid),
		os.Link(l.path("src/run"), l.path("src/same")), os.Symlink("dir/data", l.path("src/l")), unix.Mkfifo(l.path("src/fifo"), 0o600),
		os.Chmod(l.path("src/dir"), 0o750), os.Chtimes(l.path("src/dir/data"), when, when), os.Chtimes(l.path("src/dir"), when, when),
	)
	if err != nil {
		t.Fatal(err)
	}
	a := l.send("GET", "archive", at(l.path("src")), nil)
	if a.status != 200 {
		t.Fatal(a.body)
	}
	if err := l.f.Extract(t.Context(), l.path("dst"), strings.NewReader(a.body), pando.ExtractOptions{KeepOwner: true}); err != nil {
		t.Fatal(err)
	}
	if l.owner(l.path("dst/run")) != [3]int{7, 8, 0o4755} || l.owner(l.path("dst/dir"))[2] != 0o750 {
		t.Errorf("owner and mode: %v", l.owner(l.path("dst/run")))
	}
	one, _ := os.Stat(l.path("dst/run"))
	other, err := os.Stat(l.path("dst/same"))
	if err != nil || !os.SameFile(one, other) {
		t.Error("the hard link became a file of its own")
	}
	for _, name := range []string{"dst/dir", "dst/dir/data"} {
		if st, err := os.Stat(l.path(name)); err != nil || !st.ModTime().Equal(when) {
			t.Errorf("%s: %v", name, st.ModTime())
		}
	}
	if _, err := os.Lstat(l.path("dst/fifo")); err == nil {
		t.Error("the FIFO came along")
	}
	if err := l.f.Extract(t.Context(), l.path("own"), strings.NewReader(a.body), pando.ExtractOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := l.owner(l.path("own/run")); got[0] != 1000 || got[1] != 1001 {
		t.Errorf("the default owner: %v", got)
	}
	z := l.send("GET", "archive", at(l.path("src"), "compress", "gzip"), nil)
	if err := l.f.Extract(t.Context(), l.path("z"), strings.NewReader(z.body), pando.ExtractOptions{Gzip: true, Owner: "other"}); err != nil || l.owner(l.path("z/run"))[0] != 1002 {
		t.Errorf("compressed: %v", err)
	}
	single := l.send("GET", "archive", at(l.path("src/dir/data")), nil)
	h, err := tar.NewReader(strings.NewReader(single.body)).Next()
	if err != nil || h.Name != "data" || h.Size != 4 {
		t.Errorf("a single file: %+v, %v", h, err)
	}
}

// Whatever tree there is, it comes out of the guest as it went in.
func TestTreesRoundTrip(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		var entries []tar.Header
		want := map[string]string{}
		folders := []string{""}
		for i := range rapid.IntRange(0, 12).Draw(r, "entries") {
			parent := rapid.SampledFrom(folders).Draw(r, "parent")
			name := parent + rapid.StringMatching(`[a-zA-Z0-9 _äß.+%-]{1,20}`).Draw(r, "name") + fmt.Sprint(i)
			mode := int64(rapid.SampledFrom([]int{0o600, 0o644, 0o755, 0o4711}).Draw(r, "mode"))
			switch rapid.IntRange(0, 3).Draw(r, "kind") {
			case 0:
				entries = append(entries, tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755})
				folders = append(folders, name+"/")
				want[name] = "drwxr-xr-x"
			case 1:
				target := rapid.StringMatching(`[a-z/.]{1,30}`).Draw(r, "target")
				entries = append(entries, symlink(name, target))
				want[name] = "-> " + target
			default:
				size := rapid.SampledFrom([]int{0, 1, 511, 512, 513, 65536, 200_001}).Draw(r, "size")
				entries = append(entries, tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(size)})
				want[name] = fmt.Sprintf("%o %d", mode, size)
			}
		}
		dir := l.path(fmt.Sprint("tree", n))
		if err := l.f.Extract(t.Context(), dir, pack(t, entries...), pando.ExtractOptions{}); err != nil {
			r.Fatal(err)
		}
		archive, err := l.f.Archive(t.Context(), dir)
		if err != nil {
			r.Fatal(err)
		}
		defer func() { _ = archive.Close() }()
		if diff := cmp.Diff(want, contents(r, archive)); diff != "" {
			r.Errorf("(-want +got):\n%s", diff)
		}
		if err := l.f.RemoveAll(t.Context(), dir); err != nil {
			r.Fatal(err)
		}
	})
}

func contents(r *rapid.T, archive io.Reader) map[string]string {
	got := map[string]string{}
	for t := tar.NewReader(archive); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			r.Fatal(err)
		}
		name := strings.TrimSuffix(h.Name, "/")
		switch h.Typeflag {
		case tar.TypeDir:
			if name != "." {
				got[name] = h.FileInfo().Mode().String()
			}
		case tar.TypeSymlink:
			got[name] = "-> " + h.Linkname
		default:
			b, err := io.ReadAll(t)
			if err != nil || strings.Trim(string(b), "x") != "" {
				r.Fatalf("%s: %v", name, err)
			}
			got[name] = fmt.Sprintf("%o %d", h.Mode, len(b))
		}
	}
}

func FuzzExtract(f *testing.F) {
	t := &testing.T{}
	for _, entries := range [][]tar.Header{
		{reg("a", 10), folder("b"), symlink("c", "a"), hardlink("d", "a")}, {reg("../x", 1)}, {symlink("l", "/etc"), reg("l/x", 1)},
	} {
		f.Add(pack(t, entries...).Bytes())
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_ = w.Close()
	f.Add(z.Bytes())
	f.Fuzz(func(t *testing.T, archive []byte) {
		l := newLab(t)
		outside := l.make("outside/kept", "kept")
		a := l.send("PUT", "archive", at(l.path("in/here")), bytes.NewReader(archive))
		if a.status >= 500 {
			t.Errorf("%d %s", a.status, a.body)
		}
		if l.read("outside/kept") != "kept" {
			t.Errorf("%s changed", outside)
		}
		left, err := os.ReadDir(l.dir)
		if err != nil || len(left) > 2 || slices.ContainsFunc(left, func(e fs.DirEntry) bool { return e.Name() != "outside" && e.Name() != "in" }) {
			t.Errorf("outside of the folder there is %v, %v", left, err)
		}
	})
}
