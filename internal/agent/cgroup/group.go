package cgroup

import (
	"bytes"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent/sysfile"
)

// Group is where one command or terminal lives with all that it starts. Leave
// ends its use. All methods of a nil Group do nothing; a Group is used by one
// goroutine at a time, except for Signal and Kill, which any may call before
// Release.
type Group struct {
	tree *Tree
	// path is its folder, name its path within the hierarchy.
	path, name string
	// dir is the descriptor of the folder, state that of cgroup.events, events
	// that of memory.events or -1.
	dir, state, events int
	// kills is how often the kernel has killed in it for want of memory, as of
	// the last look.
	kills uint64
	// outdated says that the size of memory has changed since it was limited.
	outdated bool
}

// FD is the descriptor by which a process is born in the group, 0 if there is
// none. It is good until Release.
func (g *Group) FD() int {
	if g == nil {
		return 0
	}
	return g.dir
}

// OOM tells whether the kernel has killed a process of the group for want
// of memory since the group was taken or last asked, and the name of the last
// one, which may be empty.
func (g *Group) OOM() (killed bool, process string) {
	if g == nil || g.events < 0 {
		return false, ""
	}
	n := g.value(g.events, "oom_kill ")
	if n <= g.kills {
		return false, ""
	}
	g.kills = n
	return true, g.tree.victim(g.name)
}

// Signal sends sig to all processes of the group that belong to the session
// sid, and returns how many there were. Those that have begun a session of their
// own are left alone: that is how a program says that it means to stay.
func (g *Group) Signal(sid int, sig syscall.Signal) int {
	if g == nil {
		return 0
	}
	list, err := sysfile.Read(g.path + "/cgroup.procs")
	if err != nil {
		return 0
	}
	n := 0
	for line := range bytes.Lines(list) {
		pid, err := strconv.Atoi(string(bytes.TrimRight(line, "\n")))
		if err != nil || pid <= 1 {
			continue
		}
		if s, err := unix.Getsid(pid); err == nil && s == sid && syscall.Kill(pid, sig) == nil {
			n++
		}
	}
	return n
}

// Kill ends every process of the group at once, sessions of their own or not.
func (g *Group) Kill() {
	if g != nil {
		_ = write(g.path+"/cgroup.kill", "1")
	}
}

// Release gives the group back. Processes that are still in it go on, in it.
func (g *Group) Release() {
	if g == nil {
		return
	}
	t := g.tree
	if g.value(g.state, "populated ") == 0 && g.light() && t.keep(g) {
		t.sweep()
		return
	}
	for _, fd := range []int{g.dir, g.state, g.events} {
		if fd >= 0 {
			_ = syscall.Close(fd)
		}
	}
	t.mu.Lock()
	t.left = append(t.left, g.path)
	t.mu.Unlock()
	t.sweep()
}

// keep puts an empty group by for the next command. It returns false if there
// are enough.
func (t *Tree) keep(g *Group) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) >= maxFree {
		return false
	}
	t.free = append(t.free, g)
	return true
}

// light tells whether little of what earlier processes used, files in memory
// above all, still counts as the group's.
func (g *Group) light() bool {
	text, err := sysfile.Read(g.path + "/memory.current")
	if err != nil {
		return true // no memory is counted
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return err == nil && n < apart
}

// value reads a number from a file of "key value" lines; 0 if it is not there.
func (g *Group) value(fd int, key string) uint64 {
	var buf [256]byte
	n, err := syscall.Pread(fd, buf[:], 0)
	if err != nil || n <= 0 {
		return 0
	}
	for line := range bytes.Lines(buf[:n]) {
		if rest, found := bytes.CutPrefix(line, []byte(key)); found {
			v, _ := strconv.ParseUint(string(bytes.TrimRight(rest, "\n")), 10, 64)
			return v
		}
	}
	return 0
}
