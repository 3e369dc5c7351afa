package command

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// reservation is in what steps a transcript asks for room.
	reservation = 1 << 20
	// mostPerCommand and mostInAll bound the kept output; on a small disk it is
	// less.
	mostPerCommand = 64 << 20
	mostInAll      = 256 << 20
)

// shelf is the folder of kept output. It is safe for concurrent use; nil keeps
// nothing.
type shelf struct {
	dir string
	// evict removes the oldest output that is not needed, and tells whether there
	// was any. It must not be called with the shelf locked.
	evict func() bool

	mu   sync.Mutex
	made bool
	// size and room are of the disk; used is what was reserved.
	size, used int64
}

func (s *shelf) usable() bool { return s != nil && s.dir != "" }

// inAll is the bound for all commands together.
func (s *shelf) inAll() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size == 0 {
		s.size, _ = s.space()
	}
	return max(min(mostInAll, s.size/10), 4*reservation)
}

// perCommand is the bound for one command, a whole number of reservations.
func (s *shelf) perCommand() int64 {
	n := min(mostPerCommand, s.inAll()/4)
	return n - n%reservation
}

// space returns the size of the disk, and what is free on it.
func (s *shelf) space() (size, free int64) {
	var st unix.Statfs_t
	for dir := s.dir; ; dir = dir[:max(1, lastSlash(dir))] {
		if err := unix.Statfs(dir, &st); err == nil || len(dir) <= 1 {
			break
		}
	}
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize
}

func lastSlash(p string) int {
	for i := len(p) - 1; i > 0; i-- {
		if p[i] == '/' {
			return i
		}
	}
	return 0
}

// reserve asks for n more bytes. A twentieth of the disk stays free for its
// owner.
func (s *shelf) reserve(n int64) bool {
	if !s.usable() {
		return false
	}
	all := s.inAll()
	for {
		s.mu.Lock()
		size, free := s.space()
		if s.used+n <= all && free-n >= size/20 {
			s.used += n
			s.mu.Unlock()
			return true
		}
		s.mu.Unlock()
		if s.evict == nil || !s.evict() {
			return false
		}
	}
}

func (s *shelf) path(name string) string { return s.dir + "/" + name }

// make creates the folder, for root alone.
func (s *shelf) make() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made {
		return nil
	}
	if !s.usable() {
		return errNoShelf
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("make folder of commands: %w", err)
	}
	s.made = true
	return nil
}

func (s *shelf) open(name string, flags int) (*os.File, error) {
	if err := s.make(); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(s.path(name), flags|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open kept output: %w", err)
	}
	return f, nil
}

// remove removes a file and gives its room back.
func (s *shelf) remove(name string, reserved int64) {
	_ = os.Remove(s.path(name))
	s.release(reserved)
}

func (s *shelf) release(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
}

// blocks is the room that a file of that size takes.
func blocks(size int64) int64 {
	const block = 4 << 10
	return (size + block - 1) / block * block
}

// adopt counts a file that was left by an earlier agent.
func (s *shelf) adopt(name string) (reserved int64) {
	info, err := os.Lstat(s.path(name))
	if err != nil {
		return 0
	}
	reserved = blocks(info.Size())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used += reserved
	return reserved
}
