package http2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/net/http2/hpack"
)

// Preface is what a client sends before its first frame. It is not part of
// what Feed takes.
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

const (
	frameHeaderSize = 9
	// maxFrame is the largest frame either side may send unless more is announced,
	// and bounds everything but data.
	maxFrame = 16384
	// maxDataIn is the largest frame of data that the peer may send. It is taken
	// piece by piece, so its size costs no memory. maxDataOut bounds those that are
	// sent, whatever the peer would take.
	maxDataIn  = 256 << 10
	maxDataOut = 64 << 10
	// defaultWindow is what a window holds until something else is announced.
	defaultWindow = 65535
	// streamWindow bounds the unread input of one request, connWindow that of all.
	streamWindow = 1 << 20
	connWindow   = 16 << 20
	// maxStreams bounds the requests in progress.
	maxStreams = 1024
	// maxHeaderBlock bounds the headers of one request, compressed and not.
	maxHeaderBlock = 16 << 10
	// outData stops writers of data while that much output waits; control frames
	// still go in, until outLimit says that the peer has stopped reading.
	outData  = 128 << 10
	outLimit = 1 << 20
)

// ErrProtocol is the end of a connection whose peer broke the protocol.
var ErrProtocol = errors.New("http2 protocol error")

// ErrClosed is what the streams of a closed connection return.
var ErrClosed = errors.New("http2 connection closed")

// Handler serves one request. It runs in its own goroutine; the response ends
// when it returns.
type Handler func(*Stream)

// Conn is one connection. Feed must not be called concurrently with itself;
// everything else is safe for concurrent use.
type Conn struct {
	handle Handler

	// Owned by Feed.
	head    [frameHeaderSize]byte
	headLen int
	partial []byte
	// passed counts the bytes of the present frame of data that were taken.
	passed  int
	block   headerBlock
	decoder *hpack.Decoder
	path    string
	lastID  uint32

	mu  sync.Mutex
	err error // why the connection ended; nil while it lives
	out []byte
	// more wakes the writer, room the streams that wait to write.
	more, room sync.Cond
	streams    map[uint32]*Stream
	// sendWindow is what the peer lets us send; initialWindow what each new
	// stream starts with. unreturned is input read but not yet credited.
	sendWindow    int64
	initialWindow int64
	unreturned    int
	// frameLimit is the largest frame of data that goes out.
	frameLimit int64
}

// headerBlock is the header block being received: HEADERS and CONTINUATION.
type headerBlock struct {
	id    uint32
	end   bool // END_STREAM was set
	bytes []byte
}

// NewConn returns a connection whose first output is the server's settings.
// Close must be called in the end.
func NewConn(handle Handler) *Conn {
	c := &Conn{
		handle:        handle,
		streams:       map[uint32]*Stream{},
		sendWindow:    defaultWindow,
		initialWindow: defaultWindow,
		frameLimit:    maxFrame,
	}
	c.more.L, c.room.L = &c.mu, &c.mu
	c.decoder = hpack.NewDecoder(4096, c.field)
	c.decoder.SetMaxStringLength(maxHeaderBlock)
	c.out = appendSettings(c.out)
	c.out = appendWindowUpdate(c.out, 0, connWindow-defaultWindow)
	return c
}

// Close ends the connection and its streams; Take returns false from then on.
// It does not wait for handlers.
func (c *Conn) Close(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeLocked(err)
}

func (c *Conn) closeLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	for _, s := range c.streams {
		s.failLocked(err)
	}
	c.more.Broadcast()
	c.room.Broadcast()
}

// Take waits for output and returns it; the caller gives back a buffer for
// reuse, which may be nil. It returns false once the connection is closed.
func (c *Conn) Take(spare []byte) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) == 0 && c.err == nil {
		c.more.Wait()
	}
	if c.err != nil {
		return nil, false
	}
	b := c.out
	c.out = spare[:0]
	c.room.Broadcast()
	return b, true
}

// Feed takes bytes from the peer. It never blocks. An error has closed the
// connection.
func (c *Conn) Feed(p []byte) error {
	for len(p) > 0 {
		rest, err := c.feedFrame(p)
		if err != nil {
			c.Close(err)
			return err
		}
		p = rest
	}
	return nil
}

