package terminal

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/vm"
)

// The defaults and bounds of sessions.
const (
	DefaultCols = 80
	DefaultRows = 24
	// MaxSize bounds columns and rows.
	MaxSize = 1000
	// MaxSlug bounds a name, in bytes.
	MaxSlug = 63
	// MaxExec bounds a command, in bytes.
	MaxExec = 128<<10 - 1
	// MaxSessions bounds the sessions of a VM whose programs run, and MaxViewers
	// the clients attached to one.
	MaxSessions = 64
	MaxViewers  = 16
	// KeptFor is how long a session whose program has ended can be looked at, and
	// KeptSessions how many of them.
	KeptFor      = 10 * time.Minute
	KeptSessions = 32
	// MaxScrollback, in bytes, and MaxScrollbackLines bound the scrollback of a
	// session; eight times as many bytes are shared by those of a VM.
	MaxScrollback      = 1 << 20
	MaxScrollbackLines = 10000
)

// Open says which session to open: the one that has the slug, or a new one.
type Open struct {
	// Command is text for the user's shell; empty means a login shell.
	Command string
	// User is an account of the guest; empty means uid 1000, else root.
	User string
	// Slug names the session; empty means no name.
	Slug string
	// Cols and Rows of 0 mean the defaults.
	Cols, Rows int
	// Replace starts the program again whenever it ends.
	Replace bool
}

// Pick names a session: by its slug, or if that is empty by its id. With a user
// it must be that user's.
type Pick struct {
	ID         int64
	Slug, User string
}

// Session describes a session.
type Session struct {
	ID                int64
	Slug, User, Title string
	Created           time.Time
	Cols, Rows        int
	Exited            bool
	ExitCode          int
	// New: it was made by the call that returned it.
	New bool
	// Viewers is how many look at it.
	Viewers int
}

// Event is one thing that a session shows: output, or its program's end, or a
// message about something that could not be done.
type Event struct {
	Output   []byte
	Exited   bool
	ExitCode int
	Message  string
}

// Stream shows one session as long as the guest's link lasts. Next returns
// io.EOF when the session was closed; its output is valid until the next call.
type Stream interface {
	Session() Session
	Next() (Event, error)
	Write(p []byte) (int, error)
	Resize(cols, rows int) error
	// Signal takes the number of a signal.
	Signal(number int) error
	// Close makes the other calls return; the session goes on.
	Close()
}

// Node reaches the sessions of running VMs. A session that is not there is
// fault NOT_FOUND.
type Node interface {
	OpenTerminal(ctx context.Context, vmID string, o Open) (Stream, error)
	AttachTerminal(ctx context.Context, vmID string, p Pick) (Stream, error)
	// Terminals lists the sessions of a user, or all.
	Terminals(ctx context.Context, vmID, user string) ([]Session, error)
	CloseTerminal(ctx context.Context, vmID string, p Pick) (Session, error)
}

// VMs are the use cases on VMs that sessions need.
type VMs interface {
	Get(ctx context.Context, ref string) (vm.VM, error)
	// Awake returns a running VM, resuming a paused one.
	Awake(ctx context.Context, ref string) (vm.VM, error)
	Busy(id string) (release func())
	// Active notes use of the VM.
	Active(id string)
}

// Service runs the use cases. It is safe for concurrent use.
type Service struct {
	vms  VMs
	node Node

	life  context.Context //nolint:containedctx // ends the views at Close
	end   context.CancelCauseFunc
	mu    sync.Mutex
	ended bool
	views sync.WaitGroup
}

// ErrEnding is what views end with when the service is closed.
var ErrEnding = errors.New("the daemon is ending")

// NewService returns a service. Close must be called in the end.
func NewService(vms VMs, node Node) *Service {
	s := &Service{vms: vms, node: node}
	s.life, s.end = context.WithCancelCause(context.Background()) //nolint:forbidigo // the views outlive their requests
	return s
}

// Close ends all views and waits for them, at most as long as ctx lasts.
func (s *Service) Close(ctx context.Context) error {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.end(ErrEnding)
	done := make(chan struct{})
	go func() {
		s.views.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errors.New("some terminals did not close in time")
	}
}

