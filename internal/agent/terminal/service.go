package terminal

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pandovm/pando/internal/agent/process"
	"github.com/pandovm/pando/internal/agent/terminal/screen"
	"github.com/pandovm/pando/internal/link"
)

// maxArgument is the kernel's bound on one argument, with its NUL.
const maxArgument = 128 << 10

// Service keeps the sessions of a guest. It is safe for concurrent use.
type Service struct {
	spawner  *process.Spawner
	accounts process.Accounts

	mu       sync.Mutex
	sessions map[int64]*session
	lastID   int64
}

// NewService returns a service without sessions.
func NewService(spawner *process.Spawner, accounts process.Accounts) *Service {
	return &Service{spawner: spawner, accounts: accounts, sessions: map[int64]*session{}}
}

// refusal is why a request was not carried out.
type refusal struct {
	cause link.Cause
	err   error
}

func (r *refusal) Error() string { return r.err.Error() }

func refuse(cause link.Cause, format string, args ...any) error {
	return &refusal{cause, fmt.Errorf(format, args...)}
}

// open returns the session of that slug, or a new one.
func (s *Service) open(o link.TerminalOrder) (found *session, created bool, err error) {
	a, err := s.accounts.Find(o.User)
	if errors.Is(err, process.ErrNoAccount) {
		return nil, false, &refusal{link.CauseUser, err}
	}
	if err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
	if found := s.named(o.Slug); found != nil {
		if o.User != "" && found.account.Name != a.Name {
			return nil, false, refuse(link.CauseOwner, "session %q is one of %s", o.Slug, found.account.Name)
		}
		return found, false, nil
	}
	if running, _ := s.count(); running >= link.MaxTerminals {
		return nil, false, refuse(link.CauseSessions, "%d sessions run", running)
	}
	if len(o.Command) >= maxArgument || strings.IndexByte(o.Command, 0) >= 0 {
		return nil, false, refuse(link.CauseCommand, "command too long, or with a NUL byte")
	}
	n := s.newSession(o, a)
	if err := n.start(); err != nil {
		return nil, false, err
	}
	s.sessions[n.id] = n
	s.share()
	return n, true, nil
}

func (s *Service) newSession(o link.TerminalOrder, a process.Account) *session {
	s.lastID++
	env := []string{"TERM=xterm-256color"}
	return &session{
		id: s.lastID, slug: o.Slug, account: a, created: time.Now(), replace: o.Replace, spawner: s.spawner,
		screen: screen.New(o.Cols, o.Rows, link.MaxScrollback, link.MaxScrollbackLines), ended: s.ended,
		command: func() *process.Command {
			if o.Command == "" {
				return a.Login(env)
			}
			return a.Run(o.Command, env)
		},
	}
}

// named returns the session of that name: one that runs before one that has
// ended, and the younger of two.
func (s *Service) named(slug string) *session {
	var best *session
	if slug == "" {
		return nil
	}
	for _, c := range s.sessions {
		if c.slug == slug && (best == nil || best.over() && !c.over() || best.over() == c.over() && c.id > best.id) {
			best = c
		}
	}
	return best
}

func (s *session) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exited
}

// find returns the session that p names.
func (s *Service) find(p link.TerminalPick) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
	found := s.sessions[p.ID]
	if p.Slug != "" {
		found = s.named(p.Slug)
	}
	if found == nil || p.User != "" && found.account.Name != p.User {
		return nil, refuse(link.CauseNoSession, "no such session")
	}
	return found, nil
}

// list describes the sessions of a user, or all, in the order of their ids.
func (s *Service) list(user string) []link.TerminalSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
	var all []link.TerminalSession
	for id := int64(1); id <= s.lastID && len(all) < len(s.sessions); id++ {
		if c := s.sessions[id]; c != nil && (user == "" || c.account.Name == user) {
			all = append(all, c.describe())
		}
	}
	return all
}

// remove ends a session and forgets it.
func (s *Service) remove(p link.TerminalPick) (link.TerminalSession, error) {
	found, err := s.find(p)
	if err != nil {
		return link.TerminalSession{}, err
	}
	d := found.describe()
	s.forget(found.id)
	found.hangup()
	return d, nil
}

func (s *Service) forget(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, id)
	s.share()
}

// ended is called by a session whose program has ended.
func (s *Service) ended(c *session) {
	time.AfterFunc(link.KeptTerminalFor, func() {
		s.forget(c.id)
		c.hangup()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
}

// prune forgets the oldest sessions that have ended, if there are too many.
func (s *Service) prune() {
	for {
		_, exited := s.count()
		if len(exited) <= link.KeptTerminals {
			return
		}
		oldest := exited[0]
		for _, c := range exited {
			if c.id < oldest.id {
				oldest = c
			}
		}
		delete(s.sessions, oldest.id)
		oldest.hangup()
	}
}

func (s *Service) count() (running int, exited []*session) {
	for _, c := range s.sessions {
		if c.over() {
			exited = append(exited, c)
		} else {
			running++
		}
	}
	return running, exited
}

// share divides the room for scrollback.
func (s *Service) share() {
	each := min(link.MaxScrollback, link.SharedScrollback/max(len(s.sessions), 1))
	for _, c := range s.sessions {
		c.limit(each)
	}
}
