package qmp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrClosed says that Close was called on the client.
var ErrClosed = errors.New("qmp client closed")

// ErrGone says that QEMU's side of the connection ended.
var ErrGone = errors.New("qemu closed the monitor connection")

// Client is a connection to one QEMU's monitor. All methods are safe for
// concurrent use.
type Client struct {
	conn    *net.UnixConn
	version string
	dec     *decoder

	// fdTurn is held by the one command with descriptors that is in flight.
	fdTurn chan struct{}
	// writing serialises lines on the wire.
	writing sync.Mutex

	mu          sync.Mutex
	lastID      uint64
	pending     map[uint64]*call
	subscribers map[*subscriber]struct{}
	err         error

	done chan struct{}
}

// call is a command that waits for its answer.
type call struct {
	answer  chan message // buffered: the reader never waits
	release func()       // gives up what the command held; called exactly once
}

type subscriber struct{ events chan Event }

// Version is QEMU's version as its greeting gave it, for example "7.2.22".
func (c *Client) Version() string { return c.version }

// Done is closed when the connection has ended, for whatever reason.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err says why the connection ended; nil before Done is closed. It is ErrClosed
// after Close, ErrGone if QEMU went away, else what was wrong with its bytes.
func (c *Client) Err() error {
	select {
	case <-c.done:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.err
	default:
		return nil
	}
}

// Close ends the connection and waits for the reader to finish. QEMU goes on
// running. It is safe to call more than once.
func (c *Client) Close() error {
	c.end(ErrClosed)
	<-c.done
	return nil
}

// Execute runs a command and waits for its answer. args is encoded as the
// "arguments" object (nil: none); the answer is decoded into result (nil: it is
// dropped). files travel with the command and stay open on this side.
//
// It returns *CommandError if QEMU refused, the context's error if ctx ended
// first (QEMU may still run the command), and an error that wraps Err if the
// connection ended.
func (c *Client) Execute(ctx context.Context, command string, args, result any, files ...*os.File) error {
	answer, err := c.roundTrip(ctx, request{Execute: command, Arguments: args}, files)
	if err != nil {
		return fmt.Errorf("execute %s: %w", command, err)
	}
	if answer.Error != nil {
		return &CommandError{Command: command, Class: answer.Error.Class, Desc: answer.Error.Desc}
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(answer.Return, result); err != nil {
		return fmt.Errorf("decode answer of %s: %w", command, err)
	}
	return nil
}

func (c *Client) roundTrip(ctx context.Context, req request, files []*os.File) (message, error) {
	release := func() {}
	if len(files) > 0 {
		select {
		case c.fdTurn <- struct{}{}:
			release = func() { <-c.fdTurn }
		case <-ctx.Done():
			return message{}, context.Cause(ctx)
		case <-c.done:
			return message{}, c.Err()
		}
	}
	waiting, id, err := c.register(release)
	if err != nil {
		release()
		return message{}, err
	}
	req.ID = id
	if err := c.send(ctx, req, files); err != nil {
		c.forget(id)
		return message{}, err
	}
	select {
	case m, ok := <-waiting.answer:
		if !ok {
			<-c.done
			return message{}, c.Err()
		}
		return m, nil
	case <-ctx.Done():
		// The call stays registered: its answer will come, and until then QEMU
		// may not have taken the descriptors.
		return message{}, context.Cause(ctx)
	}
}

// register gives the next id to a call, or returns why the client has ended.
func (c *Client) register(release func()) (*call, uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, 0, c.err
	}
	c.lastID++
	waiting := &call{answer: make(chan message, 1), release: release}
	c.pending[c.lastID] = waiting
	return waiting, c.lastID, nil
}

// forget drops a call that never reached QEMU.
func (c *Client) forget(id uint64) {
	if waiting := c.take(id); waiting != nil {
		waiting.release()
	}
}

func (c *Client) take(id uint64) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.pending[id]
	delete(c.pending, id)
	return waiting
}

