package guest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/link"
)

// hostile listens like a guest and has play take each host that connects.
func hostile(t *testing.T, play func(net.Conn)) (sock string) {
	t.Helper()
	sock = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	var playing sync.WaitGroup
	playing.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			playing.Go(func() {
				defer conn.Close()
				play(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		playing.Wait()
	})
	return sock
}

// readEpoch returns the epoch that a host sends.
func readEpoch(conn net.Conn) (link.Epoch, error) {
	var e link.Epoch
	head := make([]byte, link.TokenSize+8)
	if _, err := io.ReadFull(conn, head); err != nil {
		return e, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head[link.TokenSize:]))
	if _, err := io.ReadFull(conn, body); err != nil {
		return e, err
	}
	return e, e.UnmarshalBinary(body)
}

// good is what an honest guest confirms.
func good(e link.Epoch) link.Confirmation {
	return link.Confirmation{
		Number: e.Number, AgentVersion: "1", KernelRelease: "6", Reseeded: true, ClockSet: true, IdentitySet: true,
		ClockUnixNs: time.Now().UnixNano(),
	}
}

func confirmation(e link.Epoch, c link.Confirmation) []byte {
	body, _ := c.MarshalBinary()
	b, _ := link.AppendMessage(nil, e.ReplyNonce, body)
	return b
}

// afterEpoch returns a play that answers a host's epoch and keeps the connection
// until the host leaves.
func afterEpoch(answer func(link.Epoch) []byte) func(net.Conn) {
	return func(conn net.Conn) {
		e, err := readEpoch(conn)
		if err != nil {
			return
		}
		if _, err := conn.Write(answer(e)); err == nil {
			_, _ = io.Copy(io.Discard, conn)
		}
	}
}

func TestHostileConfirmations(t *testing.T) {
	t.Parallel()
	spoiled := func(spoil func(*link.Confirmation)) func(link.Epoch) []byte {
		return func(e link.Epoch) []byte {
			c := good(e)
			spoil(&c)
			return confirmation(e, c)
		}
	}
	head := func(tail ...byte) func(link.Epoch) []byte {
		return func(e link.Epoch) []byte { return append(e.ReplyNonce[:], tail...) }
	}
	for name, answer := range map[string]func(link.Epoch) []byte{
		"too long":           head(0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0),
		"one byte too long":  head(0, 1, 0, 1, 0, 0, 0, 0),
		"wrong checksum":     head(0, 0, 0, 1, 0, 0, 0, 0, 0),
		"garbage":            func(e link.Epoch) []byte { b, _ := link.AppendMessage(nil, e.ReplyNonce, []byte("garbage")); return b },
		"empty":              func(e link.Epoch) []byte { b, _ := link.AppendMessage(nil, e.ReplyNonce, nil); return b },
		"error":              spoiled(func(c *link.Confirmation) { c.Error = "\x1b[2Jno" }),
		"other epoch":        spoiled(func(c *link.Confirmation) { c.Number++ }),
		"not reseeded":       spoiled(func(c *link.Confirmation) { c.Reseeded = false }),
		"clock not set":      spoiled(func(c *link.Confirmation) { c.ClockSet = false }),
		"no identity":        spoiled(func(c *link.Confirmation) { c.IdentitySet = false }),
		"version of control": spoiled(func(c *link.Confirmation) { c.AgentVersion = "\x1b]0;x\a" }),
		"endless version":    spoiled(func(c *link.Confirmation) { c.KernelRelease = strings.Repeat("6", 1000) }),
	} {
		e := epoch(7)
		e.Identity = &link.Identity{Hostname: "h"}
		l, _, err := guest.Dial(t.Context(), hostile(t, afterEpoch(answer)), link.FreshToken(), e)
		if err == nil {
			_ = l.Close()
			t.Errorf("%s: accepted", name)
			continue
		}
		wantUnconfirmed(t, err)
		if strings.ContainsAny(err.Error(), "\x1b\a") {
			t.Errorf("%s: the guest's control characters are in %q", name, err)
		}
	}
}

