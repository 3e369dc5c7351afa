package screen

// print writes a character at the cursor.
func (s *Screen) print(r rune) {
	if r < 0x80 && s.sets[s.shift] == '0' {
		r = lineDrawing(r)
	}
	w := widthOf(r)
	if w == 0 {
		s.combine(r)
		return
	}
	if w == 2 && s.cols < 2 {
		r, w = ' ', 1 // there is no room for it anywhere
	}
	s.last = r
	if s.full || w == 2 && s.x == s.cols-1 && s.is(modeWrap) {
		s.x = 0
		s.lineFeed()
		s.lines()[s.y].joined = true
	}
	s.full = false
	if s.x+w > s.cols {
		s.x = s.cols - w
	}
	line := s.lines()[s.y]
	if s.is(modeInsert) {
		s.shiftRight(line, s.x, w)
	}
	s.write(line, s.x, w, r)
	if s.x += w; s.x >= s.cols {
		s.x = s.cols - 1
		s.full = s.is(modeWrap)
	}
}

// write sets the cells of a character, and blanks the halves that are left of
// wide ones below it.
func (s *Screen) write(line *row, x, w int, r rune) {
	s.split(line, x)
	s.split(line, x+w)
	c := cell{ch: r, pen: s.pen}
	if r == ' ' {
		c.ch = 0
	}
	if w == 1 {
		line.set(x, c)
		return
	}
	c.attr |= wide
	line.set(x, c)
	line.set(x+1, cell{pen: pen{attr: tail}})
}

// split blanks a wide character that lies on both sides of the left edge of x.
func (s *Screen) split(line *row, x int) {
	if x <= 0 || x >= s.cols || line.at(x).attr&tail == 0 {
		return
	}
	blank := cell{pen: line.at(x - 1).plain()}
	line.set(x-1, blank)
	line.set(x, blank)
}

// combine adds r to the character before the cursor.
func (s *Screen) combine(r rune) {
	x := s.x - 1
	if s.full {
		x = s.x
	}
	if x < 0 {
		return
	}
	line := s.lines()[s.y]
	if line.at(x).attr&tail != 0 {
		x--
	}
	for len(line.cells) <= x {
		line.cells = append(line.cells, cell{})
	}
	line.mark(x, r)
}

// lineFeed moves down, and scrolls at the bottom margin.
func (s *Screen) lineFeed() {
	switch {
	case s.y == s.bottom:
		s.scrollUp(s.top, s.bottom, 1)
	case s.y < s.rows-1:
		s.y++
	}
	s.full = false
}

func (s *Screen) reverseLineFeed() {
	switch {
	case s.y == s.top:
		s.scrollDown(s.top, s.bottom, 1)
	case s.y > 0:
		s.y--
	}
	s.full = false
}

// scrollUp moves the lines from top to bottom up by n. What leaves the main
// screen at its top is kept.
func (s *Screen) scrollUp(top, bottom, n int) {
	lines := s.lines()[top : bottom+1]
	for range min(n, len(lines)) {
		first := lines[0]
		if top == 0 && !s.onAlt {
			s.history.push(first)
		}
		copy(lines, lines[1:])
		first.reset(s.cols, s.blank())
		lines[len(lines)-1] = first
	}
	s.part(bottom + 1)
}

func (s *Screen) scrollDown(top, bottom, n int) {
	lines := s.lines()[top : bottom+1]
	for range min(n, len(lines)) {
		last := lines[len(lines)-1]
		copy(lines[1:], lines)
		last.reset(s.cols, s.blank())
		lines[0] = last
	}
	s.part(bottom + 1)
}

// part says that line y does not go on the one above any more.
func (s *Screen) part(y int) {
	if y < s.rows {
		s.lines()[y].joined = false
	}
}

// erase blanks the columns from x to before end of line y.
func (s *Screen) erase(y, x, end int) {
	line := s.lines()[y]
	s.full = false
	if x == 0 && end >= s.cols {
		line.reset(s.cols, s.blank())
		s.part(y + 1)
		return
	}
	s.split(line, x)
	s.split(line, end)
	blank := s.blank()
	for ; x < end; x++ {
		s.fill(line, x, blank)
	}
	if end >= s.cols {
		s.part(y + 1)
	}
}

