package screen

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// Snapshot appends the bytes that bring a terminal of the same size into this
// state, whatever it was in before: a reset, the newest scrollback of at most
// that many bytes, both screens, and everything else.
func (s *Screen) Snapshot(b []byte, scrollback int) []byte {
	b = append(b, "\x1bc\x1b[3J"...)
	w := writer{s: s, b: b}
	s.history.last(scrollback, w.line)
	s.main[0].joined = s.main[0].joined && w.begun
	for _, r := range s.main {
		w.row(r)
	}
	return s.appendBegun(s.appendTitles(s.finishSnapshot(w.b)))
}

// Redraw is Snapshot without the reset, for a terminal whose state differs in
// what is where, but not in modes: after a change of its size. It keeps its
// scrollback.
func (s *Screen) Redraw(b []byte) []byte {
	if s.onAlt {
		b = append(b, "\x1b[?1049l"...)
	}
	b = append(b, "\x1b[!p\x1b[?7h\x1b[m\x1b[H\x1b[2J"...)
	s.main[0].joined = false
	w := writer{s: s, b: b}
	for _, r := range s.main {
		w.row(r)
	}
	return s.appendBegun(s.finishSnapshot(w.b))
}

func (s *Screen) finishSnapshot(b []byte) []byte {
	b = s.appendTabStops(b)
	b = s.appendSaved(b, s.saved[0])
	if s.onAlt {
		// The cursor is the saved one, so saving it again changes nothing.
		b = append(b, "\x1b[?1049h"+neutral+"\x1b[H"...)
		s.alt[0].joined = false
		w := writer{s: s, b: b}
		for _, r := range s.alt {
			w.row(r)
		}
		b = s.appendSaved(w.b, s.saved[1])
	}
	b = s.appendCursor(b)
	b = s.appendModes(b)
	return b
}

// appendBegun appends what the terminal must have seen of a string that is
// passed on as it comes.
func (s *Screen) appendBegun(b []byte) []byte {
	if s.parser.passing {
		b = append(b, s.parser.held...)
	}
	return b
}

// writer writes lines one below the other, so that those that were joined are
// joined again: each is written over the edge of the one before.
type writer struct {
	s     *Screen
	b     []byte
	begun bool
	width int // of the line before
}

func (w *writer) between(joined bool) {
	switch {
	case !w.begun:
	case !joined:
		w.b = append(w.b, "\r\n"...)
	default:
		if over := w.width % w.s.cols; over > 0 || w.width == 0 {
			w.pad(w.s.cols - over)
		}
		// The edge is crossed with the default pen: a line that is scrolled in
		// takes the background of the moment.
		w.b = append(w.b, " \b"...)
	}
	w.begun = true
}

func (w *writer) pad(n int) {
	for range n {
		w.b = append(w.b, ' ')
	}
}

func (w *writer) line(l line) {
	w.between(l.joined)
	w.b = append(w.b, l.text...)
	if w.width = l.width; l.width > w.s.cols {
		w.width = columns(l.text, w.s.cols) // it is from a wider terminal, and wraps
	}
}

// columns is how many columns the text of a line takes that wraps in a terminal
// of cols columns, with those that are left free before wide characters.
func columns(text []byte, cols int) int {
	n := 0
	for len(text) > 0 {
		if text[0] == 0x1b {
			text = text[bytes.IndexByte(text, 'm')+1:]
			continue
		}
		r, size := utf8.DecodeRune(text)
		text = text[size:]
		width := min(widthOf(r), cols)
		if left := cols - n%cols; width > left {
			n += left
		}
		n += width
	}
	return n
}

func (w *writer) row(r *row) {
	w.between(r.joined)
	w.width = r.used()
	w.b = appendCells(w.b, r, w.width)
}

// appendCells appends the text of the first columns of a line, which begins and
// ends with the default pen.
func appendCells(b []byte, r *row, width int) []byte {
	var now pen
	for x := range width {
		c := r.at(x)
		if c.attr&tail != 0 {
			continue
		}
		if p := c.plain(); p != now {
			now = p
			b = appendPen(b, now)
		}
		b = appendText(b, r, x, c)
	}
	if now != (pen{}) {
		b = append(b, "\x1b[m"...)
	}
	return b
}

func appendText(b []byte, r *row, x int, c cell) []byte {
	if c.ch == 0 {
		b = append(b, ' ')
	} else {
		b = utf8.AppendRune(b, c.ch)
	}
	return append(b, r.marks[x]...)
}

func appendPlace(b []byte, x, y int) []byte {
	b = append(b, "\x1b["...)
	b = strconv.AppendInt(b, int64(y+1), 10)
	b = append(b, ';')
	b = strconv.AppendInt(b, int64(x+1), 10)
	return append(b, 'H')
}

