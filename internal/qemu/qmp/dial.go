package qmp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// retryEvery is how often Dial tries a socket that is not there yet. A
	// refused connect costs 10 µs, and every millisecond is part of a start.
	retryEvery = 500 * time.Microsecond
	// maxPath is the longest path that fits into a socket address.
	maxPath = 107
)

// Dial connects to the monitor at sock, which may not exist yet: it tries until
// ctx ends. It returns after the greeting and the negotiation of capabilities.
// QEMU serves one client at a time, so Dial waits while another is connected.
func Dial(ctx context.Context, sock string) (*Client, error) {
	conn, err := connect(ctx, sock)
	if err != nil {
		return nil, fmt.Errorf("dial qmp %s: %w", sock, err)
	}
	c, err := open(ctx, conn, MaxLine)
	if err != nil {
		return nil, fmt.Errorf("greet qmp %s: %w", sock, err)
	}
	return c, nil
}

// open makes a client of a connection. It owns conn from the start.
func open(ctx context.Context, conn *net.UnixConn, limit int) (*Client, error) {
	c := &Client{
		conn: conn, dec: newDecoder(conn, limit), fdTurn: make(chan struct{}, 1),
		pending: map[uint64]*call{}, subscribers: map[*subscriber]struct{}{}, done: make(chan struct{}),
	}
	if err := c.greet(ctx); err != nil {
		_ = conn.Close() // the reason for failing is what the caller needs
		return nil, err
	}
	go c.read()
	if err := c.Execute(ctx, "qmp_capabilities", nil, nil); err != nil {
		_ = c.Close() // always nil
		return nil, err
	}
	return c, nil
}

// greet reads QEMU's first line.
func (c *Client) greet(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
	defer stop()
	m, err := c.dec.next()
	if ctxErr := context.Cause(ctx); ctxErr != nil {
		return ctxErr
	}
	if err != nil {
		return cause(err)
	}
	if m.Greeting == nil {
		return errors.New("the first line is no greeting")
	}
	v := m.Greeting.Version.QEMU
	c.version = fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro)
	return nil
}

func connect(ctx context.Context, sock string) (*net.UnixConn, error) {
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for {
		conn, err := connectOnce(ctx, sock)
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EAGAIN) {
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}

// connectOnce reaches a path of any length through its folder's descriptor.
func connectOnce(ctx context.Context, sock string) (*net.UnixConn, error) {
	if len(sock) > maxPath {
		folder, err := os.OpenFile(filepath.Dir(sock), os.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return nil, err
		}
		defer folder.Close() //nolint:errcheck // nothing was written
		sock = fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(sock))
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", sock)
	if err != nil {
		return nil, err
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("not a unix socket"), conn.Close())
	}
	return socket, nil
}