func TestHostileSilence(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(link.Epoch) []byte{
		"nothing": func(link.Epoch) []byte { return nil },
		"other nonce": func(link.Epoch) []byte {
			return confirmation(link.Epoch{ReplyNonce: link.NewToken()}, link.Confirmation{})
		},
		"half a nonce": func(e link.Epoch) []byte { return e.ReplyNonce[:8] },
		"cut short":    func(e link.Epoch) []byte { b := confirmation(e, good(e)); return b[:len(b)-1] },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, _, err := guest.Dial(ctx, hostile(t, afterEpoch(answer)), link.FreshToken(), epoch(1))
		cancel()
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		wantUnconfirmed(t, err)
	}
}

func TestHostileHangUp(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(link.Epoch) []byte{
		"before":   func(link.Epoch) []byte { return nil },
		"in nonce": func(e link.Epoch) []byte { return e.ReplyNonce[:8] },
		"in body":  func(e link.Epoch) []byte { b := confirmation(e, good(e)); return b[:len(b)-1] },
	} {
		sock := hostile(t, func(conn net.Conn) {
			if e, err := readEpoch(conn); err == nil {
				_, _ = conn.Write(answer(e))
			}
		})
		_, _, err := guest.Dial(t.Context(), sock, link.FreshToken(), epoch(1))
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		wantUnconfirmed(t, err)
	}
}

// A guest that talks without end is given up, whoever waits for how long.
func TestHostileNoise(t *testing.T) {
	t.Parallel()
	sock := hostile(t, func(conn net.Conn) {
		noise := bytes.Repeat([]byte("noise"), 1<<16)
		for {
			if _, err := conn.Write(noise); err != nil {
				return
			}
		}
	})
	_, _, err := guest.Dial(t.Context(), sock, link.FreshToken(), epoch(1))
	wantUnconfirmed(t, err)
}

// impostor is a guest that confirms its epoch and then answers each request
// with what answer writes.
func impostor(t *testing.T, answer http2.Handler) *guest.Link {
	t.Helper()
	sock := hostile(t, func(conn net.Conn) {
		e, err := readEpoch(conn)
		if err != nil {
			return
		}
		if _, err := conn.Write(confirmation(e, good(e))); err != nil {
			return
		}
		preface := make([]byte, len(http2.Preface))
		if _, err := io.ReadFull(conn, preface); err != nil {
			return
		}
		c := http2.NewConn(answer)
		var writing sync.WaitGroup
		writing.Go(func() {
			for b, ok := c.Take(nil); ok; b, ok = c.Take(nil) {
				_, _ = conn.Write(b)
			}
		})
		buf := make([]byte, 1<<15)
		for {
			n, err := conn.Read(buf)
			if c.Feed(buf[:n]) != nil || err != nil {
				break
			}
		}
		c.Close(http2.ErrClosed)
		writing.Wait()
	})
	return dial(t, sock, link.FreshToken(), epoch(1))
}

func wantNonResponsive(t *testing.T, name string, err error) {
	t.Helper()
	if f := fault.As(err); f == nil || f.Code != api.CodeVMNonResponsive || f.Remedy == "" {
		t.Errorf("%s: %v, want VM_NON_RESPONSIVE with a remedy", name, err)
	}
}