// neutral undoes what appendSaved leaves behind.
const neutral = "\x1b[?6l\x1b(B\x1b)B\x1b*B\x1b+B\x0f\x1b[m"

// appendSaved makes the terminal save c as its cursor, and leaves it at that.
// The margins are then none.
func (s *Screen) appendSaved(b []byte, c cursor) []byte {
	b = append(b, "\x1b[r"...)
	if c.origin {
		b = append(b, "\x1b[?6h"...)
	}
	b = appendPlace(b, min(c.x, s.cols-1), min(c.y, s.rows-1))
	b = appendPen(b, c.pen)
	b = appendSets(b, c)
	b = append(b, "\x1b7"...)
	return b
}

func appendSets(b []byte, c cursor) []byte {
	for i, set := range c.sets {
		b = append(b, 0x1b, "()*+"[i], set)
	}
	switch c.shift {
	case 0:
		return append(b, 0x0f)
	case 1:
		return append(b, 0x0e)
	case 2:
		return append(b, "\x1bn"...)
	default:
		return append(b, "\x1bo"...)
	}
}

// appendCursor sets margins, origin mode, cursor, pen and charsets. All that
// moves the cursor comes before it, and all that changes what is written after.
func (s *Screen) appendCursor(b []byte) []byte {
	b = append(b, neutral...)
	if s.top != 0 || s.bottom != s.rows-1 {
		b = append(b, "\x1b["...)
		b = strconv.AppendInt(b, int64(s.top+1), 10)
		b = append(b, ';')
		b = strconv.AppendInt(b, int64(s.bottom+1), 10)
		b = append(b, 'r')
	}
	x, y := s.x, s.y
	line := s.lines()[y]
	if s.full && x > 0 && line.at(x).attr&tail != 0 {
		x--
	}
	if s.is(modeOrigin) {
		b = append(b, "\x1b[?6h"...)
		y -= s.top
	}
	b = appendPlace(b, x, y)
	if s.full {
		// Only a character in the last column brings this state back.
		b = appendPen(b, line.at(x).pen)
		b = appendText(b, line, x, line.at(x))
	}
	b = appendPen(b, s.pen)
	return appendSets(b, s.cursor)
}

func (s *Screen) appendModes(b []byte) []byte {
	for _, n := range [...]int{4, 20} {
		b = appendMode(b, "", n, s.is(ansiBit(n)))
	}
	for _, n := range [...]int{1, 5, 7, 12, 25, 45, 66, 1004, 1007, 2004} {
		b = appendMode(b, "?", n, s.is(privateBit(n)))
	}
	for _, n := range [...]int{9, 1000, 1002, 1003, 1005, 1006, 1015, 1016} {
		if n != s.mouse && n != s.encoding {
			b = appendMode(b, "?", n, false)
		}
	}
	for _, n := range [...]int{s.mouse, s.encoding} {
		if n != 0 {
			b = appendMode(b, "?", n, true)
		}
	}
	b = append(b, "\x1b["...)
	b = strconv.AppendInt(b, int64(s.shape), 10)
	b = append(b, " q\x1b[>4;"...)
	b = strconv.AppendInt(b, int64(s.otherKeys), 10)
	return append(b, 'm')
}

func appendMode(b []byte, prefix string, n int, on bool) []byte {
	b = append(append(b, "\x1b["...), prefix...)
	b = strconv.AppendInt(b, int64(n), 10)
	if on {
		return append(b, 'h')
	}
	return append(b, 'l')
}

func (s *Screen) appendTabStops(b []byte) []byte {
	usual := true
	for x, stop := range s.tabs {
		usual = usual && stop == (x > 0 && x%8 == 0)
	}
	if usual {
		return b
	}
	b = append(b, "\x1b[3g"...)
	for x, stop := range s.tabs {
		if stop {
			b = append(appendPlace(b, x, 0), "\x1bH"...)
		}
	}
	return b
}

func (s *Screen) appendTitles(b []byte) []byte {
	for _, t := range s.titles {
		b = appendTitle(b, '2', t)
		b = append(b, "\x1b[22;2t"...)
	}
	if s.icon != "" {
		b = appendTitle(b, '1', s.icon)
	}
	if s.title != "" || len(s.titles) > 0 {
		b = appendTitle(b, '2', s.title)
	}
	return b
}

func appendTitle(b []byte, which byte, text string) []byte {
	b = append(b, 0x1b, ']', which, ';')
	b = append(b, text...)
	return append(b, 0x07)
}
