package cgroup_test

import (
	"bytes"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pandovm/pando/internal/agent/cgroup"
)

// base makes a cgroup for a test on this host's version 2 hierarchy. What is
// below it goes with it.
func base(t *testing.T) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(root + "/cgroup.procs"); err != nil {
			continue
		}
		dir, err := os.MkdirTemp(root, "pando-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removeGroups(t, dir) })
		return dir
	}
	t.Fatal("this host has no cgroup version 2")
	return ""
}

func removeGroups(t *testing.T, dir string) {
	t.Helper()
	_ = os.WriteFile(dir+"/cgroup.kill", []byte("1"), 0)
	err := filepath.WalkDir(dir, func(string, os.DirEntry, error) error { return nil })
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		var dirs []string
		err = filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, p)
			}
			return nil
		})
		for _, d := range slices.Backward(dirs) {
			err = syscall.Rmdir(d)
		}
		if err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("remove groups: %v", err)
}

func open(t *testing.T, dir string) *cgroup.Tree {
	t.Helper()
	tree, err := cgroup.OpenIn(dir, "/test")
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// start runs a shell command in the group.
func start(t *testing.T, g *cgroup.Group, command string) *osexec.Cmd {
	t.Helper()
	c := osexec.Command("sh", "-c", command)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: g.FD()}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c
}

// groups lists the folders of single commands.
func groups(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(dir + "/run/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func members(t *testing.T, dir string) int {
	t.Helper()
	list, err := os.ReadFile(dir + "/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(list, []byte("\n"))
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func TestCommandsLiveApart(t *testing.T) {
	t.Parallel()
	dir := base(t)
	tree := open(t, dir)
	one, two := tree.Take(), tree.Take()
	start(t, one, "sleep 1000 & sleep 1000 & exec sleep 1000")
	start(t, two, "exec sleep 1000")
	eventually(t, "three processes in one group, one in the other", func() bool {
		return members(t, dir+"/run/1") == 3 && members(t, dir+"/run/2") == 1
	})
	one.Kill()
	eventually(t, "the group is empty", func() bool { return members(t, dir+"/run/1") == 0 })
	if n := members(t, dir+"/run/2"); n != 1 {
		t.Errorf("the other group has %d processes", n)
	}
	if killed, process := two.OOM(); killed || process != "" {
		t.Errorf("a group in which nothing was killed says %v, %q", killed, process)
	}
}

// An empty group is used again, one with processes in it is not, and goes when
// those have ended.
func TestGroupsAreUsedAgain(t *testing.T) {
	t.Parallel()
	dir := base(t)
	tree := open(t, dir)
	for range 20 {
		g := tree.Take()
		if err := start(t, g, "true").Wait(); err != nil {
			t.Fatal(err)
		}
		g.Release()
	}
	if got := groups(t, dir); len(got) != 1 {
		t.Errorf("commands one after the other need %v", got)
	}
	left := tree.Take()
	c := start(t, left, "sleep 1000 & exit 0")
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	left.Release()
	next := tree.Take()
	if n := members(t, dir+"/run/1"); n != 1 {
		t.Errorf("what the command left behind is gone: %d processes", n)
	}
	if got := groups(t, dir); len(got) != 2 {
		t.Errorf("beside a group in use there is %v", got)
	}
	if err := os.WriteFile(dir+"/run/1/cgroup.kill", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the group has gone", func() bool {
		next.Release()
		next = tree.Take()
		return len(groups(t, dir)) == 1
	})
	next.Release()
}

// What another agent has left is taken over.
func TestGroupsOfAnEarlierAgent(t *testing.T) {
	t.Parallel()
	dir := base(t)
	earlier := open(t, dir)
	busy, empty := earlier.Take(), earlier.Take()
	start(t, busy, "exec sleep 1000")
	if empty.FD() == 0 {
		t.Fatal("there is no group")
	}
	g := open(t, dir).Take()
	start(t, g, "exec sleep 1000")
	if got := groups(t, dir); len(got) != 2 {
		t.Errorf("groups are %v, want the busy one and a new one", got)
	}
	if n := members(t, dir+"/run/1"); n != 1 {
		t.Errorf("the busy group has %d processes", n)
	}
}

// Somebody with root's rights has removed the groups: commands run all the same.
func TestRemovedGroups(t *testing.T) {
	t.Parallel()
	dir := base(t)
	tree := open(t, dir)
	tree.Take().Release()
	for _, name := range []string{"/run/1", "/run"} {
		if err := syscall.Rmdir(dir + name); err != nil {
			t.Fatal(err)
		}
	}
	g := tree.Take() // one that does not exist any more
	if killed, _ := g.OOM(); killed {
		t.Error("a removed group says that something was killed in it")
	}
	g.Kill()
	if n := g.Signal(os.Getpid(), 0); n != 0 {
		t.Errorf("it has %d processes", n)
	}
	g.Release()
	tree.Take()
	if g := tree.Take(); g != nil {
		t.Errorf("there is a group with descriptor %d where none can be made", g.FD())
	}
}

func TestNoGroups(t *testing.T) {
	t.Parallel()
	var tree *cgroup.Tree
	g := tree.Take()
	if g.FD() != 0 || g.Signal(1, 0) != 0 {
		t.Errorf("no group has descriptor %d", g.FD())
	}
	if killed, process := g.OOM(); killed || process != "" {
		t.Errorf("no group says %v, %q", killed, process)
	}
	g.Kill()
	g.Release()
}

// Signal reaches process groups that a shell has made in its session, and not
// those who have begun a session of their own.
func TestSignalReachesTheSession(t *testing.T) {
	t.Parallel()
	dir := base(t)
	g := open(t, dir).Take()
	c := start(t, g, "set -m; sleep 1000 & setsid sleep 1001 & sleep 1000")
	eventually(t, "all run", func() bool { return members(t, dir+"/run/1") == 4 && sessions(t, dir) == 2 })
	if n := g.Signal(c.Process.Pid, syscall.SIGKILL); n != 3 {
		t.Errorf("the signal reached %d processes, want 3", n)
	}
	_ = c.Wait()
	eventually(t, "one is left", func() bool { return members(t, dir+"/run/1") == 1 })
}

// sessions counts the sessions in the first group.
func sessions(t *testing.T, dir string) int {
	t.Helper()
	list, err := os.ReadFile(dir + "/run/1/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for pid := range strings.FieldsSeq(string(list)) {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if f := strings.Fields(string(stat)); err == nil && len(f) > 5 && strings.Contains(string(stat), "(sleep)") {
			seen[f[5]] = true
		}
	}
	return len(seen)
}

func TestManyGroupsAtOnce(t *testing.T) {
	t.Parallel()
	dir := base(t)
	tree := open(t, dir)
	done := make(chan string)
	const n = 100
	for i := range n {
		go func() {
			g := tree.Take()
			c := osexec.Command("cat", "/proc/self/cgroup")
			c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.FD()}
			out, err := c.Output()
			g.Release()
			if err != nil {
				out = []byte(strconv.Itoa(i) + err.Error())
			}
			done <- string(out)
		}()
	}
	for range n {
		if out := <-done; !strings.Contains(out, "/run/") {
			t.Errorf("a command ran in %q", out)
		}
	}
	if got := groups(t, dir); len(got) > 8+8 {
		t.Errorf("%d groups wait to be used again", len(got))
	}
}
