package cgroup

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent/sysfile"
)

const (
	// root is where version 2 is mounted.
	root = "/sys/fs/cgroup"
	// slice is the group that systemd makes for this; bare is the one that the agent
	// makes where there is no systemd, and home then the agent's own.
	slice = "commands.slice"
	bare  = "pando-commands"
	home  = "pando-agent"
	// common is the folder of the group of all commands.
	common = "run"
)

const (
	// agentMemory is what memory.min keeps for the agent.
	agentMemory = 32 << 20
	// agentWeight is the agent's share of the processors; 100 is the usual one.
	agentWeight = 1000
	// heldBack is the memory that commands together cannot have, in bytes, and
	// heldBackPart the part of all memory that is added to it: the kernel, the
	// agent and the system's own services live there.
	heldBack     = 24 << 20
	heldBackPart = 32
	// apart is the memory that one command cannot have though all together can: room
	// for the next command to start and look, or to kill.
	apart     = 8 << 20
	apartPart = 32
	// perProcess is the memory that a command must be allowed for each process that
	// it may have. Processes without number must meet their bound before that of
	// memory: out of memory, they have the kernel throw out the programs that all
	// commands run, and nobody gets on.
	perProcess = 512 << 10
)

// maxFree bounds the empty groups that wait to be used again.
const maxFree = 8

// Tree is the group of all commands. It is safe for concurrent use. A nil Tree
// has no groups: Take returns nil, which is a group as well.
type Tree struct {
	// dir is the folder of the common group, name its path within the hierarchy.
	dir, name string

	mu   sync.Mutex
	next int
	free []*Group
	// left are the folders of groups that were given back with processes in them.
	left []string
	// memory is the size of the VM's memory that the limits were made for.
	memory uint64
	pids   uint64
	// seen is the last record of the kernel's log that told of a killed process.
	seen uint64
}

// Open prepares the group of all commands of this guest and, without systemd,
// moves the agent into a group of its own. A guest without version 2 has none:
// then the tree is nil.
func Open() (*Tree, error) {
	if sysfile.IsDir(root + "/" + slice) {
		return OpenIn(root+"/"+slice, "/"+slice)
	}
	if sysfile.IsDir("/run/systemd/system") || !sysfile.IsRegular(root+"/cgroup.subtree_control") {
		return nil, nil
	}
	if err := enable(root); err != nil {
		return nil, err
	}
	if err := settle(root + "/" + home); err != nil {
		return nil, err
	}
	if err := mkdir(root + "/" + bare); err != nil {
		return nil, err
	}
	return OpenIn(root+"/"+bare, "/"+bare)
}

// settle moves the agent into a group of its own with memory that stays.
func settle(dir string) error {
	if err := mkdir(dir); err != nil {
		return err
	}
	return errors.Join(
		write(dir+"/cgroup.procs", "0"),
		write(dir+"/memory.min", strconv.Itoa(agentMemory)),
		write(dir+"/cpu.weight", strconv.Itoa(agentWeight)),
	)
}

// OpenIn prepares the group in the folder base, called name in the kernel's
// log. Controllers that base does not have limit nothing.
func OpenIn(base, name string) (*Tree, error) {
	t := &Tree{dir: base + "/" + common, name: name + "/" + common, pids: maxProcesses()}
	if err := enable(base); err != nil {
		return nil, err
	}
	if err := mkdir(t.dir); err != nil {
		return nil, err
	}
	if err := enable(t.dir); err != nil {
		return nil, err
	}
	t.adopt()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit(t.dir, t.pids*3/4, 0)
	t.follow()
	return t, nil
}

// adopt takes over the groups that an earlier agent made.
func (t *Tree) adopt() {
	entries, err := os.ReadDir(t.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil || !e.IsDir() {
			continue
		}
		t.next = max(t.next, n)
		if dir := t.dir + "/" + e.Name(); syscall.Rmdir(dir) != nil {
			t.left = append(t.left, dir)
		}
	}
}

// follow fits the limits of the common group to the size of memory, which may
// have changed since the last command.
func (t *Tree) follow() {
	memory := totalMemory()
	if memory == t.memory {
		return
	}
	t.memory = memory
	_ = write(t.dir+"/memory.max", strconv.FormatUint(t.allMemory(), 10))
	for _, g := range t.free {
		g.outdated = true
	}
}

