package screen

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// execute carries a control character out.
func (s *Screen) execute(b byte) {
	s.last = 0
	switch b {
	case 0x05: // ENQ: an empty answer is an answer
		return
	case '\b':
		if s.x > 0 && !s.full {
			s.x--
		}
		s.full = false
	case '\t':
		s.tab(1)
	case '\n', '\v', '\f':
		s.lineFeed()
		if s.is(modeNewline) {
			s.x = 0
		}
	case '\r':
		s.x, s.full = 0, false
	case 0x0e:
		s.shift = 1
	case 0x0f:
		s.shift = 0
	}
	if b != 0x7f {
		s.live = append(s.live, b)
	}
}

// dispatchControl carries a control sequence out, and tells whether viewers get
// it.
func (s *Screen) dispatchControl(final byte) bool {
	q := &s.parser
	if q.private == '?' {
		return s.private(final)
	}
	if q.private != 0 {
		return s.extended(final)
	}
	switch q.middle {
	case 0:
		return s.standard(final)
	case ' ':
		if final == 'q' {
			s.shape = min(s.param(0, 0), 6)
		}
	case '!':
		if final == 'p' {
			s.softReset()
		}
	case '$':
		if final == 'p' {
			s.reportMode("", s.param(0, 0), s.ansiMode)
			return false
		}
	case '*', '\'':
		return false
	}
	return true
}

// standard is for sequences without a prefix.
func (s *Screen) standard(final byte) bool {
	n := s.param(0, 1)
	switch final {
	case 'A', 'k', 'B', 'e', 'C', 'a', 'D', 'j', 'E', 'F', 'G', '`', 'd', 'H', 'f', 'I', 'Z':
		s.motion(final, n)
	case 'J':
		s.eraseDisplay(s.param(0, 0))
	case 'K':
		s.eraseLine(s.param(0, 0))
	case 'L', 'M':
		s.insertLines(final, n)
	case '@':
		s.shiftRight(s.lines()[s.y], s.x, n)
	case 'P':
		s.shiftLeft(s.lines()[s.y], s.x, n)
	case 'X':
		s.erase(s.y, s.x, min(s.x+n, s.cols))
	case 'S':
		s.full = false
		s.scrollUp(s.top, s.bottom, n)
	case 'T':
		s.full = false
		if s.parser.count > 1 {
			return false // highlight tracking of the mouse
		}
		s.scrollDown(s.top, s.bottom, n)
	case 'b':
		s.repeat(n)
		return false
	case 'm':
		s.selectGraphics()
	case 'r':
		s.setMargins()
	case 's':
		s.save()
	case 'u':
		s.restore()
	case 'g':
		s.clearTabs(s.param(0, 0))
	case 'h', 'l':
		s.setModes(final == 'h', s.setANSI)
	case 'n':
		s.report(s.param(0, 0), "")
		return false
	case 'c':
		s.reply("\x1b[?62;22c")
		return false
	case 't':
		return s.window()
	case 'x', 'q', 'i':
		return false
	}
	return true
}

// motion moves the cursor.
func (s *Screen) motion(final byte, n int) {
	switch final {
	case 'A', 'k':
		s.vertical(-n)
	case 'B', 'e':
		s.vertical(n)
	case 'C', 'a':
		s.move(s.x+n, s.y)
	case 'D', 'j':
		s.move(s.x-n, s.y)
	case 'E':
		s.vertical(n)
		s.x = 0
	case 'F':
		s.vertical(-n)
		s.x = 0
	case 'G', '`':
		s.move(n-1, s.y)
	case 'd':
		s.moveTo(s.x, n-1)
	case 'H', 'f':
		s.moveTo(s.param(1, 1)-1, n-1)
	case 'I':
		s.tab(n)
	case 'Z':
		s.tab(-n)
	}
}

