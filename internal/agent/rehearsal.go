package agent

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/link"
)

// rehearsalTimeout bounds each command of a rehearsal.
const rehearsalTimeout = 10 * time.Second

// rehearse plays an epoch and two commands through a server like s whose system
// changes nothing. What that brings into memory (the shell, the allocator's
// lists, the types met at run time) is in the snapshot that is taken later, and
// need not be made in each VM that is restored from it.
func (s *Server) rehearse(ctx context.Context) {
	script, err := rehearsalScript()
	if err != nil {
		return
	}
	r := &rehearsal{script: script, ended: make(chan struct{})}
	double := New(Config{
		Port: r, System: r, Log: slog.New(slog.DiscardHandler), Version: s.version, Handlers: s.handlers,
	})
	_ = double.serve(ctx) // ends with the error by which Read says that the play is over
}

// rehearsalScript is what a host would send.
func rehearsalScript() ([]byte, error) {
	id := &link.Identity{Hostname: "rehearsal", MachineID: strings.Repeat("0", 32), BootID: strings.Repeat("0", 36)}
	for _, kind := range []string{"ed25519", "ecdsa"} {
		key := link.HostKey{Type: kind, Private: strings.Repeat("k", 480), Public: strings.Repeat("k", 170)}
		id.SSHHostKeys = append(id.SSHHostKeys, key)
	}
	e := link.Epoch{Identity: id, Entropy: make([]byte, 64), ReplyNonce: link.NewToken(), NextToken: link.NewToken()}
	epoch, _ := e.MarshalBinary()
	b, err := link.AppendMessage(nil, link.FreshToken(), epoch)
	if err != nil {
		return nil, err
	}
	b = append(b, http2.Preface...)
	order, _ := link.Order{Command: "true", Timeout: rehearsalTimeout, MaxOutput: 1 << 10}.MarshalBinary()
	order = link.AppendFrame(nil, link.FrameOrder, order)
	b = http2.AppendRequest(b, 1, link.PathExec, order)
	return http2.AppendRequest(b, lastRequest, link.PathExec, order), nil
}

// lastRequest is the stream of the script's last request.
const lastRequest = 3

// rehearsal is the port and the system of a rehearsal.
type rehearsal struct {
	script []byte
	ended  chan struct{} // closed when there is nothing more to wait for

	mu      sync.Mutex
	written []byte
	over    bool
}

// Read returns the script, then waits for the answers.
func (r *rehearsal) Read(p []byte) (int, error) {
	if len(r.script) == 0 {
		<-r.ended
		return 0, os.ErrClosed
	}
	n := copy(p, r.script)
	r.script = r.script[n:]
	return n, nil
}

// Write looks for the end of both responses.
func (r *rehearsal) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written = append(r.written, p...)
	if bytes.Contains(r.written, http2.EndOfResponse(1)) && bytes.Contains(r.written, http2.EndOfResponse(lastRequest)) {
		r.endLocked()
	}
	return len(p), nil
}

func (r *rehearsal) endLocked() {
	if !r.over {
		r.over = true
		close(r.ended)
	}
}

// Close implements Port.
func (r *rehearsal) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endLocked()
	return nil
}

// SetWriteDeadline implements Port.
func (r *rehearsal) SetWriteDeadline(time.Time) error { return nil }

// Now implements System.
func (r *rehearsal) Now() time.Time { return time.Now() }

// SetClock implements System.
func (r *rehearsal) SetClock(time.Time) error { return nil }

// Reseed implements System.
func (r *rehearsal) Reseed([]byte) error { return nil }

// SetIdentity implements System.
func (r *rehearsal) SetIdentity(*link.Identity) error { return nil }

// KernelRelease implements System.
func (r *rehearsal) KernelRelease() string { return new(Machine).KernelRelease() }

// Sync implements System.
func (r *rehearsal) Sync() {}

// Settled implements System.
func (r *rehearsal) Settled(context.Context) (bool, string, []string, error) {
	return true, "", nil, nil
}

// Poweroff implements System.
func (r *rehearsal) Poweroff(context.Context) error { return nil }