func TestHostileExecAnswers(t *testing.T) {
	t.Parallel()
	exit := func(x link.Exit) []byte {
		body, _ := x.MarshalBinary()
		return link.AppendFrame(nil, link.FrameExit, body)
	}
	stdout := func(n int) []byte { return link.AppendFrame(nil, link.FrameStdout, make([]byte, n)) }
	for name, answer := range map[string][]byte{
		"nothing":                 nil,
		"no exit":                 stdout(10),
		"frame cut short":         stdout(10)[:8],
		"frame head cut short":    stdout(10)[:3],
		"frame too long":          {byte(link.FrameStdout), 0xff, 0xff, 0xff, 0xff},
		"garbage":                 []byte("HTTP/1.1 200 OK\r\n\r\n"),
		"more output than asked":  append(stdout(1001), exit(link.Exit{StdoutBytes: 1001})...),
		"in two frames":           append(append(stdout(600), stdout(600)...), exit(link.Exit{StdoutBytes: 1200})...),
		"less than its length":    append(stdout(10), exit(link.Exit{StdoutBytes: 9})...),
		"cut without need":        append(stdout(10), exit(link.Exit{StdoutBytes: 11})...),
		"negative length":         exit(link.Exit{StderrBytes: -1}),
		"status out of range":     exit(link.Exit{Code: 256}),
		"negative status":         exit(link.Exit{Code: -1}),
		"garbage in exit":         link.AppendFrame(nil, link.FrameExit, []byte{1, 2, 3}),
		"garbage in refusal":      link.AppendFrame(nil, link.FrameRefused, []byte{1, 2, 3}),
		"unknown frames, no exit": bytes.Repeat(link.AppendFrame(nil, 99, make([]byte, 1000)), 100),
	} {
		l := impostor(t, func(st *http2.Stream) { _, _ = st.Write(answer) })
		_, err := l.Exec(t.Context(), guest.ExecOrder{Command: "true", MaxOutput: 1000, Timeout: time.Minute})
		wantNonResponsive(t, name, err)
	}
}

func TestUnknownFramesAreSkipped(t *testing.T) {
	t.Parallel()
	body, _ := link.Exit{Code: 3}.MarshalBinary()
	l := impostor(t, func(st *http2.Stream) {
		_, _ = st.Write(link.AppendFrame(nil, 99, []byte("from the future")))
		_, _ = st.Write(link.AppendFrame(nil, link.FrameExit, body))
	})
	if r := mustExec(t, l, guest.ExecOrder{Command: "true"}); *r.ExitCode != 3 {
		t.Errorf("status %d", *r.ExitCode)
	}
}

func TestHostileReplies(t *testing.T) {
	t.Parallel()
	reply := func(r link.Reply) []byte {
		body, _ := r.MarshalBinary()
		return link.AppendFrame(nil, link.FrameReply, body)
	}
	for name, answer := range map[string][]byte{
		"nothing": nil,
		"garbage": link.AppendFrame(nil, link.FrameReply, []byte{9}),
	} {
		l := impostor(t, func(st *http2.Stream) { _, _ = st.Write(answer) })
		wantNonResponsive(t, name, l.Sync(t.Context()))
	}
	l := impostor(t, func(st *http2.Stream) {
		_, _ = st.Write(reply(link.Reply{Error: "\x1b[2J" + strings.Repeat("x", 10000)}))
	})
	if err := l.Sync(t.Context()); err == nil || len(err.Error()) > 1000 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("a hostile error came through as %q", err)
	}
}

// A guest that breaks HTTP/2 itself ends its link and nothing else.
func TestHostileSession(t *testing.T) {
	t.Parallel()
	for name, tail := range map[string][]byte{
		"garbage":   []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"goaway":    {0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"bad frame": {0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1},
	} {
		sock := hostile(t, afterEpoch(func(e link.Epoch) []byte { return append(confirmation(e, good(e)), tail...) }))
		l, _, err := guest.Dial(t.Context(), sock, link.FreshToken(), epoch(1))
		if err != nil {
			continue // noticed at once: as good
		}
		_, err = l.Exec(t.Context(), guest.ExecOrder{Command: "true"})
		wantNonResponsive(t, name, err)
		_ = l.Close()
	}
}

func TestExecOfAGuestThatNeverAnswers(t *testing.T) {
	t.Parallel()
	l := impostor(t, func(st *http2.Stream) { <-st.Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Exec(ctx, guest.ExecOrder{Command: "true"}); fault.As(err) != nil || err == nil {
		t.Errorf("exec ended with %v, want the end of its context", err)
	}
}
