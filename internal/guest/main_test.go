package guest_test

import (
	"io"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/guest/guesttest"
	"github.com/pandovm/pando/internal/link"
)

func TestMain(m *testing.M) {
	// What this process has inherited is not for the commands of its guests.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// epoch returns an epoch with a fresh NextToken.
func epoch(number int64) link.Epoch {
	return link.Epoch{Number: number, VMID: "vm-test", NextToken: link.NewToken()}
}

// dial opens epoch e with token and closes the link when the test ends.
func dial(t *testing.T, sock string, token link.Token, e link.Epoch) *guest.Link {
	t.Helper()
	l, _, err := guest.Dial(t.Context(), sock, token, e)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// start starts a guest and opens its first epoch.
func start(t *testing.T, options ...guesttest.Option) *guest.Link {
	t.Helper()
	return dial(t, guesttest.Start(t, options...).Socket, link.FreshToken(), epoch(1))
}

func mustExec(t *testing.T, l *guest.Link, o guest.ExecOrder) guest.ExecResult {
	t.Helper()
	r, err := l.Exec(t.Context(), o)
	if err != nil {
		t.Fatalf("exec %.80q: %v", o.Command, err)
	}
	return r
}

// wire stands between hosts and a guest. The guest sees one stream that never
// ends while hosts come and go: what a VM sees that was saved with a host
// connected and is restored with another. Bytes arrive in the guest cut at
// random.
type wire struct {
	sock  string
	guest net.Conn

	mu   sync.Mutex
	host net.Conn
}

func newWire(t *testing.T, g *guesttest.Guest) *wire {
	t.Helper()
	var d net.Dialer
	upstream, err := d.DialContext(t.Context(), "unix", g.Socket)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{sock: filepath.Join(filepath.Dir(g.Socket), "wire.sock"), guest: upstream}
	l, err := net.Listen("unix", w.sock)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { w.accept(l) })
	running.Go(w.answers)
	t.Cleanup(func() {
		_ = l.Close()
		_ = upstream.Close()
		w.leave()
		running.Wait()
	})
	return w
}

func (w *wire) accept(l net.Listener) {
	for {
		host, err := l.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		w.host = host
		w.mu.Unlock()
		w.orders(host)
	}
}

// orders carries the host's bytes until it leaves.
func (w *wire) orders(host net.Conn) {
	buf := make([]byte, 9000)
	for {
		n, err := host.Read(buf)
		for p := buf[:n]; len(p) > 0; {
			cut := min(len(p), 1+rand.IntN(40))
			if rand.IntN(3) == 0 {
				cut = len(p)
			}
			if _, err := w.guest.Write(p[:cut]); err != nil {
				return
			}
			p = p[cut:]
		}
		if err != nil {
			return
		}
	}
}

// answers carries the guest's bytes to whatever host is there.
func (w *wire) answers() {
	buf := make([]byte, 9000)
	for {
		n, err := w.guest.Read(buf)
		w.mu.Lock()
		if w.host != nil {
			_, _ = w.host.Write(buf[:n])
		}
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// leave disconnects the host without the guest noticing.
func (w *wire) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.host != nil {
		_ = w.host.Close()
	}
}

// raw connects to sock as a host that does as it likes.
func raw(t *testing.T, sock string) net.Conn {
	t.Helper()
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// preamble returns what a host sends to open e.
func preamble(t *testing.T, token link.Token, e link.Epoch) []byte {
	t.Helper()
	if e.ReplyNonce.IsZero() {
		e.ReplyNonce = link.NewToken()
	}
	e.Entropy = make([]byte, 64)
	body, err := e.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	b, err := link.AppendMessage(nil, token, body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func send(t *testing.T, w io.Writer, p []byte) {
	t.Helper()
	if _, err := w.Write(p); err != nil {
		t.Fatal(err)
	}
}
