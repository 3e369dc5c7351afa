package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/link"
)

// patience is how long a guest may take.
type patience struct {
	// silence is how long it may send nothing while a request waits before it is
	// asked whether it is still there, and ping how long it may take to say so.
	silence, ping time.Duration
	// outcome is how long after its timeout a command may still be without an
	// outcome: the agent needs a few seconds to kill what resists.
	outcome time.Duration
}

func usualPatience() patience {
	return patience{silence: 10 * time.Second, ping: 50 * time.Second, outcome: 30 * time.Second}
}

// errClosed is the cause of a link that was closed on this side.
var errClosed = errors.New("guest link closed")

// errSilent is the cause of a link whose guest did not answer a ping.
var errSilent = errors.New("guest is silent")

// Link is an open session with the agent of one VM. It is safe for concurrent
// use. A link that fails does so for good: Dial again.
type Link struct {
	conn     *watchedConn
	client   *http.ClientConn
	patience patience
}

func newLink(ctx context.Context, conn net.Conn, rest []byte) (*Link, error) {
	w := &watchedConn{Conn: conn, rest: rest, done: make(chan struct{})}
	w.heard()
	t := &http.Transport{
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return w, nil },
		Protocols:              new(http.Protocols),
		HTTP2:                  &http.HTTP2Config{StrictMaxConcurrentRequests: true, MaxReadFrameSize: 256 << 10},
		DisableCompression:     true,
		MaxResponseHeaderBytes: 16 << 10,
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	client, err := t.NewClientConn(ctx, "http", "vm:80")
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	return &Link{conn: w, client: client, patience: usualPatience()}, nil
}

// Done is closed when the link has ended, for whatever reason.
func (l *Link) Done() <-chan struct{} { return l.conn.done }

// Close ends the link. Commands in the guest go on. It is idempotent.
func (l *Link) Close() error {
	l.conn.fail(errClosed)
	return l.client.Close()
}

// Ping returns when the agent has answered.
func (l *Link) Ping(ctx context.Context) error {
	_, err := l.request(ctx, link.PathPing, nil)
	return err
}

// Sync returns when the guest has written all of its file systems out.
func (l *Link) Sync(ctx context.Context) error {
	_, err := l.request(ctx, link.PathSync, nil)
	return err
}

// Settlement is how far a guest has come in booting.
type Settlement struct {
	// Settled: all jobs of the boot are done, well or badly.
	Settled bool
	// State is the init system's own word: "starting", "running", "degraded".
	State string
	// Failed lists the units that failed.
	Failed []string
}

// Settled asks how far the guest has come. It answers at once if the guest has
// settled and otherwise after some seconds, so it can be called in a loop.
func (l *Link) Settled(ctx context.Context) (Settlement, error) {
	r, err := l.request(ctx, link.PathSettled, nil)
	if err != nil {
		return Settlement{}, err
	}
	return Settlement{Settled: r.Settled, State: r.State, Failed: r.Failed}, nil
}

// Poweroff orders the guest to shut down and returns when it has begun to; that
// it is down shows by QEMU's own word.
func (l *Link) Poweroff(ctx context.Context) error {
	_, err := l.request(ctx, link.PathPoweroff, nil)
	select {
	case <-l.Done():
		return nil // too fast to answer
	default:
		return err
	}
}

// request sends body and returns the reply.
func (l *Link) request(ctx context.Context, path string, body []byte) (link.Reply, error) {
	var r link.Reply
	err := l.roundTrip(ctx, path, body, func(frames *link.FrameReader) (err error) {
		r, err = readReply(frames)
		return err
	})
	if err != nil {
		return r, err
	}
	if r.Error == link.UnknownRequest {
		return r, unsupported("answer " + path[1:])
	}
	if r.Error != "" {
		return r, fmt.Errorf("guest %s: agent reports %.200q", path[1:], r.Error)
	}
	return r, nil
}

// readReply returns the reply in frames, whatever comes before it.
func readReply(frames *link.FrameReader) (r link.Reply, err error) {
	for {
		t, payload, err := frames.Next()
		if err != nil {
			return r, err
		}
		if t == link.FrameReply {
			return r, r.UnmarshalBinary(payload)
		}
	}
}

