package screen

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// maxTitle bounds a title, in bytes.
const maxTitle = 1024

// dispatchEscape carries an escape sequence out, and tells whether viewers get
// it.
func (s *Screen) dispatchEscape(final byte) bool {
	switch m := s.parser.middle; m {
	case 0:
		return s.plainEscape(final)
	case '(', ')', '*', '+':
		return s.designate(int(m-'('), final)
	case '#':
		if final != '8' {
			return false // lines of double size
		}
		s.align()
	case '%', '-', '.', '/':
		return false // always UTF-8
	}
	return true
}

func (s *Screen) designate(set int, final byte) bool {
	if len(s.parser.held) != 3 {
		return false
	}
	if final != '0' {
		final = 'B'
		s.sets[set] = final
		s.live = append(s.live, 0x1b, s.parser.middle, final)
		return false
	}
	s.sets[set] = final
	return true
}

func (s *Screen) plainEscape(final byte) bool {
	switch final {
	case '7':
		s.save()
	case '8':
		s.restore()
	case 'D':
		s.lineFeed()
	case 'E':
		s.lineFeed()
		s.x = 0
	case 'H':
		s.tabs[s.x] = true
	case 'M':
		s.reverseLineFeed()
	case 'c':
		s.reset()
	case '=':
		s.put(modeKeypad, true)
	case '>':
		s.put(modeKeypad, false)
	case 'n':
		s.shift = 2
	case 'o':
		s.shift = 3
	case 'Z':
		s.reply("\x1b[?62;22c")
		return false
	case 'N', 'O', '|', '}', '~', '<', 'F', 'l', 'm':
		return false
	}
	return true
}

// align is DECALN.
func (s *Screen) align() {
	for _, r := range s.lines() {
		r.reset(0, cell{})
		for x := range s.cols {
			r.set(x, cell{ch: 'E'})
		}
	}
	s.top, s.bottom = 0, s.rows-1
	s.move(0, 0)
}

// dispatchString carries the string that has ended out, and tells whether
// viewers get it.
func (s *Screen) dispatchString() bool {
	body := s.parser.held[2:]
	if s.parser.state == device {
		return s.deviceString(body)
	}
	number, text, _ := bytes.Cut(body, []byte{';'})
	switch string(number) {
	case "0":
		s.title, s.icon = title(text), title(text)
	case "1":
		s.icon = title(text)
	case "2":
		s.title = title(text)
	}
	return true
}

// deviceString is for DCS and its relatives: questions are not passed on.
func (s *Screen) deviceString(body []byte) bool {
	if s.parser.held[1] != 'P' {
		return true
	}
	switch {
	case bytes.HasPrefix(body, []byte("$q")):
		s.reply("\x1bP0$r\x1b\\")
		return false
	case bytes.HasPrefix(body, []byte("+q")):
		s.reply("\x1bP0+r\x1b\\")
		return false
	}
	return true
}

// title makes a title out of what the program said: it will be part of another
// sequence.
func title(text []byte) string {
	var b strings.Builder
	for _, r := range string(text) {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
			continue
		}
		if b.Len() >= maxTitle-utf8.UTFMax {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
