package screen

import "strconv"

// private is for sequences with a question mark.
func (s *Screen) private(final byte) bool {
	if s.parser.middle == '$' && final == 'p' {
		s.reportMode("?", s.param(0, 0), s.privateMode)
		return false
	}
	if s.parser.middle != 0 {
		return true
	}
	switch final {
	case 'h', 'l':
		s.setModes(final == 'h', s.setPrivate)
		return s.parser.count != 1 || shownMode(s.parser.params[0])
	case 'J':
		s.eraseDisplay(s.param(0, 0))
	case 'K':
		s.eraseLine(s.param(0, 0))
	case 'n':
		s.report(s.param(0, 0), "?")
		return false
	case 'c', 'u', 'S':
		return false
	case 's', 'r':
		return false // saved modes are not kept
	}
	return true
}

// shownMode tells whether viewers get the mode: not those that would make their
// terminals differ from this one.
func shownMode(n int) bool {
	switch n {
	case 2, 3, 38, 40, 69:
		return false
	}
	return true
}

func (s *Screen) setModes(on bool, set func(n int, on bool)) {
	for i := range s.parser.count {
		set(s.parser.params[i], on)
	}
}

func (s *Screen) setANSI(n int, on bool) {
	s.put(ansiBit(n), on)
}

func ansiBit(n int) mode {
	switch n {
	case 4:
		return modeInsert
	case 20:
		return modeNewline
	}
	return 0
}

// privateBits are the private modes that are just on or off.
func privateBit(n int) mode {
	switch n {
	case 1:
		return modeCursorKeys
	case 5:
		return modeReverse
	case 6:
		return modeOrigin
	case 7:
		return modeWrap
	case 12:
		return modeBlink
	case 25:
		return modeVisible
	case 45:
		return modeReverseWrap
	case 66:
		return modeKeypad
	case 1004:
		return modeFocus
	case 1007:
		return modeAltScroll
	case 2004:
		return modePaste
	}
	return 0
}

func (s *Screen) setPrivate(n int, on bool) {
	switch n {
	case 9, 1000, 1002, 1003:
		s.mouse = choose(s.mouse, n, on)
	case 1005, 1006, 1015, 1016:
		s.encoding = choose(s.encoding, n, on)
	case 47, 1047:
		s.switchScreen(on)
	case 1048:
		s.keepCursor(on)
	case 1049:
		if on && !s.onAlt {
			s.save()
			s.enterAlt()
		} else if !on && s.onAlt {
			s.leaveAlt()
			s.restore()
		}
	case 6:
		s.put(modeOrigin, on)
		s.moveTo(0, 0)
	case 7:
		s.full = s.full && on
		s.put(modeWrap, on)
	default:
		s.put(privateBit(n), on)
	}
}

func (s *Screen) switchScreen(alt bool) {
	if alt {
		s.enterAlt()
	} else {
		s.leaveAlt()
	}
}

func (s *Screen) keepCursor(on bool) {
	if on {
		s.save()
	} else {
		s.restore()
	}
}

// choose sets one of several modes of which only one can be on.
func choose(now, n int, on bool) int {
	switch {
	case on:
		return n
	case now == n:
		return 0
	}
	return now
}

// reportMode answers DECRQM: 1 on, 2 off, 0 unknown.
func (s *Screen) reportMode(prefix string, n int, state func(int) int) {
	s.reply("\x1b[" + prefix + strconv.Itoa(n) + ";" + strconv.Itoa(state(n)) + "$y")
}

func onOff(on bool) int {
	if on {
		return 1
	}
	return 2
}

func (s *Screen) ansiMode(n int) int {
	if ansiBit(n) == 0 {
		return 0
	}
	return onOff(s.is(ansiBit(n)))
}

func (s *Screen) privateMode(n int) int {
	switch n {
	case 9, 1000, 1002, 1003:
		return onOff(s.mouse == n)
	case 1005, 1006, 1015, 1016:
		return onOff(s.encoding == n)
	case 47, 1047, 1049:
		return onOff(s.onAlt)
	}
	if privateBit(n) == 0 {
		return 0
	}
	return onOff(s.is(privateBit(n)))
}
