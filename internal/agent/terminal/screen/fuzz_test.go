package screen_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/internal/agent/terminal/screen"
)

const (
	fuzzHistory = 16 << 10
	fuzzLines   = 100
)

// FuzzScreen shows arbitrary output, in pieces, to a screen that changes its
// size in between. Whoever comes late must get the same state from its
// snapshot, and whoever was there from what viewers are sent; and all that is
// kept must stay within bounds.
func FuzzScreen(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(program{rand.New(rand.NewPCG(seed, 4))}.output(12), uint8(20), uint8(5), uint16(31))
	}
	f.Add([]byte("\x1b[1000000;99999999999H\x1b[99999b\x1b[65535L"), uint8(1), uint8(1), uint16(3))
	f.Add([]byte("漢\x1b[?1049h\x1b#8\x1b[3;2r\x1b[?6h\x1b]2;a\xff\x07\x1b[22t"), uint8(3), uint8(3), uint16(5))
	f.Fuzz(func(t *testing.T, out []byte, width, height uint8, step uint16) {
		cols, rows := 1+int(width)%64, 1+int(height)%16
		p := pair{t: t, what: "arbitrary output", state: screen.New(cols, rows, fuzzHistory, fuzzLines)}
		for round := 0; len(out) > 0; round++ {
			resized := round%3 == 1
			if resized {
				cols, rows = 1+(cols+int(step))%64, 1+(rows+int(step)/7)%16
				p.state.Resize(cols, rows)
			}
			p.shown = screen.New(cols, rows, fuzzHistory, fuzzLines)
			_ = p.shown.Feed(p.state.Snapshot(nil, fuzzHistory), nil)
			if want, got := p.state.Text(), p.shown.Text(); !slices.Equal(want, got) {
				t.Fatalf("after a snapshot at %d x %d:\n%s", cols, rows, cmp.Diff(want, got))
			}
			if resized {
				// The scrollback is cut into other lines, of the same text.
				p.feed([]byte("\x18\x1b[3J"))
			}
			p.bounded("after a snapshot")
			n := min(1+int(step)%997, len(out))
			p.feed(out[:n])
			p.bounded("after more output")
			out = out[n:]
		}
	})
}

// bounded compares the states and what is kept of them.
func (p *pair) bounded(after string) {
	p.t.Helper()
	cols, rows := p.state.Size()
	want, got := p.state.Snapshot(nil, fuzzHistory), p.shown.Snapshot(nil, fuzzHistory)
	// A cell is at most a pen, a character and its marks; the rest are modes,
	// tab stops and titles, and a string that has begun.
	const cell, rest = 120, 96 << 10
	if most := fuzzHistory + 2*cols*rows*cell + rest; len(want) > most {
		p.t.Fatalf("%s: a snapshot of %d bytes, at most %d", after, len(want), most)
	}
	if len(p.state.Title()) > 1024 || len(p.state.Text()) != rows {
		p.t.Fatalf("%s: a title of %d bytes, %d lines", after, len(p.state.Title()), len(p.state.Text()))
	}
	if !bytes.Equal(want, got) {
		p.same(after)
	}
}
