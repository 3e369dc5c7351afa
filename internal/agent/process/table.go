package process

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"

	"github.com/pandovm/pando/internal/agent/sysfile"
)

// Entry is a process as /proc shows it.
type Entry struct {
	PID, Parent, Session int
	// State is the letter of /proc/PID/stat, and Name what the kernel calls it.
	State byte
	Name  string
	// CPU and Start are in ticks of a hundredth of a second, Start since the boot.
	CPU, Start int64
	// RSS is in bytes.
	RSS int64
	// Kernel marks a kernel thread.
	Kernel bool
}

// kernelThread is the kernel's PF_KTHREAD.
const kernelThread = 0x00200000

// Table lists the processes of the machine. One that ends meanwhile may be
// missing.
func Table() ([]Entry, error) {
	pids, err := pids()
	if err != nil {
		return nil, err
	}
	list := make([]Entry, 0, len(pids))
	for _, pid := range pids {
		if e, ok := Lookup(pid); ok {
			list = append(list, e)
		}
	}
	return list, nil
}

func pids() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	err = errors.Join(err, dir.Close())
	var list []int
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		if pid, convErr := strconv.Atoi(name); convErr == nil {
			list = append(list, pid)
		}
	}
	return list, err
}

// Lookup returns one process.
func Lookup(pid int) (Entry, bool) {
	b, err := sysfile.Read("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Entry{}, false
	}
	return parseStat(b)
}

// parseStat parses a line of proc(5). The name may hold anything, a parenthesis
// as well.
func parseStat(b []byte) (Entry, bool) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return Entry{}, false
	}
	f := bytes.Fields(b[end+1:])
	if len(f) < 22 || len(f[0]) != 1 {
		return Entry{}, false
	}
	n := func(i int) int64 {
		v, err := strconv.ParseInt(string(f[i]), 10, 64)
		if err != nil {
			return 0
		}
		return v
	}
	pid, err := strconv.Atoi(string(b[:open-1]))
	return Entry{
		PID: pid, Name: string(b[open+1 : end]), State: f[0][0], Parent: int(n(1)), Session: int(n(3)),
		Kernel: n(6)&kernelThread != 0, CPU: n(11) + n(12), Start: n(19), RSS: n(21) * int64(os.Getpagesize()),
	}, err == nil
}

// alive tells whether it has not ended; one that only waits to be reaped has.
func (e Entry) alive() bool { return e.State != 'Z' && e.State != 'X' }

// Belonging finds which of the leaders each process belongs to: the leader of
// its session, or of an ancestor's.
type Belonging struct {
	parents  map[int]Entry
	isLeader func(session int, member Entry) bool
}

// NewBelonging returns a Belonging for the processes in table. isLeader tells
// whether a session, of which member is one, is of interest.
func NewBelonging(table []Entry, isLeader func(session int, member Entry) bool) *Belonging {
	b := &Belonging{parents: make(map[int]Entry, len(table)), isLeader: isLeader}
	for _, e := range table {
		b.parents[e.PID] = e
	}
	return b
}

// Leader returns the number of the session that pid belongs to, or 0.
func (b *Belonging) Leader(pid int) int {
	// The table is not of one moment, so that parents could form a ring.
	for range 256 {
		e, ok := b.parents[pid]
		if !ok {
			return 0
		}
		if b.isLeader(e.Session, e) {
			return e.Session
		}
		pid = e.Parent
	}
	return 0
}

// family lists what is alive of the session and of what descends from it, or
// was seen before.
func family(session int, seen map[int]int64) []Entry {
	table, err := Table()
	if err != nil {
		return nil
	}
	b := NewBelonging(table, func(s int, _ Entry) bool { return s == session })
	var members []Entry
	for _, e := range table {
		start, known := seen[e.PID]
		if b.Leader(e.PID) == session {
			seen[e.PID] = e.Start
		} else if !known || start != e.Start {
			continue
		}
		if e.alive() {
			members = append(members, e)
		}
	}
	return members
}

func signalAll(members []Entry, sig syscall.Signal) {
	for _, e := range members {
		_ = syscall.Kill(e.PID, sig)
	}
}
