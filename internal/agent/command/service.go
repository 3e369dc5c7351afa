package command

import (
	"slices"
	"sync"
	"time"

	"github.com/pandovm/pando/internal/agent/process"
	"github.com/pandovm/pando/internal/link"
)

const (
	// mostRunning bounds the commands that run at once, mostEnded those that have
	// ended and are still known.
	mostRunning = 1024
	mostEnded   = 4096
	// keptFor is how long an ended command is known.
	keptFor = 24 * time.Hour
	// smallOutput is how much output of an ended command may stay in memory, and
	// in the file of records.
	smallOutput = 512
	// recordDelay is how long after a change the records are written: short
	// commands leave the disk alone while their host waits.
	recordDelay = time.Second
)

// Service runs commands. Its fields are set before the first use and not
// changed. It is safe for concurrent use.
type Service struct {
	Spawner  *process.Spawner
	Accounts process.Accounts
	// Dir is the folder for records and output, made at need; empty keeps
	// neither on the disk.
	Dir string
	// Cgroups is nil for commands without control groups.
	Cgroups Cgroups

	pieces sync.Pool
	once   sync.Once
	shelf  *shelf

	mu sync.Mutex
	// known has all commands with an id, ordered as they were started.
	known   map[string]*execution
	ordered []*execution
	running int
	loaded  bool
	// writing: somebody will write the records soon.
	writing bool
	records recordFile
}

// New returns a service; the fields may still be changed until its first use.
func New(spawner *process.Spawner, accounts process.Accounts, dir string) *Service {
	s := &Service{Spawner: spawner, Accounts: accounts, Dir: dir, known: map[string]*execution{}}
	s.pieces.New = func() any { return new([pieceSize]byte) }
	return s
}

// disk returns the shelf.
func (s *Service) disk() *shelf {
	s.once.Do(func() { s.shelf = &shelf{dir: s.Dir, evict: s.evict} })
	return s.shelf
}

// enlist makes room for one more command, or tells that too many run, or that
// the id is taken.
func (s *Service) enlist(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running >= mostRunning || s.known[id] != nil {
		return false
	}
	s.running++
	return true
}

func (s *Service) unlist() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
}

// register makes a started command known.
func (s *Service) register(x *execution) {
	if x.id == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[x.id] = x
	s.ordered = append(s.ordered, x)
	s.recordSoon()
}

// changed notes the end of a command.
func (s *Service) changed(x *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	if x.id != "" {
		s.recordSoon()
	}
}

// find returns a command, nil if there is none of that id.
func (s *Service) find(id string) *execution {
	s.load()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[id]
}

// list returns all commands, newest first.
func (s *Service) list() []*execution {
	s.load()
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Clone(s.ordered)
	slices.Reverse(list)
	return list
}

// forget removes a command that has ended.
func (s *Service) forget(x *execution) {
	s.mu.Lock()
	delete(s.known, x.id)
	s.ordered = slices.DeleteFunc(s.ordered, func(other *execution) bool { return other == x })
	s.records.stale = true
	s.recordSoon()
	s.mu.Unlock()
	x.out.remove()
}

// evict removes the output of the command that ended first of those that have
// any on the disk.
func (s *Service) evict() bool {
	s.mu.Lock()
	list := slices.Clone(s.ordered)
	s.mu.Unlock()
	for _, x := range list {
		if !x.isRunning() && x.out.evict() {
			return true
		}
	}
	return false
}

// expired removes from the registry, and returns, what has been known for long
// enough. The caller holds mu.
func (s *Service) expired(now time.Time) []*execution {
	ended := 0
	for _, x := range s.ordered {
		if !x.isRunning() {
			ended++
		}
	}
	var gone []*execution
	s.ordered = slices.DeleteFunc(s.ordered, func(x *execution) bool {
		if x.isRunning() || (ended <= mostEnded && now.Sub(x.endedAt()) < keptFor) {
			return false
		}
		ended--
		gone = append(gone, x)
		delete(s.known, x.id)
		return true
	})
	return gone
}

// sessions maps the sessions of commands to their ids.
func (s *Service) sessions() map[int]*execution {
	m := map[int]*execution{}
	for _, x := range s.list() {
		if other := m[x.pid]; x.stateNow() != link.ExecLost && (other == nil || other.started.Before(x.started)) {
			m[x.pid] = x
		}
	}
	return m
}
