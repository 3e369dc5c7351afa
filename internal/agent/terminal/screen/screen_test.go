package screen_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/internal/agent/terminal/screen"
)

const (
	maxBytes = 1 << 20
	maxLines = 10000
)

func newScreen(cols, rows int) *screen.Screen { return screen.New(cols, rows, maxBytes, maxLines) }

// program writes random output that exercises everything.
type program struct{ *rand.Rand }

func (p program) number() int {
	switch p.IntN(8) {
	case 0:
		return 0
	case 1:
		return p.IntN(3000)
	}
	return p.IntN(14)
}

func (p program) token() string {
	pick := func(all ...string) string { return all[p.IntN(len(all))] }
	switch p.IntN(16) {
	case 0, 1, 2:
		return strings.Repeat(pick("a", "B", "x ", " ", "q", "漢", "é", "e\u0301", "👍", "\u0301", "\u200d", "ｆ"), 1+p.IntN(12))
	case 3:
		return pick("\r\n", "\n", "\r", "\b", "\t", "\v", "\x0e", "\x0f", "\a", "\x7f", "\x05", "\x00")
	case 4, 5:
		return fmt.Sprintf("\x1b[%d%s", p.number(), pick("A", "B", "C", "D", "E", "F", "G", "d", "L", "M", "P", "@", "X", "S", "T", "b", "I", "Z", "J", "K", "g"))
	case 6:
		return fmt.Sprintf("\x1b[%d;%d%s", p.number(), p.number(), pick("H", "r", "f", "R"))
	case 7:
		return fmt.Sprintf("\x1b[%sm", pick("", "0", "1", "2;3", "4", "4:3", "7", "31", "92", "44", "105", "38;5;200", "48;5;9", "38;2;1;2;3", "48:2::9:8:7",
			"58:5:3", "58;2;1;1;1", "21", "24", "22", "39;49", "53", "9", "38", "38;5", "1;;4"))
	case 8, 9:
		return fmt.Sprintf("\x1b[?%s%s", pick("1", "5", "6", "7", "12", "25", "47", "1047", "1048", "1049", "1049", "1000", "1003", "1006", "2004", "66", "3", "69", "1;6"), pick("h", "l"))
	case 10:
		return fmt.Sprintf("\x1b[%s%s", pick("4", "20", "2"), pick("h", "l"))
	case 11:
		return pick("\x1b7", "\x1b8", "\x1bD", "\x1bE", "\x1bM", "\x1bH", "\x1b=", "\x1b>", "\x1b(0", "\x1b(B", "\x1b)0", "\x1b*0", "\x1b(A", "\x1bn", "\x1bo", "\x1b#8", "\x1b#6",
			"\x1b[!p", "\x1b[s", "\x1b[u", "\x1b[3 q", "\x1b[>4;2m", "\x1b[c", "\x1b[6n", "\x1b[?1$p", "\x1b[>q", "\x1b[18t", "\x1b[22;0t", "\x1b[23;0t", "\x1b[8;5;5t")
	case 12:
		return pick("\x1b]0;title\a", "\x1b]2;t\u00fc\x1b\\", "\x1b]1;icon\a", "\x1b]11;?\a", "\x1bP$qm\x1b\\", "\x1bPq#1\x1b\\", "\x1b_apc\x1b\\", "\x1b]2;cut\x18", "\x1b]2;cut\x1b[1m")
	case 13:
		if p.IntN(40) == 0 {
			return pick("\x1bc", "\x1b[3J", "\x1b[2J")
		}
		return pick("\x1b[1\x18", "\x1b[1\n;4m", "\x1b\x1b[1m", "\x1b[?12", "\x1b[<3u", "\x1b[=1c", "\x1b[1$", "\x1b[1 ", "\x1b%G")
	case 14:
		b := make([]byte, 1+p.IntN(4))
		for i := range b {
			b[i] = byte(p.IntN(256))
		}
		return string(b)
	default:
		return pick("hello world ", "\xc3", "\xe6\xbc", "\xf0\x9f\x91", "\xff", "\xc2\x9b1m", "line\r\n", "0123456789")
	}
}