// send writes one command. A command that was cut short would garble the next
// one, so a failure between its first and last byte ends the client.
func (c *Client) send(ctx context.Context, req request, files []*os.File) error {
	line, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	n, err := c.writeUntil(ctx, append(line, '\n'), files)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded) && n == 0:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.end(fmt.Errorf("command cut short: %w", context.Cause(ctx)))
	default:
		c.end(ErrGone)
	}
	<-c.done
	return c.Err()
}

// writeUntil writes line, but not longer than ctx lasts.
func (c *Client) writeUntil(ctx context.Context, line []byte, files []*os.File) (int, error) {
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(expired)
		_ = c.conn.SetWriteDeadline(time.Unix(1, 0)) // fails only when closed
	})
	n, err := c.write(line, files)
	if !stop() {
		<-expired
		_ = c.conn.SetWriteDeadline(time.Time{}) // fails only when closed
	}
	return n, err
}

func (c *Client) write(line []byte, files []*os.File) (int, error) {
	if len(files) == 0 {
		return c.conn.Write(line)
	}
	n, err := withRights(files, func(rights []byte) (int, error) {
		n, _, err := c.conn.WriteMsgUnix(line, rights, nil)
		return n, err
	})
	if err != nil || n == len(line) {
		return n, err
	}
	rest, err := c.conn.Write(line[n:])
	return n + rest, err
}

// withRights calls do with the control message that passes files, and keeps
// them open until do has returned.
func withRights(files []*os.File, do func(rights []byte) (int, error)) (int, error) {
	fds := make([]int, len(files))
	var n int
	var failed error
	var hold func(i int)
	hold = func(i int) {
		if i == len(files) {
			n, failed = do(unix.UnixRights(fds...))
			return
		}
		raw, err := files[i].SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds[i] = int(fd); hold(i + 1) })
		}
		if err != nil && failed == nil {
			failed = err
		}
	}
	hold(0)
	return n, failed
}

// Subscribe delivers every event from now on to the returned channel, which
// holds up to buf of them. The channel is closed by cancel, when the connection
// ends, and when the subscriber has fallen more than buf events behind: then
// events were lost and Done is not closed. cancel is idempotent.
func (c *Client) Subscribe(buf int) (<-chan Event, func()) {
	s := &subscriber{events: make(chan Event, max(buf, 1))}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		close(s.events)
		return s.events, func() {}
	}
	c.subscribers[s] = struct{}{}
	return s.events, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.drop(s)
	}
}

// drop closes a subscriber's channel once. c.mu is held.
func (c *Client) drop(s *subscriber) {
	if _, ok := c.subscribers[s]; ok {
		delete(c.subscribers, s)
		close(s.events)
	}
}

func (c *Client) publish(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.subscribers {
		select {
		case s.events <- e:
		default:
			c.drop(s)
		}
	}
}

// read delivers everything that QEMU sends until the connection ends.
func (c *Client) read() {
	defer close(c.done)
	for {
		m, err := c.dec.next()
		if err != nil {
			c.end(cause(err))
			c.settle()
			return
		}
		switch {
		case m.Event != "":
			c.publish(Event{Name: m.Event, Data: m.Data, Time: m.Timestamp.time()})
		case m.ID != nil:
			if waiting := c.take(*m.ID); waiting != nil {
				waiting.release()
				waiting.answer <- m
			}
		default:
			// QEMU answers without an id only what it could not parse, and it
			// can parse all that is sent here.
			c.end(fmt.Errorf("qmp answer without an id: %s", describe(m)))
		}
	}
}

func describe(m message) string {
	if m.Error != nil {
		return m.Error.Desc
	}
	return "no error"
}

// cause says what the end of the stream means.
func cause(err error) error {
	var syscallError *os.SyscallError
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &syscallError) {
		return ErrGone
	}
	return err
}

// end records the first reason and closes the socket, which ends the reader.
func (c *Client) end(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = reason
		_ = c.conn.Close() // nothing is buffered; the reader sees the end
	}
}

// settle answers everything that still waits. The reader calls it last.
func (c *Client) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, waiting := range c.pending {
		delete(c.pending, id)
		waiting.release()
		close(waiting.answer)
	}
	for s := range c.subscribers {
		c.drop(s)
	}
}