// Open opens a session in the VM with that id or slug, waking it if it is
// paused, and looks at it.
func (s *Service) Open(ctx context.Context, ref string, o Open) (*View, error) {
	if err := check(&o); err != nil {
		return nil, err
	}
	return s.view(ctx, ref, func(ctx context.Context, id string) (Stream, error) { return s.node.OpenTerminal(ctx, id, o) })
}

// Attach looks at a session; name is its id or slug.
func (s *Service) Attach(ctx context.Context, ref, name, user string) (*View, error) {
	p, err := pick(name, user)
	if err != nil {
		return nil, err
	}
	return s.view(ctx, ref, func(ctx context.Context, id string) (Stream, error) { return s.node.AttachTerminal(ctx, id, p) })
}

// List lists the sessions of a user, or all, the oldest first.
func (s *Service) List(ctx context.Context, ref, user string) ([]Session, error) {
	v, err := s.vms.Awake(ctx, ref)
	if err != nil {
		return nil, err
	}
	defer s.vms.Busy(v.ID)()
	return s.node.Terminals(ctx, v.ID, user)
}

// Remove ends the program of a session and forgets it, and returns what it was.
func (s *Service) Remove(ctx context.Context, ref, name, user string) (Session, error) {
	p, err := pick(name, user)
	if err != nil {
		return Session{}, err
	}
	v, err := s.vms.Awake(ctx, ref)
	if err != nil {
		return Session{}, err
	}
	defer s.vms.Busy(v.ID)()
	return s.node.CloseTerminal(ctx, v.ID, p)
}

func check(o *Open) error {
	if o.Cols == 0 {
		o.Cols = DefaultCols
	}
	if o.Rows == 0 {
		o.Rows = DefaultRows
	}
	if err := CheckSize(o.Cols, o.Rows); err != nil {
		return err
	}
	if o.Slug != "" && !isSlug(o.Slug) {
		return fault.BadField("slug", "%.80q is not a name for a session", o.Slug).
			Hint("use lower-case letters, digits and hyphens, not digits alone, at most %d", MaxSlug)
	}
	if len(o.Command) > MaxExec || strings.ContainsRune(o.Command, 0) {
		return fault.BadField("exec", "is longer than %d bytes, or has a NUL byte", MaxExec).
			Hint("put it into a script in the guest")
	}
	return nil
}

// CheckSize tells whether a terminal can have that size.
func CheckSize(cols, rows int) error {
	if cols < 1 || cols > MaxSize {
		return fault.BadField("cols", "%d is not between 1 and %d", cols, MaxSize).Hint("leave it out for %d", DefaultCols)
	}
	if rows < 1 || rows > MaxSize {
		return fault.BadField("rows", "%d is not between 1 and %d", rows, MaxSize).Hint("leave it out for %d", DefaultRows)
	}
	return nil
}

// pick reads an id or a slug.
func pick(name, user string) (Pick, error) {
	p := Pick{User: user}
	if id, err := strconv.ParseInt(name, 10, 64); err == nil && id > 0 {
		p.ID = id
		return p, nil
	}
	if !isSlug(name) {
		return p, &fault.Error{
			Code: api.CodeNotFound, Message: "no terminal session of this vm has that id or slug",
			Remedy: "list what exists with: pando vm sessions VM",
		}
	}
	p.Slug = name
	return p, nil
}

func isSlug(s string) bool {
	digits := true
	for _, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9':
		case c >= 'a' && c <= 'z', c == '-':
			digits = false
		default:
			return false
		}
	}
	return s != "" && len(s) <= MaxSlug && !digits
}

// SignalNumber returns the number of a signal that can be sent, by its name in
// lower case: sigint.
func SignalNumber(name string) (int, bool) {
	n, ok := map[string]int{
		"sighup": 1, "sigint": 2, "sigquit": 3, "sigkill": 9, "sigusr1": 10, "sigusr2": 12, "sigalrm": 14,
		"sigterm": 15, "sigcont": 18, "sigstop": 19, "sigtstp": 20, "sigwinch": 28,
	}[name]
	return n, ok
}
