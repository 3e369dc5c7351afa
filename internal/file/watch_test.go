package file_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"testing"

	"github.com/pandovm/pando/api"
)

// watch follows a path; next returns the next event that is not told apart from
// its neighbours by anything but luck.
func (l *lab) watch(path string, recursive bool) (next func() string, stop func()) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(l.t.Context())
	pull, end := iter.Pull2(l.f.Watch(ctx, path, recursive))
	next = func() string {
		l.t.Helper()
		e, err, ok := pull()
		if err != nil || !ok {
			return fmt.Sprintf("ended: %v", err)
		}
		out := string(e.Type) + " " + strings.TrimPrefix(e.Path, l.dir+"/")
		if e.From != "" {
			out += " from " + strings.TrimPrefix(e.From, l.dir+"/")
		}
		if e.IsDirectory {
			out += "/"
		}
		return out
	}
	return next, func() { cancel(); end() }
}

// expect reads events until want comes, which must be soon.
func (l *lab) expect(next func() string, want string) {
	l.t.Helper()
	var seen []string
	for range 20 {
		got := next()
		if got == want {
			return
		}
		if seen = append(seen, got); strings.HasPrefix(got, "ended") {
			break
		}
	}
	l.t.Fatalf("%s did not come, but %q", want, seen)
}

func TestWatchRecursively(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.make("w/a/old", "")
	next, stop := l.watch(l.path("w"), true)
	defer stop()
	l.expect(next, "watching w")
	l.make("w/file", "x")
	l.expect(next, "created w/file")
	l.expect(next, "modified w/file")
	for _, change := range []struct {
		do   func() error
		want string
	}{
		{func() error { return os.Rename(l.path("w/file"), l.path("w/a/moved")) }, "moved w/a/moved from w/file"},
		{func() error { return os.Chmod(l.path("w/a/moved"), 0o600) }, "attributes w/a/moved"},
		{func() error { return os.Mkdir(l.path("w/new"), 0o755) }, "created w/new/"},
		{func() error { return os.Rename(l.path("w/new"), l.path("w/renamed")) }, "moved w/renamed from w/new/"},
		{func() error { return os.WriteFile(l.path("w/renamed/f"), nil, 0o600) }, "created w/renamed/f"},
		{func() error { return os.Remove(l.path("w/a/old")) }, "removed w/a/old"},
		{func() error { return os.Rename(l.path("w/a"), l.path("gone")) }, "removed w/a/"},
		{func() error { return errors.Join(os.MkdirAll(l.path("tree/b/c"), 0o755)) }, ""},
		{func() error { return os.Rename(l.path("tree"), l.path("w/tree")) }, "created w/tree/b/c/"},
		{func() error { return os.WriteFile(l.path("w/tree/b/c/deep"), nil, 0o600) }, "created w/tree/b/c/deep"},
		{func() error { return os.RemoveAll(l.path("w")) }, "removed w/"},
	} {
		if err := change.do(); err != nil {
			t.Fatal(err)
		}
		if change.want != "" {
			l.expect(next, change.want)
		}
	}
	if got := next(); got != "ended: <nil>" {
		t.Errorf("after the end: %s", got)
	}
}

func TestWatchOneFile(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	p := l.make("f", "")
	l.make("other", "")
	next, stop := l.watch(p, false)
	defer stop()
	l.expect(next, "watching f")
	l.make("other", "x")
	l.make("f", "x")
	if got := next(); got != "modified f" {
		t.Errorf("got %s", got)
	}
	// An atomic replacement is what editors do; the watch goes on with the new file.
	l.make("temp", "new")
	if err := os.Rename(l.path("temp"), p); err != nil {
		t.Fatal(err)
	}
	l.expect(next, "created f")
	l.make("f", "again")
	l.expect(next, "modified f")
}

// A burst that the kernel cannot keep is a rescan, and a client that leaves frees
// its watch.
func TestWatchesEndAndAreBounded(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for range 40 {
		next, stop := l.watch(l.dir, true)
		l.expect(next, "watching "+l.dir)
		stop()
		eventually(t, func() bool { return l.watchers() == 0 })
	}
	var stops []func()
	for range 32 {
		next, stop := l.watch(l.dir, false)
		l.expect(next, "watching "+l.dir)
		stops = append(stops, stop)
	}
	l.refused(l.send("GET", "watch", at(l.dir), nil), 409, api.CodeConflict, api.ReasonTooMany, "")
	for _, stop := range stops {
		stop()
	}
}

// watchers counts this process's watches of the lab's folder.
func (l *lab) watchers() int {
	l.t.Helper()
	st, err := os.Stat(l.dir)
	if err != nil {
		l.t.Fatal(err)
	}
	ino := fmt.Sprintf("ino:%x ", inode(st))
	entries, err := os.ReadDir("/proc/self/fdinfo")
	if err != nil {
		l.t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		b, _ := os.ReadFile("/proc/self/fdinfo/" + e.Name())
		n += strings.Count(string(b), ino)
	}
	return n
}
