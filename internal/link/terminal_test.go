package link_test

import (
	"bytes"
	"testing"

	"github.com/pandovm/pando/internal/link"
)

func TestTerminalSizes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		payload []byte
		ok      bool
	}{
		"smallest":         {[]byte{0, 1, 0, 1}, true},
		"largest":          {[]byte{3, 0xe8, 3, 0xe8}, true},
		"no columns":       {[]byte{0, 0, 0, 1}, false},
		"no rows":          {[]byte{0, 1, 0, 0}, false},
		"too many columns": {[]byte{3, 0xe9, 0, 1}, false},
		"too many rows":    {[]byte{0, 1, 0xff, 0xff}, false},
		"short":            {[]byte{0, 1, 0}, false},
		"long":             {[]byte{0, 1, 0, 1, 0}, false},
	} {
		if _, _, err := link.ParseResize(c.payload); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzTerminalFrames checks that the sizes and counts that are accepted are
// within their bounds, and the same when they are sent on.
func FuzzTerminalFrames(f *testing.F) {
	f.Add([]byte{0, 80, 0, 24})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		if cols, rows, err := link.ParseResize(b); err == nil {
			if cols < 1 || cols > link.MaxTerminalCols || rows < 1 || rows > link.MaxTerminalRows {
				t.Fatalf("size %d x %d", cols, rows)
			}
			sentAs(t, link.AppendResize(nil, cols, rows), link.FrameTerminalResize, b)
		}
		if n, err := link.ParseCount(b); err == nil {
			if n < 0 {
				t.Fatalf("count %d", n)
			}
			sentAs(t, link.AppendCount(nil, link.FrameTerminalShown, n), link.FrameTerminalShown, b)
		}
	})
}

func sentAs(t *testing.T, frame []byte, want link.FrameType, payload []byte) {
	t.Helper()
	kind, got, err := link.NewFrameReader(bytes.NewReader(frame)).Next()
	if err != nil || kind != want || !bytes.Equal(got, payload) {
		t.Fatalf("sent as %d %x, %v, want %d %x", kind, got, err, want, payload)
	}
}
