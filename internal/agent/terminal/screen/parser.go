package screen

import "unicode/utf8"

// state is where the parser is.
type state uint8

const (
	ground state = iota
	escape
	escapeMid // intermediate bytes have come
	control   // CSI: parameters
	controlMid
	controlBad
	osc    // until BEL or ST
	device // DCS, SOS, PM, APC: until ST
)

const (
	// maxSequence bounds an escape or control sequence; a longer one is nothing.
	maxSequence = 256
	// maxString bounds a string that is kept until its end; a longer one is
	// passed on as it comes and means nothing here.
	maxString = 64 << 10
	maxParams = 32
)

// parser takes sequences apart.
type parser struct {
	state state
	// held are the bytes of the sequence, or of the character, that has begun.
	held []byte
	// passing is set in a string that was too long to hold; inString then says
	// that an ESC has come that may end it.
	passing   bool
	stringESC bool

	private byte // one of <=>? after CSI
	middle  byte // the last intermediate byte
	params  [maxParams]int
	joined  [maxParams]bool // parameter follows a colon
	count   int
}

// Feed takes output of the program and appends to live what viewers get of it.
func (s *Screen) Feed(p, live []byte) []byte {
	s.live = live
	for len(p) > 0 {
		if s.parser.state == ground {
			p = s.text(p)
			continue
		}
		s.sequence(p[0])
		p = p[1:]
	}
	live, s.live = s.live, nil
	return live
}

// text takes the characters at the beginning of p, and returns what begins
// with something else.
func (s *Screen) text(p []byte) []byte {
	if len(s.parser.held) > 0 {
		return s.finishRune(p)
	}
	start, i := 0, 0
	for i < len(p) {
		b := p[i]
		if b < 0x20 || b == 0x7f {
			break
		}
		if b < utf8.RuneSelf {
			s.print(rune(b))
			i++
			continue
		}
		if !utf8.FullRune(p[i:]) {
			s.live = append(s.live, p[start:i]...)
			s.parser.held = append(s.parser.held[:0], p[i:]...)
			return nil
		}
		r, n := utf8.DecodeRune(p[i:])
		if n == 1 || r < 0xa0 {
			s.live = append(s.live, p[start:i]...)
			start = i + n
			s.odd(r)
		} else {
			s.print(r)
		}
		i += n
	}
	s.live = append(s.live, p[start:i]...)
	if i == len(p) {
		return nil
	}
	s.control(p[i])
	return p[i+1:]
}

// finishRune completes a character that was cut between two calls.
func (s *Screen) finishRune(p []byte) []byte {
	h := append(s.parser.held, p[:min(len(p), utf8.UTFMax-len(s.parser.held))]...)
	if !utf8.FullRune(h) {
		s.parser.held = h
		return nil
	}
	had := len(s.parser.held)
	s.parser.held = s.parser.held[:0]
	r, n := utf8.DecodeRune(h)
	// Bytes that began no character stand for themselves, one by one.
	if n < had {
		for range had {
			s.odd(utf8.RuneError)
		}
		return p
	}
	if n == 1 || r < 0xa0 {
		s.odd(r)
	} else {
		s.print(r)
		s.live = append(s.live, h[:n]...)
	}
	return p[n-had:]
}

// odd takes a byte that is no character, and controls in their old form, of
// which each terminal makes something else: here and for viewers, the first
// shows as U+FFFD and the others are nothing.
func (s *Screen) odd(r rune) {
	if r == utf8.RuneError {
		s.print(r)
		s.live = utf8.AppendRune(s.live, r)
	}
}

// control takes a control character outside of a sequence.
func (s *Screen) control(b byte) {
	if b == 0x1b {
		s.begin()
		return
	}
	s.execute(b)
}

func (s *Screen) begin() {
	s.parser.state = escape
	s.parser.held = append(s.parser.held[:0], 0x1b)
	s.parser.passing, s.parser.stringESC = false, false
}

// rest ends the sequence.
func (s *Screen) rest() {
	s.parser.state = ground
	s.parser.held = s.parser.held[:0]
	s.parser.passing, s.parser.stringESC = false, false
	if cap(s.parser.held) > 4<<10 {
		s.parser.held = nil
	}
}