// feedFrame consumes at most one frame of p and returns the rest.
func (c *Conn) feedFrame(p []byte) ([]byte, error) {
	if c.headLen < frameHeaderSize {
		n := copy(c.head[c.headLen:], p)
		c.headLen += n
		p = p[n:]
		if c.headLen < frameHeaderSize {
			return nil, nil
		}
	}
	size := int(c.head[0])<<16 | int(c.head[1])<<8 | int(c.head[2])
	if c.head[3] == byte(frameData) && c.head[4]&flagPadded == 0 && size <= maxDataIn {
		return c.feedData(p, size)
	}
	if size > maxFrame {
		return nil, fmt.Errorf("frame of %d bytes: %w", size, ErrProtocol)
	}
	var payload []byte
	if len(c.partial) == 0 && len(p) >= size {
		payload, p = p[:size], p[size:]
	} else {
		n := min(len(p), size-len(c.partial))
		c.partial, p = append(c.partial, p[:n]...), p[n:]
		if len(c.partial) < size {
			return nil, nil
		}
		payload = c.partial
	}
	c.headLen, c.partial = 0, c.partial[:0]
	id := binary.BigEndian.Uint32(c.head[5:]) & 0x7fffffff
	return p, c.frame(frameType(c.head[3]), c.head[4], id, payload)
}

// feedData passes on what p has of a frame of data, without waiting for all of it.
func (c *Conn) feedData(p []byte, size int) ([]byte, error) {
	n := min(len(p), size-c.passed)
	c.passed += n
	flags := c.head[4]
	if c.passed < size {
		if n == 0 {
			return nil, nil
		}
		flags &^= flagEndStream
	} else {
		c.headLen, c.passed = 0, 0
	}
	id := binary.BigEndian.Uint32(c.head[5:]) & 0x7fffffff
	return p[n:], c.frame(frameData, flags, id, p[:n])
}

func (c *Conn) frame(t frameType, flags byte, id uint32, p []byte) error {
	if c.block.id != 0 && (t != frameContinuation || id != c.block.id) {
		return fmt.Errorf("frame %d within a header block: %w", t, ErrProtocol)
	}
	switch t {
	case frameHeaders:
		return c.headers(flags, id, p)
	case frameContinuation:
		return c.continuation(flags, p)
	case frameData:
		return c.data(flags, id, p)
	case frameSettings:
		return c.settings(flags, p)
	case frameWindowUpdate:
		return c.windowUpdate(id, p)
	case framePing:
		return c.ping(flags, p)
	case frameReset:
		c.reset(id)
	}
	return nil // PRIORITY, GOAWAY and unknown frames ask nothing of us
}

func (c *Conn) headers(flags byte, id uint32, p []byte) error {
	p, ok := unpad(flags, p)
	if !ok || id%2 == 0 {
		return fmt.Errorf("headers on stream %d: %w", id, ErrProtocol)
	}
	if flags&flagPriority != 0 {
		if len(p) < 5 {
			return fmt.Errorf("short priority: %w", ErrProtocol)
		}
		p = p[5:]
	}
	c.block.id, c.block.end = id, flags&flagEndStream != 0
	return c.continuation(flags, p)
}

func (c *Conn) continuation(flags byte, p []byte) error {
	if c.block.id == 0 || len(c.block.bytes)+len(p) > maxHeaderBlock {
		return fmt.Errorf("header block: %w", ErrProtocol)
	}
	c.block.bytes = append(c.block.bytes, p...)
	if flags&flagEndHeaders == 0 {
		return nil
	}
	c.path = ""
	_, err := c.decoder.Write(c.block.bytes)
	if err == nil {
		err = c.decoder.Close()
	}
	id, end := c.block.id, c.block.end
	c.block = headerBlock{bytes: c.block.bytes[:0]}
	if err != nil {
		return fmt.Errorf("header block: %w: %w", err, ErrProtocol)
	}
	c.open(id, end)
	return nil
}

