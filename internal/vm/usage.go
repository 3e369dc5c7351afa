package vm

import (
	"sync"
	"time"
)

// usage knows who uses which VM at the moment, and when each was last used. It
// is asked on the way of every command, so it takes neither a VM's lock nor the
// store's. The zero value is ready.
type usage struct {
	mu  sync.Mutex
	vms map[string]*use
}

// use is the use of one VM; the usage's mu guards it.
type use struct {
	// users are those that have not let go; last is the latest moment of use.
	users int
	last  time.Time
	// idle is the VM's idle timeout, 0 without one; noted is when the store was
	// last told of use.
	idle  time.Duration
	noted time.Time
}

// of returns the use of a VM. The caller holds mu.
func (u *usage) of(id string) *use {
	if u.vms == nil {
		u.vms = map[string]*use{}
	}
	s := u.vms[id]
	if s == nil {
		s = &use{}
		u.vms[id] = s
	}
	return s
}

// enter notes a moment of use by that many more users. It reports whether the
// store should be told: often enough for a timer to survive the daemon, and not
// at all where there is no timer.
func (u *usage) enter(id string, now time.Time, users int) (s *use, tell bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s = u.of(id)
	s.users += users
	return s, s.touch(now)
}

// leave notes that a user has let go.
func (u *usage) leave(s *use, now time.Time) (tell bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s.users--
	return s.touch(now)
}

func (s *use) touch(now time.Time) (tell bool) {
	if now.After(s.last) {
		s.last = now
	}
	return s.tell(now)
}

// tell reports whether the store should be told of use now, and assumes that it
// will be.
func (s *use) tell(now time.Time) bool {
	if s.idle == 0 || now.Before(s.noted.Add(grain(s.idle))) {
		return false
	}
	s.noted = now
	return true
}

// grain is how coarsely the store knows of use: after a restart of the daemon
// an idle timer may be late by so much, and is never early.
func grain(idle time.Duration) time.Duration { return idle / 2 }

// see returns whether a VM is in use, and when it last was; zero if not since
// the daemon began.
func (u *usage) see(id string) (busy bool, last time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.vms[id]
	if s == nil {
		return false, time.Time{}
	}
	return s.users > 0, s.last
}

// watch says what the VM's idle timeout is. It reports whether the VM is in use
// and whether the store should be told so.
func (u *usage) watch(id string, idle time.Duration, now time.Time) (busy, tell bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.of(id)
	s.idle = idle
	busy = s.users > 0
	return busy, busy && s.tell(now)
}

// forget drops what is known of a VM that is gone.
func (u *usage) forget(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.vms, id)
}