// sequence takes the next byte of a sequence.
func (s *Screen) sequence(b byte) {
	q := &s.parser
	if q.state >= osc {
		s.string(b)
		return
	}
	switch {
	case b == 0x1b:
		s.begin()
	case b == 0x18 || b == 0x1a:
		s.rest()
	case b < 0x20:
		s.execute(b)
	case b == 0x7f:
	case b >= 0x80:
		// No sequence has such a byte: it begins a character.
		s.rest()
		s.text([]byte{b})
	default:
		if len(q.held) < maxSequence {
			q.held = append(q.held, b)
		} else if q.state != escape {
			q.state = controlBad
		}
		s.advance(b)
	}
}

// advance is sequence for bytes that sequences are made of.
func (s *Screen) advance(b byte) {
	switch s.parser.state {
	case escape, escapeMid:
		s.advanceEscape(b)
	case control:
		s.advanceControl(b)
	case controlMid:
		switch {
		case b < 0x30:
			s.parser.middle = b
		case b < 0x40:
			s.parser.state = controlBad
		default:
			s.finish(s.dispatchControl, b)
		}
	case controlBad:
		if b >= 0x40 {
			s.rest()
		}
	case ground, osc, device:
	}
}

func (s *Screen) advanceEscape(b byte) {
	q := &s.parser
	switch {
	case b < 0x30:
		q.state, q.middle = escapeMid, b
	case q.state == escapeMid:
		s.finish(s.dispatchEscape, b)
	case b == '[':
		q.state, q.private, q.middle, q.count = control, 0, 0, 0
		q.params[0], q.joined[0] = 0, false
	case b == ']':
		q.state = osc
	case b == 'P' || b == 'X' || b == '^' || b == '_':
		q.state = device
	default:
		q.middle = 0
		s.finish(s.dispatchEscape, b)
	}
}

func (s *Screen) advanceControl(b byte) {
	q := &s.parser
	switch {
	case b >= '0' && b <= '9':
		q.count = max(q.count, 1)
		q.params[q.count-1] = min(q.params[q.count-1]*10+int(b-'0'), 65535)
	case b == ';' || b == ':':
		q.count = max(q.count, 1)
		if q.count == maxParams {
			q.state = controlBad
			return
		}
		q.params[q.count], q.joined[q.count] = 0, b == ':'
		q.count++
	case b >= 0x3c && b <= 0x3f:
		if len(q.held) != 3 {
			q.state = controlBad
			return
		}
		q.private = b
	case b < 0x30:
		q.state, q.middle = controlMid, b
	default:
		s.finish(s.dispatchControl, b)
	}
}

// finish carries a complete sequence out, and shows it to viewers unless it was
// none of their business.
func (s *Screen) finish(dispatch func(byte) bool, b byte) {
	if dispatch(b) {
		s.live = append(s.live, s.parser.held...)
	}
	s.last = 0
	s.rest()
}

// string takes the next byte of a string.
func (s *Screen) string(b byte) {
	q := &s.parser
	if q.stringESC {
		q.stringESC = false
		if b == '\\' {
			s.endString(0x1b, b)
			return
		}
		s.breakString()
		s.begin()
		s.sequence(b)
		return
	}
	switch {
	case b == 0x1b:
		q.stringESC = true
	case b == 0x18 || b == 0x1a:
		s.breakString()
		s.rest()
	case b == 0x07 && q.state == osc:
		s.endString(b)
	case b < 0x20 && q.state == osc:
	case q.passing:
		s.live = append(s.live, b)
	case len(q.held) >= maxString:
		q.passing = true
		s.live = append(append(s.live, q.held...), b)
		q.held = q.held[:2]
	default:
		q.held = append(q.held, b)
	}
}

func (s *Screen) breakString() {
	if s.parser.passing {
		s.live = append(s.live, 0x18)
	}
}

func (s *Screen) endString(end ...byte) {
	q := &s.parser
	s.last = 0
	if q.passing || s.dispatchString() {
		if !q.passing {
			s.live = append(s.live, q.held...)
		}
		s.live = append(s.live, end...)
	}
	s.rest()
}

// param returns parameter i, or what stands for one that is 0 or missing.
func (s *Screen) param(i, missing int) int {
	if i >= s.parser.count || s.parser.params[i] == 0 {
		return missing
	}
	return s.parser.params[i]
}
