package guest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/guest/guesttest"
	"github.com/pandovm/pando/internal/link"
)

// wantAlive checks that commands run on l.
func wantAlive(t *testing.T, l *guest.Link) {
	t.Helper()
	if r := mustExec(t, l, guest.ExecOrder{Command: "echo alive"}); string(r.Stdout) != "alive\n" {
		t.Errorf("printed %q", r.Stdout)
	}
}

// refuses checks that the guest does not confirm an epoch opened with token.
func refuses(t *testing.T, sock string, token link.Token) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	l, _, err := guest.Dial(ctx, sock, token, epoch(666))
	if err == nil {
		_ = l.Close()
		t.Error("the guest confirmed an epoch opened with the wrong token")
	}
}

func TestEpochsInARow(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t)
	token := link.FreshToken()
	for n := range int64(5) {
		e := epoch(n)
		l := dial(t, g.Socket, token, e)
		wantAlive(t, l)
		_ = l.Close()
		// After a hang-up the fresh token is as good as the secret one.
		if token = e.NextToken; n%2 == 1 {
			token = link.FreshToken()
		}
	}
}

// The guest was saved while it talked to one host, and wakes up to another.
func TestEpochsOnOneStream(t *testing.T) {
	t.Parallel()
	w := newWire(t, guesttest.Start(t))
	token := link.FreshToken()
	for n := range int64(20) {
		e := epoch(n)
		l, c, err := guest.Dial(t.Context(), w.sock, token, e)
		if err != nil || c.Number != n {
			t.Fatalf("epoch %d: %v, confirmed %d", n, err, c.Number)
		}
		wantAlive(t, l)
		w.leave()
		<-l.Done()
		_ = l.Close()
		token = e.NextToken
	}
}

func TestFreshTokenIsNoGoodWithinASession(t *testing.T) {
	t.Parallel()
	w := newWire(t, guesttest.Start(t))
	e := epoch(1)
	l := dial(t, w.sock, link.FreshToken(), e)
	wantAlive(t, l)
	w.leave()
	refuses(t, w.sock, link.FreshToken())
	refuses(t, w.sock, link.NewToken())
	wantAlive(t, dial(t, w.sock, e.NextToken, epoch(2)))
}

// A host leaves while megabytes are on their way in both directions.
func TestRestartInMidTransfer(t *testing.T) {
	t.Parallel()
	w := newWire(t, guesttest.Start(t))
	token := link.FreshToken()
	for n := range int64(10) {
		e := epoch(n)
		l := dial(t, w.sock, token, e)
		out, in := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := l.Exec(t.Context(), guest.ExecOrder{Command: "head -c 20000000 /dev/zero", MaxOutput: 64 << 20})
			out <- err
		}()
		go func() {
			_, err := l.Exec(t.Context(), guest.ExecOrder{Command: "cat", Stdin: make([]byte, 15<<20)})
			in <- err
		}()
		if n%2 == 0 {
			wantAlive(t, l) // both have begun, most likely
		}
		w.leave()
		for _, err := range []error{<-out, <-in} {
			if f := fault.As(err); err != nil && f == nil {
				t.Errorf("a transfer that was cut off ended with %v", err)
			}
		}
		token = e.NextToken
	}
	wantAlive(t, dial(t, w.sock, token, epoch(99)))
}

// The bytes of the old session end anywhere, the new preamble begins there.
func TestPreambleInMidFrame(t *testing.T) {
	t.Parallel()
	w := newWire(t, guesttest.Start(t))
	token := link.FreshToken()
	request := http2.AppendRequest([]byte(http2.Preface), 1, link.PathExec,
		link.AppendFrame(nil, link.FrameOrder, bytes.Repeat([]byte{7}, 3000)))
	for n := 0; n < len(request); n += 1 + n/20 {
		e := epoch(int64(n))
		old := raw(t, w.sock)
		send(t, old, append(preamble(t, token, e), request[:n]...))
		_ = old.Close()
		next := epoch(int64(n))
		// The old host may not have got as far as to see its confirmation: the token
		// that it used is still good, as is the one that it ordered.
		if n == 0 || n%2 == 1 {
			token = e.NextToken
		}
		l := dial(t, w.sock, token, next)
		wantAlive(t, l)
		w.leave()
		token = next.NextToken
	}
}

