package cli

import "bytes"

// screenTrace follows what the output of a session does to the terminal, as far
// as it has to be undone in the end.
type screenTrace struct {
	used bool // anything at all was written
	alt  bool // the alternate screen is shown
	tail []byte
}

// note takes output. Sequences may be cut between two calls.
func (s *screenTrace) note(p []byte) {
	const longest = 8 // of the sequences below
	if len(p) == 0 {
		return
	}
	s.used = true
	both := append(s.tail, p...)
	last := -1
	for _, code := range []string{"\x1b[?1049", "\x1b[?1047", "\x1b[?47"} {
		for _, on := range []bool{true, false} {
			end := byte('l')
			if on {
				end = 'h'
			}
			if at := bytes.LastIndex(both, append([]byte(code), end)); at > last {
				last, s.alt = at, on
			}
		}
	}
	if at := bytes.LastIndex(both, []byte("\x1bc")); at > last {
		s.alt = false
	}
	s.tail = append([]byte(nil), both[max(0, len(both)-longest+1):]...)
}

// undo returns what makes the terminal an ordinary one again.
func (s *screenTrace) undo() string {
	const ordinary = "\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?1016l\x1b[?2004l" +
		"\x1b[?1l\x1b[?66l\x1b[?5l\x1b[?6l\x1b[?7h\x1b[?25h\x1b[4l\x1b[20l\x1b[>4;0m\x1b[0 q\x1b(B\x0f\x1b[m"
	if s.alt {
		return "\x1b[?1049l" + ordinary
	}
	return ordinary
}
