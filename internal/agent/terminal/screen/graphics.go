package screen

// selectGraphics is SGR.
func (s *Screen) selectGraphics() {
	q := &s.parser
	if q.count == 0 {
		s.pen = pen{}
		return
	}
	for i := 0; i < q.count; {
		// A parameter and those that belong to it by colons.
		n := 1
		for i+n < q.count && q.joined[i+n] {
			n++
		}
		switch q.params[i] {
		case 38, 48, 58:
			n = s.selectColor(q.params[i], i, n)
		case 4:
			kind := 1
			if n > 1 {
				kind = min(q.params[i+1], 5)
			}
			s.underline(kind)
		default:
			s.selectGraphic(q.params[i])
		}
		i += n
	}
}

func (s *Screen) underline(kind int) {
	s.pen.attr = s.pen.attr&^underline | attr(kind)<<underlineShift
}

// selectColor sets the color whose parameters begin at i, of which n are joined
// by colons, and returns how many it took.
func (s *Screen) selectColor(target, i, n int) int {
	q := &s.parser
	args := q.params[i+1 : q.count]
	colons := n > 1
	if colons {
		args = q.params[i+1 : i+n]
	}
	if len(args) == 0 {
		return max(n, 1)
	}
	c, took, ok := color(0), 1, false
	switch {
	case args[0] == 5 && len(args) >= 2:
		c, took, ok = palette|color(args[1]&0xff), 2, args[1] < 256
	case args[0] == 2 && colons && len(args) >= 5: // with a color space
		c, ok = rgb(args[2:5]), true
	case args[0] == 2 && len(args) >= 4:
		c, took, ok = rgb(args[1:4]), 4, true
	}
	if ok {
		switch target {
		case 38:
			s.pen.fg = c
		case 48:
			s.pen.bg = c
		case 58:
			s.pen.line = c
		}
	}
	if colons {
		return n
	}
	return 1 + took
}

func rgb(v []int) color {
	return direct | color(v[0]&0xff)<<16 | color(v[1]&0xff)<<8 | color(v[2]&0xff)
}

func (s *Screen) selectGraphic(n int) {
	p := &s.pen
	switch {
	case n == 0:
		*p = pen{}
	case n >= 30 && n <= 37:
		p.fg = palette | color(n-30)
	case n >= 90 && n <= 97:
		p.fg = palette | color(n-90+8)
	case n >= 40 && n <= 47:
		p.bg = palette | color(n-40)
	case n >= 100 && n <= 107:
		p.bg = palette | color(n-100+8)
	case n == 39:
		p.fg = 0
	case n == 49:
		p.bg = 0
	case n == 59:
		p.line = 0
	case n == 21:
		s.underline(2)
	case n == 24:
		s.underline(0)
	default:
		on, off := attributeOf(n)
		p.attr = p.attr&^off | on
	}
}

// attributeOf returns what a parameter switches on and off.
func attributeOf(n int) (on, off attr) {
	switch n {
	case 1:
		return bold, 0
	case 2:
		return dim, 0
	case 3:
		return italic, 0
	case 5, 6:
		return blink, 0
	case 7:
		return inverse, 0
	case 8:
		return hidden, 0
	case 9:
		return strike, 0
	case 53:
		return overline, 0
	case 22:
		return 0, bold | dim
	case 23:
		return 0, italic
	case 25:
		return 0, blink
	case 27:
		return 0, inverse
	case 28:
		return 0, hidden
	case 29:
		return 0, strike
	case 55:
		return 0, overline
	}
	return 0, 0
}
