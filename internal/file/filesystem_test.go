package file_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func TestFileSystemAdapter(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.make("fs/a.txt", "a")
	l.make("fs/sub/b.txt", "bb")
	l.make("big.txt", strings.Repeat("b", 100_000))
	l.make("fs/sub/deep/empty", "")
	if err := os.Symlink("a.txt", l.path("fs/link")); err != nil {
		t.Fatal(err)
	}
	system := l.f.FS(t.Context(), l.path("fs"))
	if err := fstest.TestFS(system, "a.txt", "sub/b.txt", "sub/deep/empty", "link"); err != nil {
		t.Error(err)
	}
	if _, err := fs.Stat(system, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	f, err := l.f.Open(t.Context(), l.path("big.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if n, err := f.Seek(-5, io.SeekEnd); err != nil || n != 99_995 {
		t.Errorf("seek: %d, %v", n, err)
	}
	if rest, err := io.ReadAll(f); err != nil || string(rest) != "bbbbb" {
		t.Errorf("%q, %v", rest, err)
	}
	if n, err := f.ReadAt(make([]byte, 10), 99_995); n != 5 || !errors.Is(err, io.EOF) {
		t.Errorf("read at: %d, %v", n, err)
	}
	l.make("fs/new", "replaced")
	if err := os.Rename(l.path("fs/new"), l.path("big.txt")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadAt(make([]byte, 10), 5); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a file that was replaced: %v", err)
	}
}
