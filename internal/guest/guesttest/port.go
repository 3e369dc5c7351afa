package guesttest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Port is an agent.Port on a listening unix socket. Like the chardev of QEMU it
// serves one host at a time, in the order in which they connect, and keeps what
// the guest writes while no host is there waiting.
type Port struct {
	listener *net.UnixListener

	mu       sync.Mutex
	changed  sync.Cond
	host     net.Conn // nil while none is connected
	closed   bool
	deadline time.Time
	hosts    sync.WaitGroup
}

// Listen returns a port whose hosts dial path.
func Listen(path string) (*Port, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	p := &Port{listener: l}
	p.changed.L = &p.mu
	p.hosts.Go(p.accept)
	return p, nil
}

// accept takes the next host whenever there is none.
func (p *Port) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		for p.host != nil && !p.closed {
			p.changed.Wait()
		}
		if p.closed {
			_ = conn.Close()
		} else {
			p.host = conn
			_ = conn.SetWriteDeadline(p.deadline)
		}
		p.changed.Broadcast()
		p.mu.Unlock()
	}
}

// Read implements agent.Port.
func (p *Port) Read(b []byte) (int, error) {
	host, err := p.await(func() bool { return false })
	if err != nil {
		return 0, err
	}
	n, err := host.Read(b)
	if n > 0 {
		return n, nil
	}
	if err == nil {
		return 0, nil
	}
	p.drop(host)
	return 0, io.EOF
}

// Write implements agent.Port.
func (p *Port) Write(b []byte) (int, error) {
	total := 0
	for total < len(b) {
		host, err := p.await(func() bool { return !p.deadline.IsZero() && !time.Now().Before(p.deadline) })
		if err != nil {
			return total, err
		}
		n, err := host.Write(b[total:])
		total += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return total, err
		}
		if err != nil {
			// The reader finds out that the host is gone; what it did not take is lost.
			return len(b), nil //nolint:nilerr // a guest cannot see where its bytes end up
		}
	}
	return total, nil
}

// await returns the host, waiting for one until expired.
func (p *Port) await(expired func() bool) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.host == nil && !p.closed && !expired() {
		p.changed.Wait()
	}
	switch {
	case p.closed:
		return nil, os.ErrClosed
	case expired():
		return nil, os.ErrDeadlineExceeded
	}
	return p.host, nil
}

func (p *Port) drop(host net.Conn) {
	_ = host.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.host == host {
		p.host = nil
	}
	p.changed.Broadcast()
}

// SetWriteDeadline implements agent.Port. A deadline must be in the past, or zero.
func (p *Port) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = t
	p.changed.Broadcast()
	if p.host != nil {
		_ = p.host.SetWriteDeadline(t)
	}
	return nil
}

// Close implements agent.Port.
func (p *Port) Close() error {
	p.mu.Lock()
	p.closed = true
	if p.host != nil {
		_ = p.host.Close()
	}
	p.changed.Broadcast()
	p.mu.Unlock()
	err := p.listener.Close()
	p.hosts.Wait()
	return err
}
