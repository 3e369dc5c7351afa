package terminal

import (
	"encoding/binary"
	"io"
	"sync"
	"time"

	"github.com/pandovm/pando/internal/link"
)

const (
	// maxQueue bounds what waits for a viewer, beside a screen under way.
	maxQueue = 256 << 10
	// firstScrollback is what a new viewer gets of the scrollback, nextScrollback
	// one that fell behind.
	firstScrollback = 1 << 20
	nextScrollback  = 64 << 10
	// maxPatience is how long the program can be held up for a viewer; it comes
	// back at a tenth of the time that passes.
	maxPatience = time.Second
	// takenStep is how much input is reported as taken at once.
	takenStep = link.TerminalInputWindow / 4
	outputMax = 16<<10 - link.FrameHeader
)

// viewer is one that looks at a session. All is guarded by the session's lock.
type viewer struct {
	s     *session
	ready sync.Cond
	// queue is what it gets next; drawing is how much of that is a screen.
	queue   []byte
	drawing int
	// stale says that it has to get a fresh screen, with that much scrollback.
	stale      bool
	scrollback int
	// credit is how much it may be sent, waiting what it typed and the program has
	// not taken, and taken what it has to be told that is gone.
	credit, waiting, taken int
	messages               []string
	exit                   bool // the program's end is to be told
	ended                  bool
	// room has a token when the queue has become shorter.
	room     chan struct{}
	patience time.Duration
	waited   time.Time // when patience was last reckoned
}

// attach adds a viewer. It gets the screen first, unless fresh says that there
// is nothing on it yet.
func (s *session) attach(fresh bool) (*viewer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.viewers) >= link.MaxTerminalViewers || s.removed {
		return nil, false
	}
	v := &viewer{
		s: s, stale: !fresh, scrollback: firstScrollback, credit: link.TerminalWindow, exit: s.exited,
		room: make(chan struct{}, 1), patience: maxPatience, waited: time.Now(),
	}
	v.ready.L = &s.mu
	s.viewers[v] = struct{}{}
	return v, true
}

// detach forgets the viewer.
func (v *viewer) detach() {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	delete(v.s.viewers, v)
	v.endLocked()
}

// end makes run return.
func (v *viewer) end() {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	v.endLocked()
}

func (v *viewer) endLocked() {
	v.ended = true
	v.ready.Signal()
	v.roomLocked()
}

func (v *viewer) roomLocked() {
	select {
	case v.room <- struct{}{}:
	default:
	}
}

// pushLocked adds output and tells whether there is too much of it.
func (v *viewer) pushLocked(p []byte) bool {
	if v.stale || v.ended || len(p) == 0 {
		return false
	}
	v.queue = append(v.queue, p...)
	v.ready.Signal()
	return v.fullLocked()
}

func (v *viewer) fullLocked() bool { return len(v.queue)-v.drawing > maxQueue }

// waitForRoom holds the program up for a viewer that is nearly keeping up. One
// that is not gets a fresh screen later.
func (v *viewer) waitForRoom() {
	began := time.Now()
	v.patience = min(v.patience+began.Sub(v.waited)/10, maxPatience)
	timer := time.NewTimer(v.patience)
	defer timer.Stop()
	for {
		v.s.mu.Lock()
		done := v.ended || !v.fullLocked()
		v.s.mu.Unlock()
		if done {
			break
		}
		select {
		case <-v.room:
			continue
		case <-timer.C:
			v.lag()
		}
		break
	}
	v.waited = time.Now()
	v.patience -= v.waited.Sub(began)
}

// lag drops what waits.
func (v *viewer) lag() {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	if v.fullLocked() {
		v.queue, v.drawing, v.stale, v.scrollback = nil, 0, true, nextScrollback
		v.ready.Signal()
	}
}

// tookLocked counts input that is gone. A nil viewer has typed nothing.
func (v *viewer) tookLocked(n int) {
	if v == nil {
		return
	}
	v.waiting -= n
	if v.taken += n; v.taken >= takenStep {
		v.ready.Signal()
	}
}

// shown says that n bytes of output have reached the eyes.
func (v *viewer) shown(n int) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	v.credit = min(v.credit+n, link.TerminalWindow)
	v.ready.Signal()
}

// tell sends words.
func (v *viewer) tell(text string) {
	const most = 16
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	if len(v.messages) < most {
		v.messages = append(v.messages, text)
		v.ready.Signal()
	}
}

// run writes to w what the viewer is to get, until it is ended.
func (v *viewer) run(w io.Writer) {
	buf := make([]byte, 0, outputMax+link.FrameHeader)
	for {
		var ok bool
		if buf, ok = v.next(buf[:0]); !ok {
			return
		}
		if _, err := w.Write(buf); err != nil {
			return
		}
	}
}

// next waits for something to send and appends it to buf.
func (v *viewer) next(buf []byte) ([]byte, bool) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	for {
		if v.taken >= takenStep {
			buf = link.AppendCount(buf, link.FrameTerminalTaken, v.taken)
			v.taken = 0
		}
		for _, text := range v.messages {
			buf = link.AppendFrame(buf, link.FrameTerminalError, []byte(text))
		}
		v.messages = nil
		buf = v.outputLocked(buf)
		if v.exit && len(v.queue) == 0 && !v.stale {
			v.exit = false
			buf = link.AppendCount(buf, link.FrameTerminalExit, v.s.exitCode)
		}
		switch {
		case len(buf) > 0:
			return buf, true
		case v.ended:
			return nil, false
		}
		v.ready.Wait()
	}
}

// outputLocked appends a frame of output, if there is some and it may be sent.
func (v *viewer) outputLocked(buf []byte) []byte {
	if v.credit <= 0 {
		return buf
	}
	if v.stale {
		v.stale = false
		v.queue = v.s.screen.Snapshot(v.queue[:0], v.scrollback)
		v.drawing = len(v.queue)
	}
	n := min(len(v.queue), v.credit, outputMax)
	if n == 0 {
		return buf
	}
	buf = append(buf, byte(link.FrameTerminalOutput))
	buf = binary.BigEndian.AppendUint32(buf, uint32(n))
	buf = append(buf, v.queue[:n]...)
	v.credit -= n
	v.drawing = max(v.drawing-n, 0)
	if v.queue = v.queue[n:]; len(v.queue) == 0 && cap(v.queue) > maxQueue {
		v.queue = nil
	}
	v.roomLocked()
	return buf
}
