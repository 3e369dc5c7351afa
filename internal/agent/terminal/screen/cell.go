package screen

import "strconv"

// color is 0 for the default, palette|index or direct|rgb.
type color uint32

const (
	palette color = 1 << 24
	direct  color = 2 << 24
)

// attr are the attributes of a character. The underline's kind (0 none, 1
// single … 5 dashed) is a number of three bits.
type attr uint16

const (
	bold attr = 1 << iota
	dim
	italic
	blink
	inverse
	hidden
	strike
	overline

	underlineShift      = 8
	underline      attr = 7 << underlineShift

	// wide is set in the first cell of a character of two columns, tail in the
	// second.
	wide attr = 1 << 11
	tail attr = 1 << 12
)

// pen is what characters are written with.
type pen struct {
	fg, bg, line color
	attr         attr
}

// cell is one place on the screen. The zero value is blank; a space is blank.
type cell struct {
	ch rune
	pen
}

// row is one line. Cells beyond its end are blank.
type row struct {
	cells []cell
	// joined says that the line goes on the one above, which was full.
	joined bool
	// marks holds the combining characters of cells; nil if there are none.
	marks map[int]string
}

func (r *row) at(x int) cell {
	if x < len(r.cells) {
		return r.cells[x]
	}
	return cell{}
}

// set writes a cell without marks.
func (r *row) set(x int, c cell) {
	for len(r.cells) <= x {
		r.cells = append(r.cells, cell{})
	}
	r.cells[x] = c
	if r.marks != nil {
		delete(r.marks, x)
	}
}

// mark adds a combining character to a cell, as far as there is room for it.
func (r *row) mark(x int, ch rune) {
	const most = 32
	text := r.marks[x] + string(ch)
	if len(text) > most {
		return
	}
	if r.marks == nil {
		r.marks = map[int]string{}
	}
	r.marks[x] = text
}

// reset makes the line blank with a background, which is often the default.
func (r *row) reset(cols int, blank cell) {
	r.cells, r.joined, r.marks = r.cells[:0], false, nil
	if blank != (cell{}) {
		for range cols {
			r.cells = append(r.cells, blank)
		}
	}
}

// used is the number of columns up to the last that is not blank.
func (r *row) used() int {
	n := len(r.cells)
	for n > 0 && r.cells[n-1] == (cell{}) && r.marks[n-1] == "" {
		n--
	}
	return n
}

// cut makes the line fit into cols columns.
func (r *row) cut(cols int) {
	if len(r.cells) <= cols {
		return
	}
	if r.cells[cols].attr&tail != 0 {
		r.set(cols-1, cell{pen: r.cells[cols-1].plain()})
	}
	r.cells = r.cells[:cols]
	for x := range r.marks {
		if x >= cols {
			delete(r.marks, x)
		}
	}
}

// plain is p without what belongs to a cell.
func (p pen) plain() pen {
	p.attr &^= wide | tail
	return p
}

// appendPen appends the sequence that selects p, whatever was selected before.
func appendPen(b []byte, p pen) []byte {
	b = append(b, "\x1b["...)
	if p.plain() == (pen{}) {
		return append(b, 'm')
	}
	b = append(b, '0')
	for bit, code := range [...]byte{'1', '2', '3', '5', '7', '8', '9'} {
		if p.attr&(1<<bit) != 0 {
			b = append(b, ';', code)
		}
	}
	if p.attr&overline != 0 {
		b = append(b, ";53"...)
	}
	switch u := p.attr & underline >> underlineShift; u {
	case 0:
	case 1:
		b = append(b, ";4"...)
	default:
		b = append(b, ";4:"...)
		b = append(b, byte('0'+u))
	}
	b = appendColor(b, p.fg, 30)
	b = appendColor(b, p.bg, 40)
	b = appendColor(b, p.line, 50)
	return append(b, 'm')
}

// appendColor appends c; base is 30 for the foreground, 40 for the background
// and 50 for the underline.
func appendColor(b []byte, c color, base int) []byte {
	if c == 0 {
		return b
	}
	b = append(b, ';')
	if c&palette != 0 {
		n := int(c & 0xff)
		switch {
		case base != 50 && n < 8:
			return strconv.AppendInt(b, int64(base+n), 10)
		case base != 50 && n < 16:
			return strconv.AppendInt(b, int64(base+60+n-8), 10)
		}
		b = strconv.AppendInt(b, int64(base+8), 10)
		if base == 50 {
			b = append(b, ":5:"...)
		} else {
			b = append(b, ";5;"...)
		}
		return strconv.AppendInt(b, int64(n), 10)
	}
	separator, head := byte(';'), ";2"
	if base == 50 {
		separator, head = ':', ":2:"
	}
	b = strconv.AppendInt(b, int64(base+8), 10)
	b = append(b, head...)
	for shift := 16; shift >= 0; shift -= 8 {
		b = append(b, separator)
		b = strconv.AppendInt(b, int64(c>>shift&0xff), 10)
	}
	return b
}
