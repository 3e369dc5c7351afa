package terminal

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/pandovm/pando/internal/agent/process"
	"github.com/pandovm/pando/internal/agent/terminal/screen"
	"github.com/pandovm/pando/internal/link"
)

const (
	// readSize is how much of the program's output is taken at once.
	readSize = 16 << 10
	// A program that writes less than crumb bytes at a time, in gaps of less than
	// crumbGap, is left to collect some: each piece costs as much as a long one.
	crumb    = 1 << 10
	crumbGap = 2 * time.Millisecond
	// lastWords is how long what others still write to the terminal of a program
	// that has ended is waited for.
	lastWords = 250 * time.Millisecond
	// A program that runs for less than quickExit, quickExits times in a row, is
	// not started again. Between two starts there is a pause that doubles.
	quickExit  = 2 * time.Second
	quickExits = 4
	firstPause = 100 * time.Millisecond
	// maxAnswers bounds the answers to a program that asks and does not listen.
	maxAnswers = 64
	// hangupGrace is how long a program may take to end after SIGHUP.
	hangupGrace = 5 * time.Second
)

// session is one terminal with its program.
type session struct {
	id      int64
	slug    string
	account process.Account
	created time.Time
	// replace starts the program again whenever it ends.
	replace bool
	spawner *process.Spawner
	command func() *process.Command
	// ended is called once, when the program has ended for good.
	ended func(*session)

	mu      sync.Mutex
	screen  *screen.Screen
	viewers map[*viewer]struct{}
	pty     *pty // nil once the program has ended for good
	process *process.Process
	input   input
	// removed is set when somebody closed the session.
	removed  bool
	exited   bool
	exitCode int
	exitedAt time.Time
	// gone is closed when removed or ended, to cut pauses short.
	gone chan struct{}
	once sync.Once
}

// start starts the program for the first time. Its output is not taken before
// begin, so that the first viewer sees it all as it comes.
func (s *session) start() error {
	s.viewers, s.gone = map[*viewer]struct{}{}, make(chan struct{})
	var err error
	s.pty, s.process, err = s.spawn()
	return err
}

// begin follows the program that start has started.
func (s *session) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	go s.live(s.pty, s.process)
}

func (s *session) spawn() (*pty, *process.Process, error) {
	cols, rows := s.screen.Size()
	t, err := openPTY(int(s.account.UID), cols, rows)
	if err != nil {
		return nil, nil, err
	}
	c := s.command()
	c.Files, c.Terminal = [3]int{t.slave, t.slave, t.slave}, true
	p, err := s.spawner.Start(c)
	err = errors.Join(err, t.closeSlave())
	if err != nil {
		return nil, nil, errors.Join(err, t.master.Close())
	}
	return t, p, nil
}

// live follows the program, and its successors, to the end.
func (s *session) live(t *pty, p *process.Process) {
	pause, quick := firstPause, 0
	for {
		began := time.Now()
		code := s.run(t, p)
		if quick++; time.Since(began) >= quickExit {
			pause, quick = firstPause, 0
		}
		if !s.replace || quick >= quickExits || !s.rest(pause) {
			s.end(code)
			return
		}
		pause *= 2
		var err error
		if t, p, err = s.again(); err != nil {
			s.end(code)
			return
		}
	}
}

// run follows one program and returns its exit status once all that it wrote
// has been taken.
func (s *session) run(t *pty, p *process.Process) int {
	read := make(chan struct{})
	go func() {
		defer close(read)
		s.read(t)
	}()
	p.Await(0)
	s.mu.Lock()
	s.process = nil // from now on its number may be another's
	code := p.Reap()
	s.mu.Unlock()
	_ = t.master.SetReadDeadline(time.Now().Add(lastWords))
	<-read
	_ = t.master.Close()
	return code
}

// rest waits before the next start, and tells whether there is to be one.
func (s *session) rest(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.gone:
		return false
	}
}

func (s *session) again() (*pty, *process.Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed {
		return nil, nil, os.ErrClosed
	}
	t, p, err := s.spawn()
	if err == nil {
		s.pty, s.process = t, p
		s.input.drop()
	}
	return t, p, err
}

func (s *session) end(code int) {
	s.mu.Lock()
	s.exited, s.exitCode, s.exitedAt = true, code, time.Now()
	s.pty = nil
	s.input.drop()
	for v := range s.viewers {
		v.exit = true
		v.ready.Signal()
		if s.removed {
			v.endLocked()
		}
	}
	s.mu.Unlock()
	s.once.Do(func() { close(s.gone) })
	s.ended(s)
}

// read takes the program's output until there is none any more.
func (s *session) read(t *pty) {
	buf := make([]byte, readSize)
	var live []byte
	var before time.Time
	for {
		n, err := t.master.Read(buf)
		if n > 0 {
			live = s.show(buf[:n], live[:0])
		}
		if err != nil {
			return
		}
		now := time.Now()
		if n < crumb && now.Sub(before) < crumbGap {
			time.Sleep(crumbGap / 2)
		}
		before = now
	}
}