func TestTokenOfTheLastAttemptStaysGood(t *testing.T) {
	t.Parallel()
	w := newWire(t, guesttest.Start(t))
	first := epoch(1)
	wantAlive(t, dial(t, w.sock, link.FreshToken(), first))
	w.leave()
	// An attempt whose confirmation nobody saw, and whose host forgot what it ordered.
	for range 3 {
		lost := raw(t, w.sock)
		send(t, lost, preamble(t, first.NextToken, epoch(2)))
		_ = lost.Close()
	}
	third := epoch(3)
	wantAlive(t, dial(t, w.sock, first.NextToken, third))
	w.leave()
	// The very same epoch may be sent again as well.
	wantAlive(t, dial(t, w.sock, first.NextToken, third))
}

func TestPreambleCutShort(t *testing.T) {
	t.Parallel()
	w := newWire(t, guesttest.Start(t))
	e := epoch(1)
	e.Identity = &link.Identity{Hostname: "cut"}
	whole := preamble(t, link.FreshToken(), e)
	for cut := 1; cut < len(whole); cut += 3 {
		host := raw(t, w.sock)
		send(t, host, whole[:cut])
		_ = host.Close()
	}
	l := dial(t, w.sock, link.FreshToken(), epoch(2))
	wantAlive(t, l)
}

func TestMalformedPreambles(t *testing.T) {
	t.Parallel()
	w := newWire(t, guesttest.Start(t))
	fresh := link.FreshToken()
	noise := make([]byte, 100000)
	_, _ = rand.Read(noise)
	garbage, err := link.AppendMessage(nil, fresh, []byte("not a record"))
	if err != nil {
		t.Fatal(err)
	}
	noTokens, err := link.AppendMessage(nil, fresh, nil)
	if err != nil {
		t.Fatal(err)
	}
	changed := preamble(t, fresh, epoch(1))
	changed[len(changed)-1] ^= 1
	for _, bytes := range [][]byte{
		noise, garbage, noTokens, changed,
		append(fresh[:], 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0),
		append(preamble(t, fresh, epoch(1)), "GET / HTTP/1.1\r\n\r\n"...),
		append(preamble(t, fresh, epoch(1)), fresh[:15]...),
		append(preamble(t, fresh, epoch(1)), http2.Preface[:20]...),
	} {
		host := raw(t, w.sock)
		send(t, host, bytes)
		_ = host.Close()
	}
	wantAlive(t, dial(t, w.sock, fresh, epoch(2)))
}

// Whatever a user writes into a guest, it is content.
func TestTokensInPayloads(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t)
	w := newWire(t, g)
	e := epoch(1)
	l := dial(t, w.sock, link.FreshToken(), e)
	forged := preamble(t, link.FreshToken(), epoch(666))
	content := bytes.Repeat(append([]byte("some text"), forged...), 500)
	for range 10 {
		r := mustExec(t, l, guest.ExecOrder{Command: "cat", Stdin: content})
		if !bytes.Equal(r.Stdout, content) {
			t.Fatalf("%d bytes came back of %d, or others", len(r.Stdout), len(content))
		}
	}
	// The beginnings of the secret token are content as well, of every length.
	for n := range link.TokenSize {
		content := append(bytes.Repeat([]byte{'x'}, 20000), e.NextToken[:n]...)
		r := mustExec(t, l, guest.ExecOrder{Command: "cat", Stdin: content})
		if !bytes.Equal(r.Stdout, content) {
			t.Fatalf("content that ends in %d bytes of the token came back changed", n)
		}
	}
	if n := len(g.System.Entropy()); n != 1 {
		t.Errorf("the guest saw %d epochs, want 1", n)
	}
}

