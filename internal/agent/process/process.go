package process

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent/cgroup"
)

// Spawner starts processes. It is safe for concurrent use.
type Spawner struct {
	mu sync.Mutex
	// score is the agent's own oom_score_adj file, or nil; own is its value, and
	// children that of what it starts.
	score         *os.File
	own, children string
	// groups has a cgroup for each process that is started without one.
	groups *cgroup.Tree
	// running holds what was started and not reaped: pids and what to call it.
	running map[int]string
}

// Divide gives each process that is started without a cgroup one of its own from
// now on, for as long as it is not reaped; what it leaves behind stays in it.
func (s *Spawner) Divide(groups *cgroup.Tree) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups = groups
}

// NewSpawner returns a spawner. If score is not nil it is the agent's own
// /proc/self/oom_score_adj, opened for writing, and the agent is from now on the
// last thing that the kernel kills for want of memory. What it starts is not: a
// child inherits the score in force at its birth, so the score is lifted for
// just that moment.
func NewSpawner(score *os.File) (*Spawner, error) {
	s := &Spawner{score: score, own: "-1000", children: "0"}
	return s, s.setScore(s.own)
}

func (s *Spawner) setScore(value string) error {
	if s.score == nil {
		return nil
	}
	if _, err := s.score.WriteAt([]byte(value), 0); err != nil {
		return fmt.Errorf("set oom score: %w", err)
	}
	return nil
}

// Command is what a process is made of.
type Command struct {
	Path string
	Argv []string
	Env  []string
	Dir  string
	// Files are the descriptors 0, 1 and 2, and Extra those from 3 on. They stay
	// open.
	Files [3]int
	Extra []int
	// Terminal makes descriptor 0 the controlling terminal of the new session.
	Terminal bool
	// Cgroup is the control group that it starts in, as a descriptor of its
	// folder, if InCgroup is set.
	Cgroup   int
	InCgroup bool
	// Credential is nil to stay who the agent is.
	Credential *syscall.Credential
}

// Start starts c as the leader of a new session and process group. If the
// account may not enter Dir, it starts in the root folder, and if its cgroup has
// been removed, in the agent's.
func (s *Spawner) Start(c *Command) (*Process, error) {
	group := s.choose(c)
	p, err := s.tryStart(c)
	if err != nil {
		group.Release()
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	p.group = group
	return p, nil
}

// choose gives c a group if it has none.
func (s *Spawner) choose(c *Command) *cgroup.Group {
	s.mu.Lock()
	groups := s.groups
	s.mu.Unlock()
	if c.InCgroup {
		return nil
	}
	group := groups.Take()
	c.Cgroup, c.InCgroup = group.FD(), group != nil
	return group
}

func (s *Spawner) tryStart(c *Command) (*Process, error) {
	p, err := s.start(c)
	if errors.Is(err, syscall.ENODEV) && c.InCgroup {
		c.InCgroup = false
		p, err = s.start(c)
	}
	if errors.Is(err, syscall.EACCES) && c.Dir != "/" {
		c.Dir = "/"
		p, err = s.start(c)
	}
	return p, err
}

func (s *Spawner) start(c *Command) (*Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.setScore(s.children); err != nil {
		return nil, err
	}
	files := []uintptr{uintptr(c.Files[0]), uintptr(c.Files[1]), uintptr(c.Files[2])}
	for _, fd := range c.Extra {
		files = append(files, uintptr(fd))
	}
	pidfd := -1
	pid, err := syscall.ForkExec(c.Path, c.Argv, &syscall.ProcAttr{
		Dir:   c.Dir,
		Env:   c.Env,
		Files: files,
		Sys: &syscall.SysProcAttr{
			Setsid: true, Setctty: c.Terminal, Credential: c.Credential, PidFD: &pidfd,
			UseCgroupFD: c.InCgroup, CgroupFD: c.Cgroup,
		},
	})
	scoreErr := s.setScore(s.own)
	if err != nil {
		return nil, err
	}
	p, err := s.watch(pid, pidfd, c)
	if err := errors.Join(err, scoreErr); err != nil {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		return nil, err
	}
	return p, nil
}

// Process is a child that has not been reaped, so that its pid cannot name
// another process.
type Process struct {
	// PID is also the number of its session and of its process group.
	PID     int
	spawner *Spawner
	// group is nil unless the spawner has chosen it.
	group *cgroup.Group
	file  *os.File // the pidfd
	raw   syscall.RawConn
}

// watch makes the child's Process. The caller holds mu.
func (s *Spawner) watch(pid, pidfd int, c *Command) (*Process, error) {
	if pidfd < 0 {
		return nil, errors.New("kernel has no pidfd")
	}
	if err := syscall.SetNonblock(pidfd, true); err != nil {
		return nil, fmt.Errorf("watch process: %w", err)
	}
	file := os.NewFile(uintptr(pidfd), "pidfd")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch process: %w", err), file.Close())
	}
	if s.running == nil {
		s.running = map[int]string{}
	}
	s.running[pid] = c.title()
	return &Process{PID: pid, spawner: s, file: file, raw: raw}, nil
}

