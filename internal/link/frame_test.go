package link_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/pandovm/pando/internal/link"
)

func TestFrames(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte{'x'}, link.MaxFrame)
	var stream []byte
	stream = link.AppendFrame(stream, link.FrameStdout, []byte("hello"))
	stream = link.AppendFrame(stream, link.FrameStdinEnd, nil)
	stream = link.AppendFrame(stream, link.FrameStderr, big)
	r := link.NewFrameReader(iotest.OneByteReader(bytes.NewReader(stream)))
	for _, want := range []struct {
		kind    link.FrameType
		payload []byte
	}{{link.FrameStdout, []byte("hello")}, {link.FrameStdinEnd, nil}, {link.FrameStderr, big}} {
		kind, payload, err := r.Next()
		if err != nil || kind != want.kind || !bytes.Equal(payload, want.payload) {
			t.Errorf("frame %d of %d bytes, %v; want %d of %d", kind, len(payload), err, want.kind, len(want.payload))
		}
	}
	if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestFramesCutOrTooLong(t *testing.T) {
	t.Parallel()
	whole := link.AppendFrame(nil, link.FrameStdout, []byte("hello"))
	for n := 1; n < len(whole); n++ {
		_, _, err := link.NewFrameReader(bytes.NewReader(whole[:n])).Next()
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
	long := []byte{byte(link.FrameStdout), 0x7f, 0xff, 0xff, 0xff}
	if _, _, err := link.NewFrameReader(bytes.NewReader(long)).Next(); !errors.Is(err, link.ErrFrame) {
		t.Errorf("frame of 2 GiB: %v", err)
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	_, payload, err := link.NewFrameReader(bytes.NewReader(link.AppendClock(nil, -5))).Next()
	if err != nil {
		t.Fatal(err)
	}
	if ns, err := link.ParseClock(payload); ns != -5 || err != nil {
		t.Errorf("got %d, %v", ns, err)
	}
	if _, err := link.ParseClock(payload[1:]); !errors.Is(err, link.ErrFrame) {
		t.Errorf("short clock: %v", err)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(link.AppendFrame(link.AppendFrame(nil, link.FrameStdout, []byte("a")), link.FrameExit, nil))
	f.Add([]byte{19, 0, 4, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := link.NewFrameReader(bytes.NewReader(b))
		var again []byte
		for {
			kind, payload, err := r.Next()
			if err != nil {
				break
			}
			again = link.AppendFrame(again, kind, payload)
		}
		if !bytes.HasPrefix(b, again) {
			t.Fatal("frames read are not the frames written")
		}
	})
}