// A command does not notice that its host goes away.
func TestHostDisconnectsInMidExec(t *testing.T) {
	t.Parallel()
	for name, swap := range map[string]bool{"hang-up": false, "another host on the stream": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := guesttest.Start(t)
			sock, leave := g.Socket, func() {}
			if swap {
				w := newWire(t, g)
				sock, leave = w.sock, w.leave
			}
			dir := sharedDir(t)
			for _, name := range []string{"begun", "go"} {
				mustFifo(t, filepath.Join(dir, name))
			}
			e := epoch(1)
			l := dial(t, sock, link.FreshToken(), e)
			ended := make(chan error, 1)
			go func() {
				_, err := l.Exec(t.Context(), guest.ExecOrder{Command: fmt.Sprintf(
					"cd %s; echo x > begun; read _ < go; head -c 1000000 /dev/zero; echo $? > after", dir)})
				ended <- err
			}()
			if _, err := os.ReadFile(filepath.Join(dir, "begun")); err != nil {
				t.Fatal(err)
			}
			if leave(); !swap {
				_ = l.Close()
			}
			if err := <-ended; fault.As(err) == nil {
				t.Errorf("exec ended with %v", err)
			}
			wantAlive(t, dial(t, sock, e.NextToken, epoch(2)))
			if err := os.WriteFile(filepath.Join(dir, "go"), []byte("\n"), 0); err != nil {
				t.Fatal(err)
			}
			if got := eventually(t, filepath.Join(dir, "after")); got != "0\n" {
				t.Errorf("the command could not write: %s", got)
			}
		})
	}
}

// A timeout holds although nobody is there any more to be told.
func TestTimeoutWithoutAHost(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t)
	dir := sharedDir(t)
	mustFifo(t, filepath.Join(dir, "begun"))
	l := dial(t, g.Socket, link.FreshToken(), epoch(1))
	go func() {
		_, _ = l.Exec(t.Context(), guest.ExecOrder{
			Command: fmt.Sprintf("cd %s; trap 'echo x > killed; exit' TERM; echo x > begun; while :; do sleep 0.05; done", dir),
			Timeout: time.Second,
		})
	}()
	if _, err := os.ReadFile(filepath.Join(dir, "begun")); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	eventually(t, filepath.Join(dir, "killed"))
}

// A second host waits until the first has gone, as QEMU's chardev has it.
func TestSecondHostWaits(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t)
	first := dial(t, g.Socket, link.FreshToken(), epoch(1))
	refuses(t, g.Socket, link.FreshToken())
	wantAlive(t, first)
	_ = first.Close()
	wantAlive(t, dial(t, g.Socket, link.FreshToken(), epoch(2)))
}

// A host that sends its preamble and reads nothing must not keep the next one out.
func TestHostThatDoesNotRead(t *testing.T) {
	t.Parallel()
	w := newWire(t, guesttest.Start(t))
	var host net.Conn
	e := epoch(1)
	host = raw(t, w.sock)
	order, _ := link.Order{Command: "head -c 50000000 /dev/zero", MaxOutput: 64 << 20}.MarshalBinary()
	b := append(preamble(t, link.FreshToken(), e), http2.Preface...)
	b = append(b, 0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0, 0, 0)          // connection window
	b = append(b, 0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0, 0) // stream windows
	b = http2.AppendRequest(b, 1, link.PathExec, link.AppendFrame(nil, link.FrameOrder, order))
	send(t, host, b)
	buf := make([]byte, 1)
	if _, err := host.Read(buf); err != nil {
		t.Fatal(err)
	}
	_ = host.Close()
	wantAlive(t, dial(t, w.sock, e.NextToken, epoch(2)))
}
