package http2_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/pandovm/pando/internal/agent/http2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs the connection on conn until it ends.
func serve(conn net.Conn, c *http2.Conn) {
	defer conn.Close()
	defer c.Close(http2.ErrClosed)
	preface := make([]byte, len(http2.Preface))
	if _, err := io.ReadFull(conn, preface); err != nil || string(preface) != http2.Preface {
		return
	}
	buf := make([]byte, 5000) // not a divisor of anything
	for {
		n, err := conn.Read(buf)
		if c.Feed(buf[:n]) != nil || err != nil {
			return
		}
	}
}

func write(conn net.Conn, c *http2.Conn) {
	defer conn.Close()
	var b []byte
	for {
		var ok bool
		if b, ok = c.Take(b); !ok {
			return
		}
		if _, err := conn.Write(b); err != nil {
			c.Close(err)
			return
		}
	}
}

// client returns a standard HTTP/2 client of a connection that serves handler.
func client(t *testing.T, handler http2.Handler) (*http.ClientConn, *http2.Conn) {
	t.Helper()
	near, far := net.Pipe()
	c := http2.NewConn(handler)
	var served sync.WaitGroup
	served.Go(func() { serve(far, c) })
	served.Go(func() { write(far, c) })
	transport := &http.Transport{
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return near, nil },
		Protocols:          new(http.Protocols),
		HTTP2:              &http.HTTP2Config{StrictMaxConcurrentRequests: true},
		DisableCompression: true,
	}
	transport.Protocols.SetUnencryptedHTTP2(true)
	cc, err := transport.NewClientConn(t.Context(), "http", "vm:80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cc.Close()
		_ = near.Close()
		served.Wait()
	})
	return cc, c
}

func post(ctx context.Context, cc *http.ClientConn, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://vm"+path, body)
	if err != nil {
		return nil, err
	}
	return cc.RoundTrip(req)
}

func echo(st *http2.Stream) {
	_, _ = io.Copy(st, st)
}

func TestEcho(t *testing.T) {
	t.Parallel()
	cc, _ := client(t, echo)
	for _, size := range []int{0, 1, 16384, 16385, 3 << 20} {
		want := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
		resp, err := post(t.Context(), cc, "/echo", bytes.NewReader(want))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("size %d: got %d bytes, %v", size, len(got), err)
		}
	}
}

func TestPathAndTrailingHeaders(t *testing.T) {
	t.Parallel()
	cc, _ := client(t, func(st *http2.Stream) {
		_, _ = io.Copy(io.Discard, st)
		_, _ = io.WriteString(st, st.Path())
	})
	long := "/" + strings.Repeat("long", 2000)
	for _, path := range []string{"/", "/exec", "/a?b=c", long} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://vm"+path, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = -1
		req.Trailer = http.Header{"X-Trailer": {"1"}}
		resp, err := cc.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(got) != path {
			t.Errorf("path %.20q arrived as %.20q", path, got)
		}
	}
}

// All streams share one connection's windows; none starves and none mixes.
func TestConcurrentStreams(t *testing.T) {
	t.Parallel()
	cc, _ := client(t, func(st *http2.Stream) {
		h := sha256.New()
		if _, err := io.Copy(h, st); err == nil {
			_, _ = st.Write(h.Sum(nil))
			_, _ = io.Copy(st, strings.NewReader(strings.Repeat(st.Path(), 20000)))
		}
	})
	var all sync.WaitGroup
	for i := range 150 {
		all.Go(func() {
			path := fmt.Sprintf("/%03d", i)
			in := strings.Repeat(path, 20000)
			resp, err := post(t.Context(), cc, path, strings.NewReader(in))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			sum := sha256.Sum256([]byte(in))
			if want := append(sum[:], strings.Repeat(path, 20000)...); err != nil || !bytes.Equal(got, want) {
				t.Errorf("stream %s: %d bytes, %v", path, len(got), err)
			}
		})
	}
	all.Wait()
}

