package layer_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/layer"
)

func file(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o660); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	s := open(t)
	path := file(t, filepath.Dir(s.Dir()), "disk-0.qcow2", "blocks")
	id := layer.NewID()
	l, err := s.Adopt(path, id, layer.KindDisk)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(layer.Layer{ID: id, Kind: layer.KindDisk, Bytes: 6}, l); diff != "" {
		t.Error(diff)
	}
	if got := mode(t, s.Path(id)); got != 0o444 {
		t.Errorf("mode %o", got)
	}
	var st unix.Stat_t
	if err := unix.Stat(s.Path(id), &st); err != nil || int(st.Uid) != os.Geteuid() {
		t.Errorf("owner %d, %v", st.Uid, err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the old name is there: %v", err)
	}
}

func TestAdoptRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		make func(t *testing.T, dir string) string
	}{
		{"a link", func(t *testing.T, dir string) string {
			t.Helper()
			path := filepath.Join(dir, "link")
			if err := os.Symlink(file(t, dir, "secret", "root's"), path); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		{"a file with two names", func(t *testing.T, dir string) string {
			t.Helper()
			path := filepath.Join(dir, "second")
			if err := os.Link(file(t, dir, "secret", "root's"), path); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		{"a pipe", func(t *testing.T, dir string) string {
			t.Helper()
			path := filepath.Join(dir, "pipe")
			if err := unix.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		{"nothing", func(_ *testing.T, dir string) string { return filepath.Join(dir, "missing") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			id := layer.NewID()
			if _, err := s.Adopt(c.make(t, filepath.Dir(s.Dir())), id, layer.KindDisk); err == nil {
				t.Error("no error")
			}
			if exists(s, id) {
				t.Error("something is in the store")
			}
			if secret := filepath.Join(filepath.Dir(s.Dir()), "secret"); fileExists(secret) && mode(t, secret)&0o200 == 0 {
				t.Error("the file behind was changed")
			}
		})
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestAdoptNeverReplaces(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := write(t, s, "first")
	path := file(t, filepath.Dir(s.Dir()), "second", "second")
	if _, err := s.Adopt(path, l.ID, layer.KindDisk); err == nil {
		t.Error("no error")
	}
	if b, err := os.ReadFile(s.Path(l.ID)); err != nil || string(b) != "first" {
		t.Errorf("the layer became %q, %v", b, err)
	}
	if _, err := s.Adopt(path, "../escape", layer.KindDisk); err == nil {
		t.Error("a malformed id was accepted")
	}
}

func TestLink(t *testing.T) {
	t.Parallel()
	s := open(t)
	path := file(t, filepath.Dir(s.Dir()), "image-layer", "content")
	l := layer.Layer{ID: layer.NewID(), Kind: layer.KindKernel, Bytes: 7}
	for range 2 {
		if err := s.Link(path, l); err != nil {
			t.Fatal(err)
		}
	}
	a, errA := os.Stat(path)
	b, errB := os.Stat(s.Path(l.ID))
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		t.Errorf("not a hard link: %v, %v", errA, errB)
	}
	if b.Mode().Perm() != 0o444 {
		t.Errorf("mode %o", b.Mode().Perm())
	}
	if err := s.Verify(t.Context(), l); err != nil {
		t.Error(err)
	}
	s.Hold("vm", l.ID)
	if err := s.Drop("vm"); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "content" {
		t.Errorf("the image lost its file: %q, %v", content, err)
	}
}

func TestLinkCopiesAcrossFileSystems(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	s := open(t)
	path := file(t, mountTmpfs(t, "1m"), "image-layer", "content")
	l := layer.Layer{ID: layer.NewID(), Kind: layer.KindKernel, Bytes: 7}
	for range 2 {
		if err := s.Link(path, l); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(s.Path(l.ID)); err != nil || string(b) != "content" {
		t.Errorf("copied %q, %v", b, err)
	}
	if got := mode(t, s.Path(l.ID)); got != 0o444 {
		t.Errorf("mode %o", got)
	}
	if entries, err := os.ReadDir(s.Dir()); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}
