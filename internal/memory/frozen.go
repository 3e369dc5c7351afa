package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Frozen is a copy of a QEMU process that stands still: its RAM is that of the
// VM at the moment of the fork. It costs the VM a page copy per page it writes,
// so it should be captured and closed soon. One Capture at a time.
type Frozen struct {
	Pid int
	// Size is how much RAM there is, spans where it is in the process.
	Size  int64
	spans []span

	control *Control
	// process pins the identity of Pid: while it is alive the number means it.
	process int
	close   func() error
}

// span is a part of the RAM that is in one place in the process.
type span struct {
	offset, length int64
	address        uint64
}

// Fork freezes a copy of QEMU, of whose RAM the first size bytes are of interest;
// what is behind them has not been given to the guest. The vCPUs must be stopped,
// so that devices and RAM are of one moment; the VM can go on as soon as Fork
// returns.
func (c *Control) Fork(ctx context.Context, size int64) (*Frozen, error) {
	r, err := c.ask(ctx, request{order: orderFreeze}, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("freeze memory: %w", err)
	}
	// The child has to go even if whoever wanted it has given up.
	after := context.WithoutCancel(ctx)
	f, err := c.adopt(r)
	if err == nil {
		err = f.reach(ctx, size)
	}
	if err != nil && f != nil {
		err = errors.Join(err, unix.Close(f.process))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("freeze memory: %w", err), c.thaw(after, r.pid))
	}
	f.close = sync.OnceValue(func() error { return f.end(after) })
	return f, nil
}

// adopt proves that the process named by the library is QEMU's own child: the
// daemon may read any process, and must not be sent to read another.
func (c *Control) adopt(r reply) (*Frozen, error) {
	if err := r.checkRange(); err != nil {
		return nil, err
	}
	if r.pid == 0 || r.pid > 1<<22 {
		return nil, fmt.Errorf("memory library: no process has the id %d", r.pid)
	}
	pid := int(r.pid)
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("open frozen process: %w", err)
	}
	boot := span{length: int64(r.size), address: r.address}
	f := &Frozen{Pid: pid, Size: boot.length, spans: []span{boot}, control: c, process: process}
	parent, err := parentOf(pid)
	if err == nil && parent != c.peer {
		err = fmt.Errorf("process %d is a child of %d, not of QEMU (%d)", pid, parent, c.peer)
	}
	// Alive only now means: it was this process whose parent was read.
	if err = errors.Join(err, f.alive()); err != nil {
		return nil, errors.Join(err, unix.Close(process))
	}
	return f, nil
}

// reach takes the added memory in if size lies in it. Where that is does not
// change while QEMU lives, so it may be asked for after the fork.
func (f *Frozen) reach(ctx context.Context, size int64) error {
	if size == f.Size {
		return nil
	}
	if size < f.Size {
		return fmt.Errorf("%d bytes of RAM are asked for, the VM was started with %d", size, f.Size)
	}
	r, err := f.control.region(ctx, regionAdded)
	if err != nil {
		return fmt.Errorf("find added memory: %w", err)
	}
	added := span{offset: f.Size, length: size - f.Size, address: r.address}
	if added.length > int64(r.size) {
		return fmt.Errorf("%d bytes of added memory are asked for, there is room for %d", added.length, r.size)
	}
	f.Size, f.spans = size, append(f.spans, added)
	return nil
}

// Close ends the frozen process.
func (f *Frozen) Close() error { return f.close() }

func (f *Frozen) end(ctx context.Context) error {
	err := f.control.thaw(ctx, uint64(f.Pid))
	if errors.Is(err, ErrControlClosed) || errors.Is(err, unix.ESRCH) {
		// The library ends the children of a lost connection itself, once it
		// gets to it; it may be stuck, or the child its last act.
		_ = unix.PidfdSendSignal(f.process, unix.SIGKILL, nil, 0)
		err = nil
	}
	return errors.Join(err, unix.Close(f.process))
}

func (c *Control) thaw(ctx context.Context, pid uint64) error {
	ctx, cancel := context.WithTimeout(ctx, closePatience)
	defer cancel()
	if _, err := c.ask(ctx, request{order: orderThaw, pid: pid}, nil, nil); err != nil {
		return fmt.Errorf("end frozen process: %w", err)
	}
	return nil
}

// alive returns nil if the frozen process has not ended, so that its number
// still means it.
func (f *Frozen) alive() error {
	poll := []unix.PollFd{{Fd: int32(f.process), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("look at frozen process: %w", err)
		case n != 0:
			return fmt.Errorf("frozen process %d has ended", f.Pid)
		}
		return nil
	}
}

// sacrifice makes the frozen process the first to go when memory runs out: a
// failed capture is better than a killed VM.
func (f *Frozen) sacrifice() {
	// Best effort: the capture is right without it.
	_ = os.WriteFile(procPath(f.Pid, "oom_score_adj"), []byte("1000"), 0)
}

func procPath(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// parentOf returns the parent of a process.
func parentOf(pid int) (int, error) {
	b, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return 0, fmt.Errorf("read parent of process: %w", err)
	}
	// The name, in parentheses, may hold anything, more parentheses included.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 2 {
		return 0, fmt.Errorf("read parent of process: /proc/%d/stat is too short", pid)
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0, fmt.Errorf("read parent of process: %w", err)
	}
	return parent, nil
}