func TestClientGivesUp(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	cc, _ := client(t, func(st *http2.Stream) {
		if st.Path() == "/echo" {
			echo(st)
			return
		}
		_, _ = st.Write([]byte("begun"))
		<-st.Done()
		_, err := st.Write([]byte("more"))
		ended <- err
	})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := post(ctx, cc, "/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = resp.Body.Close()
	if err := <-ended; !errors.Is(err, http2.ErrReset) {
		t.Errorf("write after the client gave up: %v", err)
	}
	resp, err = post(t.Context(), cc, "/echo", strings.NewReader("alive"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); string(got) != "alive" {
		t.Errorf("the connection did not survive: %q, %v", got, err)
	}
}

// A handler that does not read its input gets the response out, and the input
// that is still on its way harms nobody.
func TestUnreadInput(t *testing.T) {
	t.Parallel()
	cc, _ := client(t, func(st *http2.Stream) { _, _ = io.WriteString(st, "no") })
	for range 100 { // many times the connection's window, if it were not returned
		resp, err := post(t.Context(), cc, "/", bytes.NewReader(make([]byte, 300<<10)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(got) != "no" {
			t.Fatalf("got %q, %v", got, err)
		}
	}
}

func TestCloseEndsStreams(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 2)
	started := make(chan struct{}, 2)
	checked := make(chan struct{})
	cc, c := client(t, func(st *http2.Stream) {
		started <- struct{}{}
		if st.Path() == "/read" {
			_, err := io.Copy(io.Discard, st)
			ended <- err
			return
		}
		for {
			if _, err := st.Write(make([]byte, 1<<16)); err != nil {
				ended <- err
				return
			}
		}
	})
	block, unblock := io.Pipe()
	defer unblock.Close()
	var clients sync.WaitGroup
	for path, body := range map[string]io.Reader{"/read": block, "/write": http.NoBody} {
		clients.Go(func() {
			if resp, err := post(t.Context(), cc, path, body); err == nil {
				<-checked // without reading: the writer has to block
				_ = resp.Body.Close()
			}
		})
	}
	<-started
	<-started
	why := errors.New("why")
	c.Close(why)
	for range 2 {
		if err := <-ended; !errors.Is(err, why) {
			t.Errorf("stream ended with %v", err)
		}
	}
	close(checked)
	_ = unblock.Close()
	clients.Wait()
	if _, ok := c.Take(nil); ok {
		t.Error("a closed connection has output")
	}
}

// What breaks the protocol ends the connection, and never the program.
func TestBrokenProtocol(t *testing.T) {
	t.Parallel()
	data := func(n int) []byte {
		b := []byte{byte(n >> 16), byte(n >> 8), byte(n), 0, 0, 0, 0, 0, 1}
		return append(b, make([]byte, n)...)
	}
	open := http2.AppendRequest(nil, 1, "/", nil)
	open[4] = 4
	open = open[:len(open)-9] // without the empty DATA that ends it
	overrun := bytes.Clone(open)
	for range 65 {
		overrun = append(overrun, data(16384)...)
	}
	for name, stream := range map[string][]byte{
		"frame too long":             {0, 0x40, 1, 1, 0, 0, 0, 0, 1},
		"frame of data too long":     {4, 0, 1, 0, 0, 0, 0, 0, 1},
		"even stream":                http2.AppendRequest(nil, 2, "/", nil),
		"continuation without start": {0, 0, 0, 9, 4, 0, 0, 0, 1},
		"data within headers":        {0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1},
		"padding longer than frame":  {0, 0, 1, 0, 8, 0, 0, 0, 1, 9},
		"priority cut short":         {0, 0, 1, 1, 0x24, 0, 0, 0, 1, 9},
		"settings cut short":         {0, 0, 1, 4, 0, 0, 0, 0, 0, 9},
		"initial window too large":   {0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff},
		"window update cut short":    {0, 0, 1, 8, 0, 0, 0, 0, 0, 9},
		"window overflow":            {0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff},
		"ping cut short":             {0, 0, 1, 6, 0, 0, 0, 0, 0, 9},
		"bad header block":           {0, 0, 1, 1, 4, 0, 0, 0, 1, 0xff},
		"stream window overrun":      overrun,
		"output that nobody reads":   bytes.Repeat([]byte{0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, 70000),
	} {
		release := make(chan struct{})
		c := http2.NewConn(func(*http2.Stream) { <-release })
		err := c.Feed(stream)
		if name == "output that nobody reads" {
			_, ok := c.Take(nil)
			if ok {
				t.Errorf("%s: still open", name)
			}
		} else if !errors.Is(err, http2.ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
		close(release)
		c.Close(http2.ErrClosed)
	}
}

func TestTooManyStreams(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	c := http2.NewConn(func(*http2.Stream) { <-release })
	defer c.Close(http2.ErrClosed)
	defer close(release)
	if _, ok := c.Take(nil); !ok {
		t.Fatal("no settings")
	}
	for i := range 1025 {
		if err := c.Feed(http2.AppendRequest(nil, uint32(2*i+1), "/", nil)); err != nil {
			t.Fatal(err)
		}
	}
	refused := []byte{0, 0, 4, 3, 0, 0, 0, 8, 1, 0, 0, 0, 7} // RST_STREAM of 2049, REFUSED_STREAM
	if out, ok := c.Take(nil); !ok || !bytes.Equal(out, refused) {
		t.Errorf("the 1025th stream got %v, %v", out, ok)
	}
}

// FuzzFeed feeds arbitrary bytes, cut anywhere, while everything that a session
// does goes on.
func FuzzFeed(f *testing.F) {
	settings := []byte{0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0}
	f.Add(append(settings, http2.AppendRequest(nil, 1, "/exec", []byte("body"))...), uint8(3))
	f.Add(http2.AppendRequest(http2.AppendRequest(nil, 1, "/", nil), 3, "/", []byte{1}), uint8(255))
	f.Add([]byte{0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8}, uint8(0))
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		c := http2.NewConn(echo)
		var written sync.WaitGroup
		written.Go(func() {
			for b, ok := c.Take(nil); ok; b, ok = c.Take(b) {
			}
		})
		for len(stream) > 0 {
			n := min(len(stream), int(size)+1)
			if c.Feed(stream[:n]) != nil {
				break
			}
			stream = stream[n:]
		}
		c.Close(http2.ErrClosed)
		written.Wait()
	})
}