// allMemory is what all commands together may have, oneMemory what one may.
func (t *Tree) allMemory() uint64 {
	return t.memory - min(t.memory/2, heldBack+t.memory/heldBackPart)
}

func (t *Tree) oneMemory() uint64 {
	all := t.allMemory()
	return all - min(all/2, apart+all/apartPart)
}

// oneCommand is how many processes one command may have.
func (t *Tree) oneCommand() uint64 {
	return max(32, min(t.pids/2, t.oneMemory()/perProcess))
}

// limit bounds a group. Without the controller there is no bound.
func (t *Tree) limit(dir string, pids, memory uint64) {
	if pids > 0 {
		_ = write(dir+"/pids.max", strconv.FormatUint(pids, 10))
	}
	if memory > 0 {
		_ = write(dir+"/memory.max", strconv.FormatUint(memory, 10))
	}
}

// Take returns a group for the next command. It is nil if there can be none.
func (t *Tree) Take() *Group {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	t.follow()
	if last := len(t.free) - 1; last >= 0 {
		g := t.free[last]
		t.free = t.free[:last]
		pids, memory := t.oneCommand(), t.oneMemory()
		t.mu.Unlock()
		if g.outdated {
			g.outdated = false
			t.limit(g.path, pids, memory)
		}
		return g
	}
	t.next++
	n, pids, memory := t.next, t.oneCommand(), t.oneMemory()
	t.mu.Unlock()
	g, err := t.create(strconv.Itoa(n))
	if err != nil {
		return nil
	}
	t.limit(g.path, pids, memory)
	return g
}

func (t *Tree) create(name string) (*Group, error) {
	g := &Group{tree: t, path: t.dir + "/" + name, name: t.name + "/" + name, events: -1}
	if err := syscall.Mkdir(g.path, 0o755); err != nil {
		return nil, fmt.Errorf("make cgroup: %w", err)
	}
	var err error
	if g.dir, err = sysfile.Open(g.path, unix.O_PATH|syscall.O_DIRECTORY, 0); err != nil {
		return nil, errors.Join(err, syscall.Rmdir(g.path))
	}
	if g.state, err = sysfile.Open(g.path+"/cgroup.events", syscall.O_RDONLY, 0); err != nil {
		return nil, errors.Join(err, syscall.Close(g.dir), syscall.Rmdir(g.path))
	}
	if fd, err := sysfile.Open(g.path+"/memory.events", syscall.O_RDONLY, 0); err == nil {
		g.events = fd
	}
	return g, nil
}

// sweepStep is how many groups with processes in them are looked at each time.
const sweepStep = 8

// sweep removes groups whose last processes have ended since.
func (t *Tree) sweep() {
	t.mu.Lock()
	n := min(sweepStep, len(t.left))
	some := append([]string(nil), t.left[:n]...)
	t.left = t.left[n:]
	t.mu.Unlock()
	var still []string
	for _, dir := range some {
		if err := syscall.Rmdir(dir); errors.Is(err, syscall.EBUSY) {
			still = append(still, dir)
		}
	}
	if len(still) > 0 {
		t.mu.Lock()
		t.left = append(t.left, still...)
		t.mu.Unlock()
	}
}

// enable passes the controllers that are used here on to the groups in dir.
func enable(dir string) error {
	has, err := sysfile.Read(dir + "/cgroup.controllers")
	if err != nil {
		return err
	}
	var order []string
	for name := range strings.FieldsSeq(string(has)) {
		if name == "cpu" || name == "memory" || name == "pids" {
			order = append(order, "+"+name)
		}
	}
	if len(order) == 0 {
		return nil
	}
	return write(dir+"/cgroup.subtree_control", strings.Join(order, " "))
}

func mkdir(dir string) error {
	if err := syscall.Mkdir(dir, 0o755); err != nil && !errors.Is(err, syscall.EEXIST) {
		return &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	return nil
}

func write(path, text string) error {
	fd, err := sysfile.Open(path, syscall.O_WRONLY, 0)
	if err != nil {
		return err
	}
	err = sysfile.WriteAll(fd, text)
	_ = syscall.Close(fd)
	if err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

func totalMemory() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return info.Totalram * uint64(info.Unit)
}

// maxProcesses is how many processes and threads the kernel allows.
func maxProcesses() uint64 {
	least := uint64(32768)
	for _, name := range []string{"threads-max", "pid_max"} {
		text, err := sysfile.Read("/proc/sys/kernel/" + name)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			least = min(least, n)
		}
	}
	return least
}
