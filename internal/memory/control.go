package memory

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/layer"
)

const (
	firstRetry = time.Millisecond
	lastRetry  = 20 * time.Millisecond
	// closePatience bounds the end of a frozen process, which no context ends.
	closePatience = 30 * time.Second
)

// ErrControlClosed is in the error of every order after Close, or after an
// order that was abandoned half-way.
var ErrControlClosed = errors.New("memory control connection is closed")

// Control is a connection to the library in one QEMU. It is safe for concurrent
// use; orders are carried out one after the other. When it ends, however it
// ends, the library ends the frozen children that were asked for through it.
type Control struct {
	conn *net.UnixConn
	peer int
	// boot is the RAM that QEMU was started with, as the library says.
	boot reply
	// turn holds one token; who has it may use conn.
	turn  chan struct{}
	close func() error
}

// DialControl connects to the library's socket. As QEMU may just be starting,
// it tries again until ctx is done.
func DialControl(ctx context.Context, sock string) (*Control, error) {
	var dialer net.Dialer
	for wait := firstRetry; ; wait = min(wait*2, lastRetry) {
		conn, err := dialer.DialContext(ctx, "unixpacket", sock)
		if err == nil {
			return newControl(ctx, conn)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("dial memory library: %w: %w", context.Cause(ctx), err)
		}
	}
}

func newControl(ctx context.Context, dialed net.Conn) (*Control, error) {
	conn, ok := dialed.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("dial memory library: %T is no unix socket", dialed), dialed.Close())
	}
	c := &Control{conn: conn, turn: make(chan struct{}, 1), close: sync.OnceValue(conn.Close)}
	c.turn <- struct{}{}
	peer, err := peerOf(conn)
	if err == nil {
		c.peer = peer
		c.boot, err = c.ask(ctx, request{order: orderHello}, nil, nil)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("greet memory library: %w", err), c.Close())
	}
	return c, nil
}

// peerOf returns the process that listens at the other end, as the kernel
// knows it: the one thing a hostile QEMU cannot lie about.
func peerOf(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, credErr); err != nil {
		return 0, fmt.Errorf("ask for peer credentials: %w", err)
	}
	if cred.Pid <= 0 {
		return 0, errors.New("the peer's process is not visible from here")
	}
	return int(cred.Pid), nil
}

// PID returns the process id of QEMU, as the kernel tells it.
func (c *Control) PID() int { return c.peer }

// Close ends the connection and all frozen children that came from it.
func (c *Control) Close() error { return c.close() }

// ask sends one request and returns the answer. If ctx ends in between, the
// answer could no longer be told from the next one, so the connection closes.
func (c *Control) ask(ctx context.Context, q request, extents []Extent, files []*os.File) (reply, error) {
	select {
	case <-c.turn:
		defer func() { c.turn <- struct{}{} }()
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	b, err := c.exchange(q.encode(extents), files)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		_ = c.Close()
		return reply{}, fmt.Errorf("%w: %w", ErrControlClosed, err)
	}
	r, err := decodeReply(b, q.order)
	if err != nil && !refused(err) {
		_ = c.Close()
	}
	return r, err
}

// refused reports whether the library understood and said no.
func refused(err error) bool {
	var errno unix.Errno
	return errors.As(err, &errno)
}

func (c *Control) exchange(message []byte, files []*os.File) ([]byte, error) {
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := c.conn.WriteMsgUnix(message, rights, nil); err != nil {
		return nil, fmt.Errorf("send order: %w", err)
	}
	// One byte more than an answer may have shows one that is too long. No room
	// is given for descriptors: the kernel drops any that come.
	b := make([]byte, replyBytes+maxText+1)
	n, _, _, _, err := c.conn.ReadMsgUnix(b, nil)
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if n == 0 {
		return nil, errors.New("read answer: the library is gone")
	}
	return b[:n], nil
}

// Lay makes the RAM of QEMU read as m says, whatever it held: called after
// QEMU's start and before migrate-incoming. open returns a layer's file, opened
// for reading only; Lay closes it. If an error comes back, the content of the
// RAM is undefined and QEMU has to be ended.
func (c *Control) Lay(ctx context.Context, m Map, open func(layer.ID) (*os.File, error)) error {
	if err := m.Validate(); err != nil {
		return err
	}
	files := make([]*os.File, 0, len(m.Layers))
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	for _, id := range m.Layers {
		f, err := open(id)
		if err != nil {
			return fmt.Errorf("lay memory: %w", err)
		}
		files = append(files, f)
	}
	if err := c.lay(ctx, m, files); err != nil {
		return fmt.Errorf("lay memory: %w", err)
	}
	return nil
}

// region asks where a region is and how large it is.
func (c *Control) region(ctx context.Context, index uint32) (reply, error) {
	r, err := c.ask(ctx, request{order: orderHello, region: index}, nil, nil)
	if err == nil {
		err = r.checkRange()
	}
	return r, err
}

// lay splits the map at the end of the RAM of the boot.
func (c *Control) lay(ctx context.Context, m Map, files []*os.File) error {
	if err := c.boot.checkRange(); err != nil {
		return err
	}
	size := int64(c.boot.size)
	if m.Size < size {
		return fmt.Errorf("the map is for %d bytes of RAM, there are %d: %w", m.Size, size, unix.ERANGE)
	}
	boot, added := m.split(size)
	if added.Size == 0 {
		return c.layRegion(ctx, regionBoot, boot, files)
	}
	r, err := c.region(ctx, regionAdded)
	if err == nil && added.Size > int64(r.size) {
		err = unix.ERANGE
	}
	if err != nil {
		return fmt.Errorf("the map is for %d bytes of RAM, there are %d, and room for %d behind them: %w", m.Size, size, r.size, err)
	}
	// What the map does not reach has not been given to the guest.
	added.Size = int64(r.size)
	return errors.Join(c.layRegion(ctx, regionBoot, boot, files), c.layRegion(ctx, regionAdded, added, files))
}

func (c *Control) layRegion(ctx context.Context, region uint32, m Map, files []*os.File) error {
	begin := request{order: orderLayBegin, region: region, size: uint64(m.Size), count: uint32(len(files))}
	if _, err := c.ask(ctx, begin, nil, files); err != nil {
		return err
	}
	for rest := m.Extents; len(rest) > 0; {
		batch := rest[:min(len(rest), maxBatch)]
		if _, err := c.ask(ctx, request{order: orderLayExtents, count: uint32(len(batch))}, batch, nil); err != nil {
			return err
		}
		rest = rest[len(batch):]
	}
	_, err := c.ask(ctx, request{order: orderLayCommit, count: uint32(len(m.Extents))}, nil, nil)
	return err
}