// roundTrip sends body and has read take the response.
func (l *Link) roundTrip(ctx context.Context, path string, body []byte, read func(*link.FrameReader) error) error {
	e, err := l.open(ctx, path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer e.Close()
	if err := read(link.NewFrameReader(e.body)); err != nil {
		return e.broken(err)
	}
	return nil
}

// exchange is a request under way: what the agent says can be read while the
// rest of the request's body is still being sent.
type exchange struct {
	l      *Link
	what   string
	ctx    context.Context //nolint:containedctx // it lives as long as the exchange
	cancel context.CancelFunc
	body   io.ReadCloser
	stop   func()
}

// open sends a request whose body is read from body as the agent takes it, and
// returns once the agent answers. The exchange ends with ctx, with the link, or
// when the guest no longer answers pings. The caller closes it.
func (l *Link) open(ctx context.Context, path string, body io.Reader) (*exchange, error) {
	e := &exchange{l: l, what: path[1:], stop: func() {}}
	e.ctx, e.cancel = context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(e.ctx, http.MethodPost, "http://vm"+path, body) //nolint:contextcheck // it is made of ctx
	if err != nil {
		e.cancel()
		return nil, fmt.Errorf("guest %s: %w", e.what, err)
	}
	req.Header["User-Agent"] = nil // what the agent does not read it need not decode
	if path != link.PathPing {
		e.stop = l.watch(e.ctx) //nolint:contextcheck // it is made of ctx
	}
	resp, err := l.client.RoundTrip(req) //nolint:bodyclose // Close of the exchange does
	if err != nil {
		err = l.lost(ctx, e.what, err)
		e.end()
		return nil, err
	}
	e.body = resp.Body
	if resp.StatusCode != http.StatusOK {
		err = l.lost(ctx, e.what, fmt.Errorf("status %d", resp.StatusCode))
		e.Close()
		return nil, err
	}
	return e, nil
}

func (e *exchange) end() {
	e.stop()
	e.cancel()
}

// Close ends the exchange; the agent sees it reset if it was not over.
func (e *exchange) Close() {
	e.end()
	_ = e.body.Close() // it is not read any more
}

// broken makes the error of an answer that could not be read to its end.
func (e *exchange) broken(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return e.l.lost(e.ctx, e.what, err)
}

// lost makes the error of a request that got no proper answer.
func (l *Link) lost(ctx context.Context, what string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("guest %s: %w", what, cause)
	}
	if cause := l.conn.cause(); cause != nil {
		err = errors.Join(cause, err)
	}
	f := &fault.Error{
		Code:    api.CodeVMNonResponsive,
		Message: "the guest stopped answering during " + what,
		Remedy:  "it may have done what was asked: look before you repeat it",
	}
	return f.With(err)
}

// watch asks the guest whether it is there whenever it has been silent for long,
// until stop is called, and ends the link if it is not.
func (l *Link) watch(ctx context.Context) (stop func()) {
	var timer *time.Timer
	var mu sync.Mutex
	stopped := false
	timer = time.AfterFunc(l.patience.silence, func() {
		err := l.checkAlive(ctx)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && !stopped {
			timer.Reset(l.patience.silence)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

func (l *Link) checkAlive(ctx context.Context) error {
	if l.conn.silentFor() < l.patience.silence {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.patience.ping, errSilent)
	defer cancel()
	err := l.Ping(ctx)
	if errors.Is(err, errSilent) {
		l.conn.fail(errSilent)
		err = errors.Join(err, l.client.Close())
	}
	return err
}

// watchedConn notes when the guest was last heard and when the connection ended.
type watchedConn struct {
	net.Conn
	rest []byte // read before HTTP/2 began
	last atomic.Int64

	mu   sync.Mutex
	err  error
	done chan struct{}
}

func (c *watchedConn) heard() { c.last.Store(time.Now().UnixNano()) }

func (c *watchedConn) silentFor() time.Duration { return time.Since(time.Unix(0, c.last.Load())) }

// Read implements net.Conn.
func (c *watchedConn) Read(p []byte) (int, error) {
	if len(c.rest) > 0 {
		n := copy(p, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	n, err := c.Conn.Read(p)
	if err != nil {
		c.fail(err)
	}
	c.heard()
	return n, err
}

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	c.fail(errClosed)
	return c.Conn.Close()
}

func (c *watchedConn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.done)
	}
}

func (c *watchedConn) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
