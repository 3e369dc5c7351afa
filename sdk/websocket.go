package pando

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // the protocol's handshake is defined with it; nothing is kept secret by it
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// The opcodes of WebSocket frames (RFC 6455).
const (
	opContinuation byte = 0x0
	opText         byte = 0x1
	opBinary       byte = 0x2
	opClose        byte = 0x8
	opPing         byte = 0x9
	opPong         byte = 0xa
)

const (
	// maxSocketMessage bounds what a server may send as one message.
	maxSocketMessage = 4 << 20
	maxControl       = 125
	// socketSilence is how long a server may be silent: it pings more often.
	socketSilence = 2 * time.Minute
	// closePatience is how long a server may take to say goodbye.
	closePatience = time.Second
)

var errSocket = errors.New("the server broke the WebSocket protocol")

// closedError is the end of a socket by the server's close frame.
type closedError struct {
	code   int
	reason string
}

// Error returns the code and the reason.
func (e *closedError) Error() string {
	if e.reason == "" {
		return fmt.Sprintf("the server closed the connection (%d)", e.code)
	}
	return fmt.Sprintf("the server closed the connection (%d): %s", e.code, e.reason)
}

// socket is the client's end of a WebSocket. receive is called by one
// goroutine; send and close may be called by any.
type socket struct {
	rw   io.ReadWriteCloser
	in   *bufio.Reader
	idle *time.Timer // closes a connection that has gone silent

	mu     sync.Mutex
	out    []byte
	closed bool
}

// dial opens a WebSocket. ctx bounds the handshake only. An answer that is no
// upgrade is an error like that of any other call.
func (c *Client) dial(ctx context.Context, path string) (*socket, error) {
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	req, err := c.request(life, http.MethodGet, path, nil)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	key := socketKey()
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	req.Header.Set("Sec-Websocket-Version", "13")
	req.Header.Set("Sec-Websocket-Key", key)
	resp, err := c.http.Do(req)
	if err != nil {
		cancel(nil)
		return nil, c.transportError(ctx, req.Method, path, err)
	}
	s, err := c.upgraded(path, key, resp)
	if err != nil {
		cancel(nil)
		_ = resp.Body.Close()
	}
	return s, err
}

func (c *Client) upgraded(path, key string, resp *http.Response) (*socket, error) {
	if resp.StatusCode != http.StatusSwitchingProtocols {
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		if err != nil {
			return nil, c.foreignAnswer(http.MethodGet, path, err)
		}
		return nil, statusError(http.MethodGet, path, resp, body)
	}
	rw, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || resp.Header.Get("Sec-Websocket-Accept") != acceptOf(key) {
		return nil, c.foreignAnswer(http.MethodGet, path, errSocket)
	}
	return newSocket(rw), nil
}

func newSocket(rw io.ReadWriteCloser) *socket {
	s := &socket{rw: rw, in: bufio.NewReaderSize(rw, 32<<10)}
	s.idle = time.AfterFunc(socketSilence, func() { _ = rw.Close() })
	return s
}

func socketKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return base64.StdEncoding.EncodeToString(b[:])
}

func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // see the import
	return base64.StdEncoding.EncodeToString(sum[:])
}

// receive returns the next message and answers what the protocol asks in
// between. The end by the server is a *closedError.
func (s *socket) receive() (op byte, message []byte, err error) {
	for {
		head, payload, err := s.frame(len(message))
		if err != nil {
			return 0, nil, err
		}
		kind, last := head[0]&0xf, head[0]&0x80 != 0
		switch kind {
		case opPing:
			if err := s.send(opPong, payload); err != nil {
				return 0, nil, err
			}
			continue
		case opPong:
			continue
		case opClose:
			return 0, nil, s.goodbye(payload)
		case opText, opBinary:
			if op != 0 {
				return 0, nil, fmt.Errorf("message within a message: %w", errSocket)
			}
			op = kind
		case opContinuation:
			if op == 0 {
				return 0, nil, fmt.Errorf("continuation of nothing: %w", errSocket)
			}
		default:
			return 0, nil, fmt.Errorf("frame of type %d: %w", kind, errSocket)
		}
		message = append(message, payload...)
		if last {
			return op, message, nil
		}
	}
}

// frame reads one frame; had is the length of its message so far.
func (s *socket) frame(had int) (head [2]byte, payload []byte, err error) {
	if _, err := io.ReadFull(s.in, head[:]); err != nil {
		return head, nil, fmt.Errorf("read frame: %w", err)
	}
	s.idle.Reset(socketSilence)
	size, err := s.size(head)
	if err != nil {
		return head, nil, err
	}
	isControl := head[0]&0x8 != 0
	switch {
	case head[0]&0x70 != 0 || head[1]&0x80 != 0:
		err = fmt.Errorf("reserved bits, or a masked frame: %w", errSocket)
	case isControl && (size > maxControl || head[0]&0x80 == 0):
		err = fmt.Errorf("control frame of %d bytes, or in parts: %w", size, errSocket)
	case size > uint64(maxSocketMessage-min(had, maxSocketMessage)):
		err = fmt.Errorf("message of more than %d bytes: %w", maxSocketMessage, errSocket)
	}
	if err != nil {
		return head, nil, err
	}
	payload = make([]byte, size)
	if _, err := io.ReadFull(s.in, payload); err != nil {
		return head, nil, fmt.Errorf("read frame: %w", err)
	}
	return head, payload, nil
}

func (s *socket) size(head [2]byte) (uint64, error) {
	var long [8]byte
	switch n := head[1] & 0x7f; n {
	case 126:
		if _, err := io.ReadFull(s.in, long[6:]); err != nil {
			return 0, fmt.Errorf("read frame: %w", err)
		}
	case 127:
		if _, err := io.ReadFull(s.in, long[:]); err != nil {
			return 0, fmt.Errorf("read frame: %w", err)
		}
	default:
		long[7] = n
	}
	return binary.BigEndian.Uint64(long[:]), nil
}

// goodbye answers the server's close frame and returns what it says.
func (s *socket) goodbye(payload []byte) error {
	_ = s.send(opClose, payload[:min(2, len(payload))])
	e := &closedError{code: 1005}
	if len(payload) >= 2 {
		e.code, e.reason = int(binary.BigEndian.Uint16(payload)), string(payload[2:])
	}
	return e
}

// send sends one frame, masked as clients must.
func (s *socket) send(op byte, payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return io.ErrClosedPipe
	}
	s.closed = op == opClose
	b := append(s.out[:0], 0x80|op)
	switch n := len(payload); {
	case n <= 125:
		b = append(b, 0x80|byte(n))
	case n <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	var mask [4]byte
	_, _ = rand.Read(mask[:]) // it never fails
	b = append(b, mask[:]...)
	for i, c := range payload {
		b = append(b, c^mask[i&3])
	}
	s.out = b
	if _, err := s.rw.Write(b); err != nil {
		return fmt.Errorf("send frame: %w", err)
	}
	return nil
}

// close says goodbye and ends the connection, at once if the server does not
// answer.
func (s *socket) close() error {
	_ = s.send(opClose, []byte{0x03, 0xe8})
	s.idle.Reset(closePatience)
	return nil
}

// drop ends the connection without a word.
func (s *socket) drop() {
	s.idle.Stop()
	_ = s.rw.Close()
}
