package memory

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// answer builds a reply as the library would, or as a hostile one might.
func answer(o order, code int32, text string, r reply) []byte {
	b := binary.NativeEndian.AppendUint32(nil, protocolMagic)
	b = binary.NativeEndian.AppendUint16(b, protocolVersion)
	b = binary.NativeEndian.AppendUint16(b, uint16(o))
	b = binary.NativeEndian.AppendUint32(b, uint32(code))
	b = binary.NativeEndian.AppendUint32(b, uint32(len(text)))
	b = binary.NativeEndian.AppendUint64(b, r.pid)
	b = binary.NativeEndian.AppendUint64(b, r.address)
	b = binary.NativeEndian.AppendUint64(b, r.size)
	return append(b, text...)
}

func FuzzDecodeReply(f *testing.F) {
	f.Add(answer(orderFreeze, 0, "", reply{pid: 1, address: 4096, size: 4096}))
	f.Add(answer(orderFreeze, int32(unix.EBUSY), "busy", reply{}))
	f.Add([]byte("PNDM"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeReply(b, orderFreeze)
		if err != nil {
			return
		}
		if !bytes.Equal(b, answer(orderFreeze, 0, string(b[replyBytes:]), r)) {
			t.Errorf("%x was read as %+v", b, r)
		}
		if r.checkRange() == nil && (r.size == 0 || r.address+r.size < r.address || r.size > uint64(MaxSize)) {
			t.Errorf("%+v is no RAM", r)
		}
	})
}

func TestDecodeReplyRefuses(t *testing.T) {
	t.Parallel()
	good := answer(orderFreeze, 0, "", reply{})
	for name, b := range map[string][]byte{
		"nothing":               nil,
		"half":                  good[:20],
		"too much":              append(bytes.Clone(good), make([]byte, maxText+1)...),
		"a text that is longer": append(bytes.Clone(good), 'x'),
		"another order":         answer(orderThaw, 0, "", reply{}),
		"another version":       append([]byte{0x50, 0x4e, 0x44, 0x4d, 2}, good[5:]...),
		"another magic":         append([]byte{0}, good[1:]...),
	} {
		if _, err := decodeReply(b, orderFreeze); err == nil || refused(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := decodeReply(answer(orderFreeze, int32(unix.EBUSY), "full\x1b[31m", reply{}), orderFreeze)
	if !errors.Is(err, unix.EBUSY) || !refused(err) || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("a refusal: %v", err)
	}
}

// impostor is a hostile QEMU: it answers every order with what reply returns.
func impostor(t *testing.T, reply func(o order) []byte) *Control {
	t.Helper()
	sock := filepath.Join(t.TempDir(), "sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unixpacket", sock)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := conn.Read(b)
			if err != nil || n < requestBytes {
				return
			}
			if _, err := conn.Write(reply(order(binary.NativeEndian.Uint16(b[6:])))); err != nil {
				return
			}
		}
	}()
	c, err := DialControl(t.Context(), sock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		_ = l.Close()
		<-done
	})
	return c
}

// TestForkOfStranger names processes that are not children of the peer: the
// daemon must not be made to read them.
func TestForkOfStranger(t *testing.T) {
	t.Parallel()
	ram := reply{address: 1 << 20, size: 1 << 20}
	for name, r := range map[string]reply{
		"init":              {pid: 1, address: ram.address, size: ram.size},
		"the daemon itself": {pid: uint64(os.Getpid()), address: ram.address, size: ram.size},
		"its parent":        {pid: uint64(os.Getppid()), address: ram.address, size: ram.size},
		"nobody":            {pid: 1 << 21, address: ram.address, size: ram.size},
		"zero":              {pid: 0, address: ram.address, size: ram.size},
		"minus one":         {pid: ^uint64(0), address: ram.address, size: ram.size},
		"no RAM":            {pid: 1, address: ram.address},
		"unaligned RAM":     {pid: 1, address: 1, size: ram.size},
		"RAM of the kernel": {pid: 1, address: 0xffff_8000_0000_0000, size: ram.size},
		"RAM that wraps":    {pid: 1, address: ^uint64(0) - 4095, size: ram.size},
		"boundless RAM":     {pid: 1, address: ram.address, size: 1 << 50},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := impostor(t, func(o order) []byte { return answer(o, 0, "", r) })
			if f, err := c.Fork(t.Context(), 1<<20); err == nil {
				t.Errorf("process %d was taken", f.Pid)
			}
		})
	}
}

// TestForkOfChild shows that the proof accepts what it should: the impostor is
// this process, so its child is a legitimate answer.
func TestForkOfChild(t *testing.T) {
	t.Parallel()
	child := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	c := impostor(t, func(o order) []byte {
		return answer(o, 0, "", reply{pid: uint64(child.Process.Pid), address: 1 << 20, size: 1 << 20})
	})
	f, err := c.Fork(t.Context(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.alive(); err != nil {
		t.Error(err)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if err := f.alive(); err == nil {
		t.Error("a dead child is alive")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestNonsenseClosesTheConnection(t *testing.T) {
	t.Parallel()
	for name, nonsense := range map[string][]byte{
		"too long":  make([]byte, 10_000),
		"too short": make([]byte, 1),
		"zeros":     make([]byte, replyBytes),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := impostor(t, func(o order) []byte {
				if o == orderHello {
					return answer(o, 0, "", reply{})
				}
				return nonsense
			})
			if _, err := c.Fork(t.Context(), 1<<20); err == nil {
				t.Error("no error")
			}
			if _, err := c.Fork(t.Context(), 1<<20); !errors.Is(err, ErrControlClosed) {
				t.Errorf("the connection is still used: %v", err)
			}
		})
	}
}

// TestSilentLibrary ends with the caller's context.
func TestSilentLibrary(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	silence := make(chan struct{})
	c := impostor(t, func(o order) []byte {
		if o == orderFreeze {
			close(asked)
			<-silence
		}
		return answer(o, 0, "", reply{})
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := c.Fork(ctx, 1<<20); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(silence)
}
