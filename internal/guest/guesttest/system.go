package guesttest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pandovm/pando/internal/link"
)

// System is an agent.System that records. Its clock runs, from wherever it was
// set. Safe for concurrent use.
type System struct {
	mu       sync.Mutex
	offset   time.Duration
	lag      time.Duration
	clockSet int
	entropy  [][]byte
	identity []link.Identity
	syncs    int
	off      bool
	failure  error
	settled  link.Reply
}

// Now implements agent.System.
func (s *System) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.offset)
}

// SetClock implements agent.System.
func (s *System) SetClock(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset = time.Until(t) - s.lag
	s.lag = 0
	s.clockSet++
	return s.failure
}

// Reseed implements agent.System.
func (s *System) Reseed(entropy []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entropy = append(s.entropy, slices.Clone(entropy))
	return s.failure
}

// SetIdentity implements agent.System.
func (s *System) SetIdentity(id *link.Identity) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.identity = append(s.identity, *id)
	return s.failure
}

// KernelRelease implements agent.System.
func (s *System) KernelRelease() string { return "6.1.0-test" }

// Sync implements agent.System.
func (s *System) Sync() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.syncs++
}

// Settled implements agent.System.
func (s *System) Settled(context.Context) (bool, string, []string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settled.State == "" {
		return true, "running", nil, nil
	}
	return s.settled.Settled, s.settled.State, s.settled.Failed, s.failure
}

// Poweroff implements agent.System.
func (s *System) Poweroff(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = true
	return s.failure
}

// Fail makes everything that changes the system fail with err from now on; nil
// ends that.
func (s *System) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
}

// Lag makes the next SetClock come out late by d, as if the guest had been slow
// to take the order.
func (s *System) Lag(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lag = d
}

// Settle sets what Settled answers.
func (s *System) Settle(settled bool, state string, failed ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = link.Reply{Settled: settled, State: state, Failed: failed}
}

// Entropy returns the seeds so far.
func (s *System) Entropy() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.entropy)
}

// Identities returns the identities so far.
func (s *System) Identities() []link.Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.identity)
}

// Syncs counts the calls of Sync, and ClockSets those of SetClock.
func (s *System) Syncs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.syncs
}

// ClockSets counts the calls of SetClock.
func (s *System) ClockSets() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clockSet
}

// Off tells whether the system was switched off.
func (s *System) Off() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.off
}
