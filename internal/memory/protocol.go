package memory

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// This file is the Go side of cowram/protocol.h; both change together.
const (
	protocolMagic   = 0x4d444e50
	protocolVersion = 1

	requestBytes = 32
	extentBytes  = 32
	replyBytes   = 40
	maxText      = 200
	maxBatch     = 1024
)

// order is what a request asks for.
type order uint16

const (
	orderHello order = iota + 1
	orderLayBegin
	orderLayExtents
	orderLayCommit
	orderFreeze
	orderThaw
)

// The regions of a RAM. An older library knows only the first.
const (
	regionBoot uint32 = iota
	regionAdded
)

// request is one message to the library.
type request struct {
	order  order
	region uint32
	count  uint32
	size   uint64
	pid    uint64
}

func (q request) encode(extents []Extent) []byte {
	b := make([]byte, 0, requestBytes+len(extents)*extentBytes)
	b = binary.NativeEndian.AppendUint32(b, protocolMagic)
	b = binary.NativeEndian.AppendUint16(b, protocolVersion)
	b = binary.NativeEndian.AppendUint16(b, uint16(q.order))
	b = binary.NativeEndian.AppendUint32(b, q.region)
	b = binary.NativeEndian.AppendUint32(b, q.count)
	b = binary.NativeEndian.AppendUint64(b, q.size)
	b = binary.NativeEndian.AppendUint64(b, q.pid)
	for _, e := range extents {
		b = binary.NativeEndian.AppendUint64(b, uint64(e.Offset))
		b = binary.NativeEndian.AppendUint64(b, uint64(e.Length))
		b = binary.NativeEndian.AppendUint64(b, uint64(e.LayerOffset))
		b = binary.NativeEndian.AppendUint32(b, uint32(e.Layer))
		b = binary.NativeEndian.AppendUint32(b, 0)
	}
	return b
}

// reply is the library's answer. Its numbers are claims of a process that may
// be hostile.
type reply struct {
	pid     uint64
	address uint64
	size    uint64
}

// decodeReply reads the answer to the order asked. A refusal is an error that
// wraps the errno the library gave.
func decodeReply(b []byte, asked order) (reply, error) {
	if len(b) < replyBytes || len(b) > replyBytes+maxText {
		return reply{}, fmt.Errorf("memory library: an answer of %d bytes", len(b))
	}
	magic, version := binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint16(b[4:])
	got, code := order(binary.NativeEndian.Uint16(b[6:])), int32(binary.NativeEndian.Uint32(b[8:]))
	if magic != protocolMagic || version != protocolVersion {
		return reply{}, fmt.Errorf("memory library: it does not speak protocol version %d", protocolVersion)
	}
	if int(binary.NativeEndian.Uint32(b[12:])) != len(b)-replyBytes {
		return reply{}, errors.New("memory library: an answer of the wrong length")
	}
	if code != 0 {
		return reply{}, fmt.Errorf("memory library: %.200q: %w", b[replyBytes:], unix.Errno(uint32(code)))
	}
	if got != asked {
		return reply{}, fmt.Errorf("memory library: an answer to order %d instead of %d", got, asked)
	}
	return reply{
		pid:     binary.NativeEndian.Uint64(b[16:]),
		address: binary.NativeEndian.Uint64(b[24:]),
		size:    binary.NativeEndian.Uint64(b[32:]),
	}, nil
}

// checkRange refuses what cannot be the guest RAM of a process.
func (r reply) checkRange() error {
	const userSpace = uint64(1) << 56
	if r.address%PageSize != 0 || r.size%PageSize != 0 || r.size == 0 || r.size > uint64(MaxSize) ||
		r.address == 0 || r.address > userSpace-r.size {
		return fmt.Errorf("memory library: RAM of %d bytes at %#x is not possible", r.size, r.address)
	}
	return nil
}
