package agent

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/link"
)

// FuzzIntake feeds arbitrary bytes, cut anywhere, to an agent's end of the port,
// and then a preamble: whatever came before, it is understood.
func FuzzIntake(f *testing.F) {
	script, err := rehearsalScript()
	if err != nil {
		f.Fatal(err)
	}
	fresh := link.FreshToken()
	f.Add(script[:len(script)-100], uint16(7))
	f.Add(append(fresh[:], 0, 0, 0, 9, 1, 2, 3, 4, 5), uint16(0))
	f.Add(append(fresh[:], fresh[:9]...), uint16(1000))
	f.Add([]byte(http2.Preface), uint16(3))
	f.Fuzz(func(t *testing.T, stream []byte, size uint16) {
		r := &rehearsal{ended: make(chan struct{})}
		s := New(Config{Port: r, System: r, Log: slog.New(slog.DiscardHandler)})
		s.handle = func(*http2.Stream) {}
		for p := stream; len(p) > 0; {
			n := min(len(p), int(size)+1)
			s.intake.take(p[:n])
			p = p[n:]
		}
		s.intake.hangup()
		s.restart()
		e := link.Epoch{Number: 5, ReplyNonce: link.NewToken(), NextToken: link.NewToken()}
		body, _ := e.MarshalBinary()
		message, err := link.AppendMessage(nil, link.FreshToken(), body)
		if err != nil {
			t.Fatal(err)
		}
		s.intake.take(message)
		if s.intake.state != confirmed || s.session == nil || s.intake.next != e.NextToken {
			t.Fatalf("the epoch was not taken: state %d", s.intake.state)
		}
		s.intake.take([]byte(http2.Preface))
		if s.intake.state != established {
			t.Fatalf("the session was not established: state %d", s.intake.state)
		}
		s.restart()
		r.mu.Lock()
		defer r.mu.Unlock()
		if !bytes.Contains(r.written, e.ReplyNonce[:]) {
			t.Fatal("the epoch was not confirmed")
		}
	})
}
