package guest

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"

	"github.com/pandovm/pando/internal/link"
)

// pipeOf returns a connection on which p arrives, in one piece or many.
func pipeOf(p []byte, size int) net.Conn {
	near, far := net.Pipe()
	go func() {
		for len(p) > 0 {
			n := min(len(p), size)
			if _, err := far.Write(p[:n]); err != nil {
				break
			}
			p = p[n:]
		}
		_ = far.Close()
	}()
	return near
}

// FuzzConfirmation has a guest answer the preamble with arbitrary bytes.
func FuzzConfirmation(f *testing.F) {
	nonce := link.FreshToken()
	body, _ := link.Confirmation{Number: 1, AgentVersion: "1", Reseeded: true}.MarshalBinary()
	message, _ := link.AppendMessage([]byte("stale"), nonce, body)
	f.Add(append(message, "rest"...), uint16(3))
	f.Add(message[:len(message)-1], uint16(1000))
	f.Add(append(nonce[:], 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4), uint16(1))
	f.Fuzz(func(t *testing.T, stream []byte, size uint16) {
		conn := pipeOf(stream, int(size)+1)
		defer conn.Close()
		_, rest, err := awaitConfirmation(conn, nonce)
		if err == nil && !bytes.Contains(stream, nonce[:]) {
			t.Fatal("confirmed without the nonce")
		}
		if !bytes.Contains(stream, rest) {
			t.Fatal("what follows the confirmation is not what was sent")
		}
	})
}

// FuzzExchange has an agent answer an order with arbitrary bytes.
func FuzzExchange(f *testing.F) {
	exit, _ := link.Exit{StdoutBytes: 3}.MarshalBinary()
	f.Add(link.AppendFrame(link.AppendFrame(nil, link.FrameStdout, []byte("abc")), link.FrameExit, exit))
	f.Add(link.AppendFrame(nil, link.FrameRefused, nil))
	f.Add([]byte{17, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, stream []byte) {
		e := execAnswer{limit: 8}
		err := e.read(link.NewFrameReader(io.MultiReader(bytes.NewReader(stream))))
		r := e.result
		if len(r.Stdout) > e.limit || len(r.Stderr) > e.limit {
			t.Fatal("took more output than asked for")
		}
		if err == nil && e.refusal == nil && (r.StdoutBytes < int64(len(r.Stdout)) || r.ExitCode == nil != r.TimedOut) {
			t.Fatalf("inconsistent result %+v", r)
		}
	})
}

// FuzzFollow has an agent answer a follower with arbitrary bytes.
func FuzzFollow(f *testing.F) {
	info, _ := link.Info{ID: "exec-1", State: link.ExecExited}.MarshalBinary()
	good := link.AppendOutput(link.AppendFrame(nil, link.FrameInfo, info), link.Output{Stream: 1, Seq: 1, Data: []byte("hello")})
	f.Add(link.AppendFrame(good, link.FrameInfo, info))
	f.Add(link.AppendOutput(good, link.Output{Stream: 2, Seq: 1, Data: []byte("x")}))
	f.Add(link.AppendFrame(nil, link.FrameRefused, nil))
	f.Fuzz(func(t *testing.T, stream []byte) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := &Link{conn: &watchedConn{done: make(chan struct{})}}
		e := &exchange{l: l, what: "exec/output", ctx: ctx, cancel: cancel, stop: func() {}, body: io.NopCloser(bytes.NewReader(stream))}
		out, err := newOutput(e, "exec-1", true, func(r link.Refusal) error { return declined("exec-1", r) })
		if err != nil {
			return
		}
		var seq int64
		for {
			ev, err := out.Next()
			if err != nil {
				return
			}
			if ev.Chunk != nil {
				if ev.Chunk.Seq <= seq || ev.Chunk.Offset < 0 {
					t.Fatalf("piece %d at %d after %d", ev.Chunk.Seq, ev.Chunk.Offset, seq)
				}
				seq = ev.Chunk.Seq
			}
		}
	})
}

// FuzzTerminal has an agent answer a viewer with arbitrary bytes.
func FuzzTerminal(f *testing.F) {
	session, _ := link.TerminalSession{ID: 1, Slug: "s", User: "u", Cols: 80, Rows: 24}.MarshalBinary()
	greeting := link.AppendFrame(nil, link.FrameTerminalSession, session)
	f.Add(link.AppendCount(link.AppendFrame(greeting, link.FrameTerminalOutput, []byte("hello")), link.FrameTerminalExit, 3))
	f.Add(link.AppendFrame(link.AppendCount(greeting, link.FrameTerminalTaken, 1<<31), link.FrameTerminalError, []byte("\x1b[2J")))
	f.Add(link.AppendFrame(nil, link.FrameRefused, nil))
	f.Fuzz(func(t *testing.T, stream []byte) {
		ctx, cancel := context.WithCancel(t.Context())
		x := &exchange{
			l: &Link{conn: &watchedConn{done: make(chan struct{})}}, what: "terminal/open", ctx: ctx, cancel: cancel,
			stop: func() {}, body: io.NopCloser(bytes.NewReader(stream)),
		}
		body, send := io.Pipe()
		go func() { _, _ = io.Copy(io.Discard, body) }() // ends with Close
		term := &Terminal{x: x, frames: link.NewFrameReader(x.body), body: send}
		term.room.L = &term.mu
		defer term.Close()
		if term.greet("u") != nil {
			return
		}
		if s := term.Session; s.ID < 1 || s.Cols < 1 || s.Cols > link.MaxTerminalCols || s.Rows < 1 || s.Rows > link.MaxTerminalRows {
			t.Fatalf("session %+v", s)
		}
		for {
			e, err := term.Next()
			if err != nil {
				return
			}
			if e.ExitCode < 0 || e.ExitCode > 255 || term.waiting < 0 || bytes.ContainsRune([]byte(e.Message), 0x1b) {
				t.Fatalf("event %+v, waiting %d", e, term.waiting)
			}
		}
	})
}
