package http2_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/pandovm/pando/internal/agent/http2"
)

// pieces feeds b in pieces of at most n bytes.
func pieces(t *testing.T, c *http2.Conn, b []byte, n int) {
	t.Helper()
	for len(b) > 0 {
		k := min(n, len(b))
		if err := c.Feed(b[:k]); err != nil {
			t.Error(err)
			return
		}
		b = b[k:]
	}
}

func frame(kind, flags byte, id uint32, payload []byte) []byte {
	n := len(payload)
	b := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, id), payload...)
}

// request is a request whose body is sent in frames of that size.
func request(body []byte, size int) []byte {
	b := http2.AppendRequest(nil, 1, "/", nil)
	b = b[:len(b)-9] // without the empty DATA that ends it
	for len(body) > size {
		b = append(b, frame(0, 0, 1, body[:size])...)
		body = body[size:]
	}
	return append(b, frame(0, 1, 1, body)...)
}

func numbered(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}

// A body arrives whole however the stream is cut, in frames and on its way, and
// however it is read.
func TestBodyInPieces(t *testing.T) {
	t.Parallel()
	body := numbered(700_001)
	readers := map[string]func(*http2.Stream) ([]byte, error){
		"read": func(s *http2.Stream) ([]byte, error) { return io.ReadAll(s) },
		"read by a few bytes": func(s *http2.Stream) ([]byte, error) {
			var b bytes.Buffer
			_, err := io.CopyBuffer(struct{ io.Writer }{&b}, s, make([]byte, 777))
			return b.Bytes(), err
		},
		"take": func(s *http2.Stream) ([]byte, error) { return takeAll(s, 1, nil) },
		"take much": func(s *http2.Stream) ([]byte, error) {
			return takeAll(s, 10*http2.MaxTake, nil)
		},
		"read, then take": func(s *http2.Stream) ([]byte, error) {
			head := make([]byte, 5)
			if _, err := io.ReadFull(s, head); err != nil {
				return nil, err
			}
			return takeAll(s, http2.MaxTake, head)
		},
	}
	for name, read := range readers {
		for _, cut := range []int{1 << 20, 4096, 4099, 97} {
			got := make(chan []byte, 1)
			c := http2.NewConn(func(s *http2.Stream) {
				b, err := read(s)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				got <- b
			})
			pieces(t, c, request(body, 100_000), cut)
			if b := <-got; !bytes.Equal(b, body) {
				t.Errorf("%s, in pieces of %d: %d bytes of %d", name, cut, len(b), len(body))
			}
			c.Close(http2.ErrClosed)
		}
	}
}

func takeAll(s *http2.Stream, least int, b []byte) ([]byte, error) {
	var p []byte
	for {
		var err error
		if p, err = s.Take(p, least); err == io.EOF { //nolint:errorlint // the contract is io.EOF itself
			return b, nil
		}
		if err != nil {
			return b, err
		}
		b = append(b, p...)
	}
}

// What came before a connection broke is not lost to one who waits for more.
func TestTakeBeforeBreak(t *testing.T) {
	t.Parallel()
	taken := make(chan error, 2)
	got := make(chan []byte, 1)
	c := http2.NewConn(func(s *http2.Stream) {
		p, err := s.Take(nil, http2.MaxTake)
		got <- p
		taken <- err
		_, err = s.Take(p, http2.MaxTake)
		taken <- err
	})
	b := request(numbered(5000), 1000)
	if err := c.Feed(b[:3000]); err != nil {
		t.Fatal(err)
	}
	c.Close(http2.ErrProtocol)
	if p := <-got; len(p) < 2900 || !bytes.Equal(p, numbered(len(p))) {
		t.Errorf("%d bytes", len(p))
	}
	if err := <-taken; err != nil {
		t.Errorf("the bytes came with %v", err)
	}
	if err := <-taken; err != http2.ErrProtocol { //nolint:errorlint // it is handed on as it is
		t.Errorf("then %v", err)
	}
}

// Output comes in frames as large as the peer takes, but not larger than ours.
func TestFramesOfOutput(t *testing.T) {
	t.Parallel()
	for announced, want := range map[uint32]int{0: 16384, 1000: 16384, 40_000: 40_000, 1 << 20: 64 << 10} {
		body := numbered(100_000)
		c := http2.NewConn(func(s *http2.Stream) {
			if _, err := s.Write(body); err != nil {
				t.Error(err)
			}
		})
		settings := frame(4, 0, 0, []byte{0, 4, 0, 0x10, 0, 0})
		if announced > 0 {
			payload := binary.BigEndian.AppendUint32([]byte{0, 4, 0, 0x10, 0, 0, 0, 5}, announced)
			settings = frame(4, 0, 0, payload)
		}
		window := frame(8, 0, 0, []byte{0, 0x10, 0, 0})
		if err := c.Feed(bytes.Join([][]byte{settings, window, request(nil, 1)}, nil)); err != nil {
			t.Fatal(err)
		}
		largest, got := 0, []byte{}
		var out []byte
		for len(got) < len(body) {
			b, ok := c.Take(nil)
			if !ok {
				t.Fatal("closed")
			}
			for out = append(out, b...); len(out) > 0; {
				n := int(out[0])<<16 | int(out[1])<<8 | int(out[2])
				if out[3] == 0 {
					largest = max(largest, n)
					got = append(got, out[9:9+n]...)
				}
				out = out[9+n:]
			}
		}
		if largest != want || !bytes.Equal(got, body) {
			t.Errorf("announced %d: frames of %d, not %d", announced, largest, want)
		}
		c.Close(http2.ErrClosed)
	}
}