// show takes output of the program: it changes the screen and goes to the
// viewers, who share no lock but this one.
func (s *session) show(p, live []byte) []byte {
	s.mu.Lock()
	live = s.screen.Feed(p, live)
	answers := s.screen.Replies()
	var full []*viewer
	for v := range s.viewers {
		if v.pushLocked(live) {
			full = append(full, v)
		}
	}
	if len(answers) > 0 {
		s.typeLocked(answers, nil)
	}
	s.mu.Unlock()
	for _, v := range full {
		v.waitForRoom()
	}
	return live
}

// typed takes input of a viewer. What the program does not read waits; the
// viewer is told when it is gone.
func (s *session) typed(p []byte, v *viewer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.waiting += len(p); v.waiting > link.TerminalInputWindow {
		return link.ErrFrame
	}
	s.typeLocked(p, v)
	return nil
}

func (s *session) typeLocked(p []byte, v *viewer) {
	if s.pty == nil || s.process == nil {
		v.tookLocked(len(p))
		return
	}
	if s.input.empty() {
		n := s.pty.writeNow(p)
		v.tookLocked(n)
		p = p[n:]
	}
	if len(p) == 0 || v == nil && len(s.input.items) >= maxAnswers {
		return
	}
	if s.input.add(p, v) {
		go s.feedInput(s.pty)
	}
}

// feedInput writes the input that waits.
func (s *session) feedInput(t *pty) {
	for {
		s.mu.Lock()
		item, ok := s.input.next(s.pty == t)
		s.mu.Unlock()
		if !ok {
			return
		}
		_, _ = t.master.Write(item.p) // fails once the program has ended
		s.mu.Lock()
		item.v.tookLocked(len(item.p))
		s.mu.Unlock()
	}
}

// resize changes the size for the program and all viewers. What the program
// wrote for the old size and what it writes for the new one does not mix: the
// viewers get a fresh screen between the two.
func (s *session) resize(cols, rows int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, r := s.screen.Size(); c == cols && r == rows || s.exited {
		return nil
	}
	if s.pty != nil {
		if err := s.pty.resize(cols, rows); err != nil && !errors.Is(err, os.ErrClosed) {
			return err
		}
	}
	s.screen.Resize(cols, rows)
	redraw := s.screen.Redraw(nil)
	for v := range s.viewers {
		v.pushLocked(redraw)
	}
	return nil
}

// signal sends a signal to what runs in the foreground.
func (s *session) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil || s.pty == nil {
		return errors.New("the program has ended")
	}
	group, err := s.pty.foreground()
	if err != nil {
		return err
	}
	return syscall.Kill(-group, sig)
}

// hangup ends the program as the loss of a terminal does, and by force if that
// does not help.
func (s *session) hangup() {
	s.mu.Lock()
	s.removed = true
	p, t := s.process, s.pty
	if s.exited {
		for v := range s.viewers {
			v.endLocked()
		}
	}
	if p != nil {
		if group, err := t.foreground(); err == nil && group != p.PID {
			_ = syscall.Kill(-group, syscall.SIGHUP)
			_ = syscall.Kill(-group, syscall.SIGCONT)
		}
		s.killLocked(p, syscall.SIGHUP)
		s.killLocked(p, syscall.SIGCONT)
	}
	s.mu.Unlock()
	s.once.Do(func() { close(s.gone) })
	if p == nil {
		return
	}
	time.AfterFunc(hangupGrace, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.killLocked(p, syscall.SIGKILL)
	})
}

// killLocked signals the program unless it has been reaped.
func (s *session) killLocked(p *process.Process, sig syscall.Signal) {
	if s.process == p {
		_ = syscall.Kill(-p.PID, sig)
	}
}

// describe returns what there is to know about the session.
func (s *session) describe() link.TerminalSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	cols, rows := s.screen.Size()
	return link.TerminalSession{
		ID: s.id, Slug: s.slug, User: s.account.Name, Title: s.screen.Title(), CreatedUnix: s.created.Unix(),
		Cols: cols, Rows: rows, Exited: s.exited, ExitCode: s.exitCode, Viewers: len(s.viewers),
	}
}

// limit bounds the scrollback.
func (s *session) limit(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.screen.Limit(bytes)
}

// input is what viewers typed and the program has not taken.
type input struct {
	items []typed
	// feeding is set while somebody writes it.
	feeding bool
}

type typed struct {
	p []byte
	v *viewer
}

func (i *input) empty() bool { return len(i.items) == 0 && !i.feeding }

// add keeps a copy of p and tells whether somebody has to begin to write.
func (i *input) add(p []byte, v *viewer) bool {
	i.items = append(i.items, typed{append([]byte(nil), p...), v})
	begin := !i.feeding
	i.feeding = true
	return begin
}

// next returns the input to write, unless there is none or nobody to take it.
func (i *input) next(more bool) (typed, bool) {
	if !more {
		return typed{}, false
	}
	if len(i.items) == 0 {
		i.feeding = false
		return typed{}, false
	}
	item := i.items[0]
	i.items = i.items[1:]
	return item, true
}

// drop forgets the input: its program has ended.
func (i *input) drop() {
	for _, item := range i.items {
		item.v.tookLocked(len(item.p))
	}
	i.items, i.feeding = nil, false
}
