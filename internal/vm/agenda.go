package vm

import (
	"sync"
	"time"
)

// agenda holds for every VM and snapshot the next moment at which it must be
// looked at. Moments are derived from records, so nothing of it is stored.
type agenda struct {
	mu sync.Mutex
	at map[subject]time.Time
	// rest keeps those away for a while whose last turn failed.
	rest map[subject]time.Time
	// changed says that the first moment may be another one than before.
	changed chan struct{}
}

// subject is a VM or a snapshot.
type subject struct {
	snapshot bool
	id       string
}

func newAgenda() *agenda {
	return &agenda{at: map[subject]time.Time{}, rest: map[subject]time.Time{}, changed: make(chan struct{}, 1)}
}

// set replaces the moment of a subject; the zero time removes it.
func (a *agenda) set(s subject, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at.IsZero() {
		delete(a.at, s)
		delete(a.rest, s)
		return
	}
	if rest := a.rest[s]; at.Before(rest) {
		at = rest
	}
	a.at[s] = at
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// postpone lets no moment of a subject come before until.
func (a *agenda) postpone(s subject, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rest[s] = until
}

// take removes and returns what is due, and the next moment after that; zero if
// there is none.
func (a *agenda) take(now time.Time) (due []subject, next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s, at := range a.at {
		if now.Before(at) {
			if next.IsZero() || at.Before(next) {
				next = at
			}
			continue
		}
		due = append(due, s)
		delete(a.at, s)
		delete(a.rest, s)
	}
	return due, next
}