// Await waits for the process to end, for at most d, or for ever if d is 0. It
// tells whether it ended, and does not reap it.
func (p *Process) Await(d time.Duration) bool {
	var until time.Time
	if d > 0 {
		until = time.Now().Add(d)
	}
	if err := p.file.SetReadDeadline(until); err != nil {
		return false
	}
	err := p.raw.Read(func(fd uintptr) bool {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PIDFD, int(fd), &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		return info.Signo != 0 || err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN)
	})
	return err == nil
}

// Reap releases a process that has ended and returns its exit status, 128 plus
// the signal's number if a signal ended it.
func (p *Process) Reap() int {
	p.spawner.forget(p.PID)
	_ = p.file.Close()
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.PID, &ws, 0, nil)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	p.group.Release()
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

const (
	// killGrace is between the polite signal and the other one.
	killGrace = 2 * time.Second
	// killPatience is how long a killed process may take to end before the
	// caller is told nevertheless; one that hangs in the kernel may take for ever.
	killPatience = 2 * time.Second
	// familyPatience is the same for the rest of its family.
	familyPatience = time.Second
	familyPoll     = 20 * time.Millisecond
)

// Terminate ends the process with everything that it started: its session, and
// what descends from that. It asks with TERM first, and reaps the process.
func (p *Process) Terminate() {
	// Until it is reaped, its number names its session. Who descends from it must
	// be known before the first of them dies.
	seen := map[int]int64{}
	members := family(p.PID, seen)
	_ = syscall.Kill(-p.PID, syscall.SIGTERM)
	signalAll(outsiders(members, p.PID), syscall.SIGTERM)
	deadline := time.Now().Add(killGrace)
	p.Await(killGrace)
	p.awaitFamily(seen, deadline)
	p.killFamily(seen)
	if !p.Await(killPatience) {
		go func() {
			p.Await(0)
			p.Reap()
		}()
		return
	}
	p.Reap()
}

// KillFamily kills the process with everything that it started, and does not
// reap it.
func (p *Process) KillFamily() {
	p.killFamily(map[int]int64{})
}

// outsiders leaves out who was signalled with the group.
func outsiders(members []Entry, group int) []Entry {
	var list []Entry
	for _, e := range members {
		if pgid, err := syscall.Getpgid(e.PID); err != nil || pgid != group {
			list = append(list, e)
		}
	}
	return list
}

func (p *Process) awaitFamily(seen map[int]int64, deadline time.Time) {
	for len(family(p.PID, seen)) > 0 && time.Now().Before(deadline) {
		time.Sleep(familyPoll)
	}
}

// killFamily kills until nothing is left: a family may grow while it is killed.
func (p *Process) killFamily(seen map[int]int64) {
	deadline := time.Now().Add(familyPatience)
	for {
		members := family(p.PID, seen)
		if len(members) == 0 || !time.Now().Before(deadline) {
			return
		}
		signalAll(members, syscall.SIGKILL)
		time.Sleep(familyPoll)
	}
}

// Signal signals the process group.
func (p *Process) Signal(sig syscall.Signal) error { return syscall.Kill(-p.PID, sig) }
