package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// FrameType says what a frame of a request or response body is.
type FrameType byte

// The frames of an exec. The host sends one FrameOrder, then the input and
// FrameStdinEnd if the order announces input. The agent sends FrameStarted,
// output in any amount, and FrameExit as the last; or FrameRefused alone.
// A reader skips types that it does not know.
const (
	FrameOrder    FrameType = 1
	FrameStdin    FrameType = 2
	FrameStdinEnd FrameType = 3
	// FrameClock is the whole body of a PathClock request: Unix nanoseconds[8].
	FrameClock FrameType = 4

	FrameStarted FrameType = 16
	FrameStdout  FrameType = 17
	FrameStderr  FrameType = 18
	FrameExit    FrameType = 19
	FrameRefused FrameType = 20
	// FrameReply is the whole answer to every other request.
	FrameReply FrameType = 21
)

// MaxFrame bounds the payload of a frame, in bytes. An order is one frame, so
// it bounds a command with its environment as well.
const MaxFrame = 256 << 10

// FrameHeader is the length of a frame's head: type[1] length[4].
const FrameHeader = 5

// ErrFrame is returned for a frame that breaks the format or a bound.
var ErrFrame = errors.New("malformed frame")

// AppendFrame appends a frame to b. The payload must not exceed MaxFrame.
func AppendFrame(b []byte, t FrameType, payload []byte) []byte {
	b = append(b, byte(t))
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

// FrameReader reads frames from a body.
type FrameReader struct {
	r       io.Reader
	limit   uint32
	head    [FrameHeader]byte
	payload []byte
}

// NewFrameReader returns a reader of the frames in r.
func NewFrameReader(r io.Reader) *FrameReader { return &FrameReader{r: r, limit: MaxFrame} }

// Next returns the next frame. The payload is valid until the next call. At the
// end of the body it returns io.EOF; a body cut within a frame is
// io.ErrUnexpectedEOF, and a payload longer than the bound is ErrFrame.
func (f *FrameReader) Next() (FrameType, []byte, error) {
	if _, err := io.ReadFull(f.r, f.head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(f.head[1:])
	if n > f.limit {
		return 0, nil, fmt.Errorf("read frame of %d bytes: %w", n, ErrFrame)
	}
	if int(n) > cap(f.payload) {
		f.payload = make([]byte, n)
	}
	f.payload = f.payload[:n]
	if _, err := io.ReadFull(f.r, f.payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return FrameType(f.head[0]), f.payload, nil
}

// AppendClock appends a FrameClock to b.
func AppendClock(b []byte, unixNs int64) []byte {
	return AppendFrame(b, FrameClock, binary.BigEndian.AppendUint64(nil, uint64(unixNs)))
}

// ParseClock returns the time in the payload of a FrameClock.
func ParseClock(payload []byte) (unixNs int64, err error) {
	if len(payload) != 8 {
		return 0, fmt.Errorf("read clock of %d bytes: %w", len(payload), ErrFrame)
	}
	return int64(binary.BigEndian.Uint64(payload)), nil
}
