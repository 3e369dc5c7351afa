package http2

import (
	"errors"
	"io"
	"sync"
)

// ErrReset is what a stream returns after the client has given it up.
var ErrReset = errors.New("http2 stream reset by the client")

// Stream is one request and its response. Read and Write may be called
// concurrently with each other, and Write with itself.
type Stream struct {
	conn *Conn
	id   uint32
	path string
	done chan struct{}

	// All below is guarded by conn.mu.
	err error // why the stream ended early
	// ready wakes a reader once wanted bytes are there, or the end. input from
	// offset taken on is unread.
	ready      sync.Cond
	wanted     int
	input      []byte
	taken      int
	inputEnded bool
	// unreturned is input read but not yet credited to the client.
	unreturned int
	sendWindow int64
	started    bool // the response's headers are out
}

func newStream(c *Conn, id uint32, path string) *Stream {
	s := &Stream{conn: c, id: id, path: path, done: make(chan struct{}), sendWindow: c.initialWindow}
	s.ready.L = &c.mu
	return s
}

// Path returns the request's :path.
func (s *Stream) Path() string { return s.path }

// Done is closed when the client has given the request up or the connection has
// ended.
func (s *Stream) Done() <-chan struct{} { return s.done }

// Read reads the request's body.
func (s *Stream) Read(p []byte) (int, error) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.awaitLocked(1); err != nil {
		return 0, err
	}
	n := copy(p, s.input[s.taken:])
	if s.taken += n; s.taken == len(s.input) {
		s.input, s.taken = s.input[:0], 0
	}
	s.creditLocked(n)
	return n, nil
}

// Take returns the input that is there, without copying it; it is the caller's.
// It waits for least bytes, which is at most MaxTake, or the end of the input. The
// caller gives back a buffer for reuse, which may be nil.
func (s *Stream) Take(spare []byte, least int) ([]byte, error) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.awaitLocked(min(least, MaxTake)); err != nil {
		return nil, err
	}
	p := s.input[s.taken:]
	s.input, s.taken = spare[:0], 0
	s.creditLocked(len(p))
	return p, nil
}

// MaxTake is how much a Take may wait for: what the client can send in any case
// before it gets more credit.
const MaxTake = streamWindow / 4

// awaitLocked returns when least bytes are there, or fewer that are all. What
// came before an early end can still be read.
func (s *Stream) awaitLocked(least int) error {
	for s.unread() < least && !s.inputEnded && s.err == nil {
		s.wanted = least
		s.ready.Wait()
	}
	switch {
	case s.unread() > 0:
		return nil
	case s.inputEnded:
		return io.EOF
	}
	return s.err
}

func (s *Stream) unread() int { return len(s.input) - s.taken }

// addLocked appends to the input.
func (s *Stream) addLocked(p []byte) {
	if s.taken > 0 && len(s.input)+len(p) > cap(s.input) {
		s.input, s.taken = s.input[:copy(s.input, s.input[s.taken:])], 0
	}
	s.input = append(s.input, p...)
	if s.unread() >= s.wanted {
		s.ready.Broadcast()
	}
}

func (s *Stream) creditLocked(n int) {
	c := s.conn
	c.creditLocked(n)
	s.unreturned += n
	if !s.inputEnded && s.err == nil && s.unreturned >= streamWindow/4 {
		c.controlLocked(appendWindowUpdate(c.out, s.id, s.unreturned))
		s.unreturned = 0
	}
}

// Write writes to the response's body. It blocks while the client does not
// read, and fails once the client is gone.
func (s *Stream) Write(p []byte) (int, error) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	total := 0
	for len(p) > 0 {
		for s.err == nil && (min(s.sendWindow, c.sendWindow) <= 0 || len(c.out) >= outData) {
			c.room.Wait()
		}
		if s.err != nil {
			return total, s.err
		}
		n := int(min(int64(len(p)), s.sendWindow, c.sendWindow, c.frameLimit))
		s.headersLocked()
		c.out = appendFrame(c.out, frameData, 0, s.id, p[:n])
		c.more.Signal()
		s.sendWindow -= int64(n)
		c.sendWindow -= int64(n)
		p = p[n:]
		total += n
	}
	return total, nil
}

func (s *Stream) headersLocked() {
	if !s.started {
		s.started = true
		s.conn.out = appendFrame(s.conn.out, frameHeaders, flagEndHeaders, s.id, []byte{status200})
	}
}

func (s *Stream) endInputLocked() {
	s.inputEnded = true
	s.ready.Broadcast()
}

func (s *Stream) failLocked(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	close(s.done)
	s.ready.Broadcast()
	s.conn.room.Broadcast()
}

// finish ends the response and forgets the stream.
func (s *Stream) finish() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.streams, s.id)
	c.creditLocked(s.unread())
	s.input, s.taken = nil, 0
	if s.err != nil {
		return
	}
	s.headersLocked()
	out := appendFrame(c.out, frameData, flagEndStream, s.id, nil)
	if !s.inputEnded {
		// The client may still be sending a body that nobody will read.
		out = appendReset(out, s.id, errNone)
	}
	s.failLocked(ErrClosed)
	c.controlLocked(out)
}
