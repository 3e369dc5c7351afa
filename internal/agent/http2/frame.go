package http2

import "encoding/binary"

type frameType byte

const (
	frameData         frameType = 0
	frameHeaders      frameType = 1
	frameReset        frameType = 3
	frameSettings     frameType = 4
	framePing         frameType = 6
	frameWindowUpdate frameType = 8
	frameContinuation frameType = 9
)

const (
	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20

	settingMaxStreams    = 3
	settingInitialWindow = 4
	settingMaxFrame      = 5

	errNone    = 0
	errRefused = 7

	maxWindow = 1<<31 - 1
	// status200 is the header block of every response: one entry of HPACK's
	// static table.
	status200 = 0x88
)

func appendFrame(b []byte, t frameType, flags byte, id uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), byte(t), flags)
	b = binary.BigEndian.AppendUint32(b, id)
	return append(b, payload...)
}

func appendSettings(b []byte) []byte {
	var p []byte
	p = binary.BigEndian.AppendUint16(p, settingMaxStreams)
	p = binary.BigEndian.AppendUint32(p, maxStreams)
	p = binary.BigEndian.AppendUint16(p, settingInitialWindow)
	p = binary.BigEndian.AppendUint32(p, streamWindow)
	p = binary.BigEndian.AppendUint16(p, settingMaxFrame)
	p = binary.BigEndian.AppendUint32(p, maxDataIn)
	return appendFrame(b, frameSettings, 0, 0, p)
}

func appendWindowUpdate(b []byte, id uint32, n int) []byte {
	return appendFrame(b, frameWindowUpdate, 0, id, binary.BigEndian.AppendUint32(nil, uint32(n)))
}

func appendReset(b []byte, id, code uint32) []byte {
	return appendFrame(b, frameReset, 0, id, binary.BigEndian.AppendUint32(nil, code))
}

// unpad removes the padding that flags announce.
func unpad(flags byte, p []byte) ([]byte, bool) {
	if flags&flagPadded == 0 {
		return p, true
	}
	if len(p) == 0 || int(p[0]) > len(p)-1 {
		return nil, false
	}
	return p[1 : len(p)-int(p[0])], true
}

// AppendRequest appends what a client sends for a request with a body: its
// headers, with nothing in them but method and path, and its data. The path
// must be shorter than 127 bytes and the body not longer than a frame.
func AppendRequest(b []byte, id uint32, path string, body []byte) []byte {
	const methodPost, literalPath = 0x83, 0x04 // of HPACK's static table
	block := append([]byte{methodPost, literalPath, byte(len(path))}, path...)
	b = appendFrame(b, frameHeaders, flagEndHeaders, id, block)
	return appendFrame(b, frameData, flagEndStream, id, body)
}

// EndOfResponse returns the frame that ends the response to request id.
func EndOfResponse(id uint32) []byte { return appendFrame(nil, frameData, flagEndStream, id, nil) }