// vertical moves up or down, and stops at a margin unless it begins beyond it.
func (s *Screen) vertical(n int) {
	low, high := 0, s.rows-1
	if s.y >= s.top {
		low = s.top
	}
	if s.y <= s.bottom {
		high = s.bottom
	}
	s.move(s.x, min(max(s.y+n, low), high))
}

func (s *Screen) eraseDisplay(what int) {
	switch what {
	case 0:
		s.erase(s.y, s.x, s.cols)
		for y := s.y + 1; y < s.rows; y++ {
			s.erase(y, 0, s.cols)
		}
	case 1:
		for y := range s.y {
			s.erase(y, 0, s.cols)
		}
		s.erase(s.y, 0, s.x+1)
	case 2:
		for y := range s.rows {
			s.erase(y, 0, s.cols)
		}
	case 3:
		s.history.clear()
	}
}

func (s *Screen) eraseLine(what int) {
	switch what {
	case 0:
		s.erase(s.y, s.x, s.cols)
	case 1:
		s.erase(s.y, 0, s.x+1)
	case 2:
		s.erase(s.y, 0, s.cols)
	}
}

func (s *Screen) insertLines(final byte, n int) {
	if s.y < s.top || s.y > s.bottom {
		return
	}
	if final == 'L' {
		s.scrollDown(s.y, s.bottom, n)
	} else {
		s.deleteLines(n)
	}
	s.x, s.full = 0, false
}

// deleteLines is scrollUp that keeps nothing.
func (s *Screen) deleteLines(n int) {
	lines := s.lines()[s.y : s.bottom+1]
	for range min(n, len(lines)) {
		first := lines[0]
		copy(lines, lines[1:])
		first.reset(s.cols, s.blank())
		lines[len(lines)-1] = first
	}
	s.part(s.bottom + 1)
}

// repeat writes the last character n times more. Viewers get the characters:
// one that has just come does not know which it was.
func (s *Screen) repeat(n int) {
	r := s.last
	if r == 0 {
		return
	}
	for range min(n, s.cols) {
		s.live = utf8.AppendRune(s.live, r)
		s.print(r)
	}
}

func (s *Screen) setMargins() {
	top, bottom := s.param(0, 1)-1, min(s.param(1, s.rows), s.rows)-1
	if top >= bottom {
		return
	}
	s.top, s.bottom = top, bottom
	s.moveTo(0, 0)
}

func (s *Screen) clearTabs(what int) {
	switch what {
	case 0:
		s.tabs[s.x] = false
	case 3:
		clear(s.tabs)
	}
}

// report answers DSR.
func (s *Screen) report(what int, prefix string) {
	switch {
	case what == 5 && prefix == "":
		s.reply("\x1b[0n")
	case what == 6:
		y := s.y
		if s.is(modeOrigin) {
			y -= s.top
		}
		s.reply("\x1b[" + prefix + strconv.Itoa(y+1) + ";" + strconv.Itoa(s.x+1) + "R")
	}
}

// window is for sequences about the window, most of which are nobody's business.
func (s *Screen) window() bool {
	const most = 16
	switch s.param(0, 0) {
	case 18:
		s.reply(fmt.Sprintf("\x1b[8;%d;%dt", s.rows, s.cols))
	case 22:
		if len(s.titles) < most {
			s.titles = append(s.titles, s.title)
			return true
		}
	case 23:
		if n := len(s.titles); n > 0 {
			s.title, s.titles = s.titles[n-1], s.titles[:n-1]
			return true
		}
	}
	return false
}

// extended is for sequences with < = or >.
func (s *Screen) extended(final byte) bool {
	switch {
	case final == 'c':
		if s.parser.private == '>' {
			s.reply("\x1b[>1;10;0c")
		}
		return false
	case final == 'q':
		s.reply("\x1bP>|pando\x1b\\")
		return false
	case final == 'm' && s.parser.private == '>':
		if s.param(0, 0) == 4 {
			s.otherKeys = min(s.param(1, 0), 2)
		}
		return s.param(0, 4) == 4
	case final == 'u' || final == 't' || final == 'p':
		return false
	}
	return true
}