func (c *Conn) field(f hpack.HeaderField) {
	if f.Name == ":path" {
		c.path = f.Value
	}
}

// open starts a request, or ends the input of one whose trailers these are.
func (c *Conn) open(id uint32, end bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id <= c.lastID {
		if s := c.streams[id]; s != nil && end {
			s.endInputLocked()
		}
		return
	}
	c.lastID = id
	if c.err != nil {
		return
	}
	if len(c.streams) >= maxStreams {
		c.controlLocked(appendReset(c.out, id, errRefused))
		return
	}
	s := newStream(c, id, c.path)
	c.streams[id] = s
	if end {
		s.endInputLocked()
	}
	go func() {
		c.handle(s)
		s.finish()
	}()
}

func (c *Conn) data(flags byte, id uint32, p []byte) error {
	size := len(p)
	p, ok := unpad(flags, p)
	if !ok {
		return fmt.Errorf("padding: %w", ErrProtocol)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[id]
	if s == nil || s.inputEnded {
		c.creditLocked(size)
		return nil
	}
	if s.unread()+s.unreturned+size > streamWindow {
		return fmt.Errorf("stream %d overran its window: %w", id, ErrProtocol)
	}
	s.unreturned += size - len(p)
	c.creditLocked(size - len(p))
	s.addLocked(p)
	if flags&flagEndStream != 0 {
		s.endInputLocked()
	}
	return nil
}

// creditLocked lets the peer send n bytes more on the connection, in steps big
// enough to be worth a frame.
func (c *Conn) creditLocked(n int) {
	c.unreturned += n
	if c.unreturned >= connWindow/4 {
		c.controlLocked(appendWindowUpdate(c.out, 0, c.unreturned))
		c.unreturned = 0
	}
}

// controlLocked makes out the output, which has grown by a control frame.
func (c *Conn) controlLocked(out []byte) {
	c.out = out
	if len(out) > outLimit {
		c.closeLocked(fmt.Errorf("peer does not read: %w", ErrProtocol))
		return
	}
	c.more.Signal()
}

func (c *Conn) settings(flags byte, p []byte) error {
	if flags&flagAck != 0 {
		return nil
	}
	if len(p)%6 != 0 {
		return fmt.Errorf("settings of %d bytes: %w", len(p), ErrProtocol)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; len(p) > 0; p = p[6:] {
		setting, w := binary.BigEndian.Uint16(p), int64(binary.BigEndian.Uint32(p[2:]))
		if setting == settingMaxFrame {
			c.frameLimit = min(max(w, maxFrame), maxDataOut)
		}
		if setting != settingInitialWindow {
			continue
		}
		if w > maxWindow {
			return fmt.Errorf("initial window of %d: %w", w, ErrProtocol)
		}
		for _, s := range c.streams {
			s.sendWindow += w - c.initialWindow
		}
		c.initialWindow = w
	}
	c.controlLocked(appendFrame(c.out, frameSettings, flagAck, 0, nil))
	c.room.Broadcast()
	return nil
}

func (c *Conn) windowUpdate(id uint32, p []byte) error {
	if len(p) != 4 {
		return fmt.Errorf("window update of %d bytes: %w", len(p), ErrProtocol)
	}
	n := int64(binary.BigEndian.Uint32(p) & maxWindow)
	c.mu.Lock()
	defer c.mu.Unlock()
	window := &c.sendWindow
	if id != 0 {
		s := c.streams[id]
		if s == nil {
			return nil
		}
		window = &s.sendWindow
	}
	if *window += n; *window > maxWindow {
		return fmt.Errorf("window of %d: %w", *window, ErrProtocol)
	}
	c.room.Broadcast()
	return nil
}

func (c *Conn) ping(flags byte, p []byte) error {
	if len(p) != 8 {
		return fmt.Errorf("ping of %d bytes: %w", len(p), ErrProtocol)
	}
	if flags&flagAck != 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controlLocked(appendFrame(c.out, framePing, flagAck, 0, p))
	return nil
}

func (c *Conn) reset(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[id]; s != nil {
		s.failLocked(ErrReset)
	}
}