func (p program) output(tokens int) []byte {
	var b []byte
	for range tokens {
		b = append(b, p.token()...)
	}
	return b
}

// pair is a screen and one that was brought into its state.
type pair struct {
	t            *testing.T
	what         string
	state, shown *screen.Screen
}

func (p *pair) feed(b []byte) {
	live := p.state.Feed(b, nil)
	if again := p.shown.Feed(live, nil); !bytes.Equal(again, live) {
		p.t.Fatalf("%s: what viewers got is not what they were to get:\n%q\n%q", p.what, live, again)
	}
	_ = p.state.Replies()
	if r := p.shown.Replies(); len(r) > 0 {
		p.t.Fatalf("%s: a viewer was asked something: %q", p.what, r)
	}
}

func (p *pair) same(after string) {
	p.t.Helper()
	want, got := p.state.Snapshot(nil, maxBytes), p.shown.Snapshot(nil, maxBytes)
	if !bytes.Equal(want, got) {
		p.t.Fatalf("%s: %s, the states differ:\n%s", p.what, after, cmp.Diff(parts(want), parts(got)))
	}
}

func parts(b []byte) []string {
	return strings.Split(strings.ReplaceAll(string(b), "\x1b", "\n␛"), "\n")
}

// A viewer that comes at whatever moment gets the state, and after it neither
// misses nor repeats anything.
func TestSnapshotIsTheState(t *testing.T) {
	t.Parallel()
	for seed := range uint64(800) {
		r := program{rand.New(rand.NewPCG(seed, 1))}
		cols, rows := 1+r.IntN(20), 1+r.IntN(8)
		p := pair{t: t, what: fmt.Sprintf("seed %d, %d x %d", seed, cols, rows), state: newScreen(cols, rows)}
		out := r.output(120)
		for len(out) > 0 {
			if p.shown == nil || r.IntN(6) == 0 {
				p.shown = newScreen(cols, rows)
				_ = p.shown.Feed(p.state.Snapshot(nil, maxBytes), nil)
				p.same("after a snapshot")
			}
			n := min(1+r.IntN(40), len(out))
			p.feed(out[:n])
			out = out[n:]
			p.same("after more output")
		}
	}
}

// However the output is cut, the state is the same.
func TestCuts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := program{rand.New(rand.NewPCG(seed, 2))}
		out := r.output(150)
		whole, pieces := newScreen(20, 6), newScreen(20, 6)
		live := whole.Feed(out, nil)
		var liveOfPieces []byte
		for len(out) > 0 {
			n := min(1+r.IntN(5), len(out))
			liveOfPieces = pieces.Feed(out[:n], liveOfPieces)
			out = out[n:]
		}
		if !bytes.Equal(live, liveOfPieces) || !bytes.Equal(whole.Snapshot(nil, maxBytes), pieces.Snapshot(nil, maxBytes)) {
			t.Fatalf("seed %d: pieces of the output come to another state", seed)
		}
	}
}

// After a change of size a redraw brings a viewer of that size into the state.
func TestRedrawIsTheState(t *testing.T) {
	t.Parallel()
	for seed := range uint64(600) {
		r := program{rand.New(rand.NewPCG(seed, 3))}
		p := pair{t: t, what: fmt.Sprintf("seed %d", seed), state: newScreen(12, 5), shown: newScreen(12, 5)}
		for range 5 {
			p.feed(r.output(30))
			cols, rows := 1+r.IntN(20), 1+r.IntN(8)
			p.state.Resize(cols, rows)
			p.shown.Resize(cols, rows)
			_ = p.shown.Feed(p.state.Redraw(nil), nil)
			if diff := cmp.Diff(p.state.Text(), p.shown.Text()); diff != "" {
				t.Fatalf("seed %d: after a redraw at %d x %d:\n%s", seed, cols, rows, diff)
			}
			// What is in the scrollback differs; the rest does not.
			p.feed([]byte("\x18\x1b[3J"))
			p.same(fmt.Sprintf("after a redraw at %d x %d", cols, rows))
		}
	}
}
