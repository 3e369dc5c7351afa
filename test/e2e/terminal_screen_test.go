package e2e

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/internal/agent/terminal/screen"
	"github.com/pandovm/pando/internal/testlab"
	pando "github.com/pandovm/pando/sdk"
)

const scrollback = 1 << 20

// eyes are a client with a terminal of 80 columns and 24 rows.
type eyes struct {
	t      *testing.T
	term   *pando.Terminal
	screen *screen.Screen
}

func newEyes(t *testing.T, term *pando.Terminal) *eyes {
	t.Helper()
	t.Cleanup(func() { _ = term.Close() })
	return &eyes{t, term, screen.New(80, 24, scrollback, 10000)}
}

// read shows what comes next, and tells whether there is more.
func (e *eyes) read() bool {
	e.t.Helper()
	buf := make([]byte, 32<<10)
	n, err := e.term.Read(buf)
	_ = e.screen.Feed(buf[:n], nil)
	if asked := e.screen.Replies(); len(asked) > 0 {
		e.t.Errorf("the viewer's terminal was asked something, and answers %q", asked)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		e.t.Fatal(err)
	}
	return err == nil
}

// until reads until the screen shows want.
func (e *eyes) until(want string) {
	e.t.Helper()
	for !slices.ContainsFunc(e.screen.Text(), func(line string) bool { return strings.Contains(line, want) }) {
		if !e.read() {
			e.t.Fatalf("it ended before it showed %q:\n%s", want, strings.Join(e.screen.Text(), "\n"))
		}
	}
}

func (e *eyes) toTheEnd() {
	e.t.Helper()
	for e.read() {
	}
}

func (e *eyes) same(other *eyes, who string) {
	e.t.Helper()
	if diff := cmp.Diff(e.screen.Text(), other.screen.Text()); diff != "" {
		e.t.Errorf("%s sees another screen (-first viewer, +%s):\n%s", who, who, diff)
		return
	}
	if want, got := e.screen.Snapshot(nil, scrollback), other.screen.Snapshot(nil, scrollback); !bytes.Equal(want, got) {
		e.t.Errorf("%s sees the same text in another state:\n%q\n%q", who, want, got)
	}
}

// Whoever attaches in the middle of a full-screen program, or after its end,
// has the very screen of who was there from the beginning. The program is
// killed, so that it cannot tidy up, and both have seen all there is to see.
func TestTerminalInTheMiddleOfAProgram(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	l.Run(v.ID, "seq 1 3000 > /tmp/numbers; seq -s ' ' 1 600 > /tmp/long; echo 'wide 漢字 and é' >> /tmp/long")
	for name, c := range map[string]struct {
		exec, begun string
		// before is typed once begun is shown, and leads to shown; then the second
		// comes and types after, which leads to last.
		before, shown, after, last string
	}{
		"less":  {"exec less /tmp/numbers", "20", " ", "40", "G", "2999"},
		"vi":    {"exec vi /tmp/long", "wide", "ofirst\x1b", "first", "Gosecond 漢\x1b", "second"},
		"shell": {"exec sh", "", "printf '\\033[1;31mred\\033[0m \\033[?1h\\033[3;20r'; echo mar''ked\n", "marked", "seq 1 100; echo la''st\n", "last"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			terminals := l.Client.VMs.Terminals(v.ID)
			term, err := terminals.Open(t.Context(), pando.TerminalOptions{Exec: c.exec, Slug: name})
			if err != nil {
				t.Fatal(err)
			}
			first := newEyes(t, term)
			first.until(c.begun)
			typed(t, term, c.before)
			first.until(c.shown)
			second := newEyes(t, attached(t, l, v.ID, name))
			second.until(c.shown)
			typed(t, second.term, c.after)
			first.until(c.last)
			if err := term.Signal("sigkill"); err != nil {
				t.Fatal(err)
			}
			first.toTheEnd()
			second.toTheEnd()
			first.same(second, "the second viewer")
			third := newEyes(t, attached(t, l, v.ID, name))
			third.toTheEnd()
			first.same(third, "who comes after the end")
			if code, err := term.Wait(); code != 137 || err != nil {
				t.Errorf("ended with %d, %v", code, err)
			}
		})
	}
}

// Two clients have one terminal: both see what either types, and a change of
// size by one reaches the program and the other.
func TestTerminalOfTwo(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	one, err := l.Client.VMs.Terminals(v.ID).Open(t.Context(), pando.TerminalOptions{
		Exec: "while read x; do echo $x at $(stty size).; done; exit 5", Slug: "pair", Cols: 90, Rows: 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = one.Close() })
	two := attached(t, l, v.ID, "pair")
	typed(t, one, "from-one\n")
	typed(t, two, "from-two\n")
	for _, term := range []*pando.Terminal{one, two} {
		seen(t, term, "from-two at 20 90.")
	}
	if err := two.Resize(120, 33); err != nil {
		t.Fatal(err)
	}
	typed(t, two, "larger\n")
	for _, term := range []*pando.Terminal{one, two} {
		seen(t, term, "larger at 33 120.")
	}
	list, err := l.Client.VMs.Terminals(v.ID).List(t.Context())
	if err != nil || len(list) != 1 || list[0].Cols != 120 || list[0].Rows != 33 || list[0].Viewers != 2 {
		t.Errorf("sessions %+v, %v", list, err)
	}
	typed(t, one, "\x04")
	for _, term := range []*pando.Terminal{one, two} {
		if _, err := io.Copy(io.Discard, term); err != nil {
			t.Error(err)
		}
		if code, err := term.Wait(); code != 5 || err != nil {
			t.Errorf("ended with %d, %v", code, err)
		}
	}
}