// shiftRight makes room for n columns at x; what leaves the line is lost.
func (s *Screen) shiftRight(line *row, x, n int) {
	s.full = false
	n = min(n, s.cols-x)
	s.split(line, x)
	s.split(line, s.cols-n)
	for to := s.cols - 1; to >= x+n; to-- {
		s.moveCell(line, to-n, to)
	}
	blank := s.blank()
	for to := x; to < x+n; to++ {
		s.fill(line, to, blank)
	}
}

// shiftLeft removes n columns at x.
func (s *Screen) shiftLeft(line *row, x, n int) {
	s.full = false
	n = min(n, s.cols-x)
	s.split(line, x)
	s.split(line, x+n)
	for to := x; to < s.cols-n; to++ {
		s.moveCell(line, to+n, to)
	}
	blank := s.blank()
	for to := s.cols - n; to < s.cols; to++ {
		s.fill(line, to, blank)
	}
}

func (s *Screen) moveCell(line *row, from, to int) {
	c, marks := line.at(from), line.marks[from]
	s.fill(line, to, c)
	if marks != "" {
		line.marks[to] = marks
	}
}

// fill sets a cell, without making the line longer for nothing.
func (s *Screen) fill(line *row, x int, c cell) {
	if x < len(line.cells) || c != (cell{}) {
		line.set(x, c)
	}
}

// enterAlt and leaveAlt switch between the screens. The alternate one begins
// blank each time.
func (s *Screen) enterAlt() {
	if s.onAlt {
		return
	}
	s.onAlt = true
	s.full = false
	for _, r := range s.alt {
		r.reset(0, cell{})
	}
}

func (s *Screen) leaveAlt() {
	if !s.onAlt {
		return
	}
	s.onAlt = false
	s.full = false
	s.saved[1] = newCursor()
	for _, r := range s.alt {
		r.reset(0, cell{})
	}
}

// move puts the cursor at a place, as near as it can be.
func (s *Screen) move(x, y int) {
	s.x = min(max(x, 0), s.cols-1)
	s.y = min(max(y, 0), s.rows-1)
	s.full = false
}

// moveTo is move for positions that count from the margin in origin mode.
func (s *Screen) moveTo(x, y int) {
	if s.is(modeOrigin) {
		y = min(max(y, 0)+s.top, s.bottom)
	}
	s.move(x, y)
}

func (s *Screen) save() {
	c := s.cursor
	c.origin = s.is(modeOrigin)
	s.saved[s.index()] = c
}

func (s *Screen) restore() {
	c := s.saved[s.index()]
	s.put(modeOrigin, c.origin)
	s.cursor = c
	s.origin = false
	s.move(c.x, c.y)
	if c.origin {
		s.y = min(max(s.y, s.top), s.bottom)
	}
}

// tab moves to the next stop, n times; back if n is negative.
func (s *Screen) tab(n int) {
	s.full = false
	step := 1
	if n < 0 {
		step, n = -1, -n
	}
	for range min(n, s.cols) {
		for s.x += step; s.x > 0 && s.x < s.cols-1 && !s.tabs[s.x]; s.x += step {
		}
		s.x = min(max(s.x, 0), s.cols-1)
	}
}

// lineDrawing maps the graphic characters of DEC.
func lineDrawing(r rune) rune {
	const from = "_`abcdefghijklmnopqrstuvwxyz{|}~"
	if r < '_' || int(r-'_') >= len(from) {
		return r
	}
	return [...]rune{
		' ', '◆', '▒', '␉', '␌', '␍', '␊', '°', '±', '␤', '␋', '┘', '┐', '┌', '└', '┼', '⎺', '⎻', '─', '⎼', '⎽',
		'├', '┤', '┴', '┬', '│', '≤', '≥', 'π', '≠', '£', '·',
	}[r-'_']
}
