package pando

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// stream is a connection that brings bytes and swallows what is sent.
type stream struct {
	io.Reader
	sent bytes.Buffer
}

func (s *stream) Write(p []byte) (int, error) { return s.sent.Write(p) }

func (*stream) Close() error { return nil }

func TestSocketMessages(t *testing.T) {
	t.Parallel()
	long := bytes.Repeat([]byte("x"), 70000)
	for name, c := range map[string]struct {
		in      []byte
		op      byte
		message string
		err     error
		closed  int
	}{
		"text":              {in: []byte{0x81, 2, 'h', 'i'}, op: opText, message: "hi"},
		"parts":             {in: []byte{0x02, 1, 'a', 0x00, 1, 'b', 0x80, 1, 'c'}, op: opBinary, message: "abc"},
		"ping between":      {in: []byte{0x02, 1, 'a', 0x89, 1, 'p', 0x80, 1, 'b'}, op: opBinary, message: "ab"},
		"16 bits":           {in: append([]byte{0x82, 126, 1, 0}, long[:256]...), op: opBinary, message: string(long[:256])},
		"64 bits":           {in: append([]byte{0x82, 127, 0, 0, 0, 0, 0, 1, 0x11, 0x70}, long...), op: opBinary, message: string(long)},
		"close":             {in: []byte{0x88, 4, 0x03, 0xe9, 'b', 'y'}, closed: 1001},
		"close, no code":    {in: []byte{0x88, 0}, closed: 1005},
		"masked":            {in: []byte{0x81, 0x80, 0, 0, 0, 0}, err: errSocket},
		"reserved bit":      {in: []byte{0xc1, 0}, err: errSocket},
		"unknown type":      {in: []byte{0x83, 0}, err: errSocket},
		"long ping":         {in: []byte{0x89, 126, 0, 200}, err: errSocket},
		"ping in parts":     {in: []byte{0x09, 0}, err: errSocket},
		"continues nothing": {in: []byte{0x80, 0}, err: errSocket},
		"text within text":  {in: []byte{0x01, 0, 0x01, 0}, err: errSocket},
		"too long":          {in: []byte{0x82, 127, 0xff, 0, 0, 0, 0, 0, 0, 0}, err: errSocket},
		"cut off":           {in: []byte{0x82, 5, 'a'}, err: io.ErrUnexpectedEOF},
		"nothing":           {err: io.EOF},
	} {
		s := newSocket(&stream{Reader: bytes.NewReader(c.in)})
		op, message, err := s.receive()
		s.drop()
		var closed *closedError
		switch {
		case c.closed != 0:
			if !errors.As(err, &closed) || closed.code != c.closed {
				t.Errorf("%s: %v", name, err)
			}
		case c.err != nil:
			if !errors.Is(err, c.err) {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil || op != c.op || string(message) != c.message:
			t.Errorf("%s: %d, %.40q, %v", name, op, message, err)
		}
	}
}

// What is sent arrives when its mask is taken off.
func TestSocketSends(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 125, 126, 65535, 65536} {
		want := bytes.Repeat([]byte{0xa5}, n)
		conn := &stream{Reader: bytes.NewReader(nil)}
		s := newSocket(conn)
		if err := s.send(opBinary, want); err != nil {
			t.Fatal(err)
		}
		s.drop()
		b := conn.sent.Bytes()
		if b[0] != 0x82 || b[1]&0x80 == 0 {
			t.Fatalf("%d bytes: head % x", n, b[:2])
		}
		head := 2
		switch b[1] & 0x7f {
		case 126:
			head = 4
		case 127:
			head = 10
		}
		mask, got := b[head:head+4], b[head+4:]
		for i := range got {
			got[i] ^= mask[i&3]
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes arrived as %d", n, len(got))
		}
	}
}

func FuzzSocket(f *testing.F) {
	f.Add([]byte{0x02, 1, 'a', 0x89, 1, 'p', 0x80, 1, 'b', 0x88, 2, 3, 0xe8})
	f.Add([]byte{0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		s := newSocket(&stream{Reader: bytes.NewReader(in)})
		defer s.drop()
		for {
			_, message, err := s.receive()
			if err != nil {
				return
			}
			if len(message) > len(in) {
				t.Fatalf("%d bytes became %d", len(in), len(message))
			}
		}
	})
}
