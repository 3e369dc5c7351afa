package screen

// Resize changes the size, which must be within the bounds. Lines of the main
// screen that went over the edge are laid out anew; the alternate screen, whose
// program draws it again, is cut.
func (s *Screen) Resize(cols, rows int) {
	if cols == s.cols && rows == s.rows {
		return
	}
	at := &s.cursor
	if s.onAlt {
		at = &s.saved[0]
		s.resizeAlt(cols, rows)
	}
	at.x, at.y = min(at.x, s.cols-1), min(at.y, s.rows-1)
	if cols != s.cols {
		s.main, at.x, at.y = rewrap(s.main, s.cols, cols, at.x, at.y)
	}
	s.fit(rows, at)
	if !s.onAlt {
		s.alt = newRows(rows)
	}
	s.cols, s.rows = cols, rows
	s.top, s.bottom = 0, rows-1
	s.tabs = appendTabs(s.tabs[:min(cols, len(s.tabs))], cols)
	s.move(s.x, s.y)
	for i := range s.saved {
		s.saved[i].x, s.saved[i].y = min(s.saved[i].x, cols-1), min(s.saved[i].y, rows-1)
	}
}

// fit makes the main screen have that many lines. Lines go to the scrollback
// if the cursor is below the last that fits.
func (s *Screen) fit(rows int, at *cursor) {
	end := at.y + 1
	for y := len(s.main) - 1; y >= end; y-- {
		if s.main[y].used() > 0 {
			end = y + 1
		}
	}
	away := min(max(end-rows, 0), at.y)
	for _, r := range s.main[:away] {
		s.history.push(r)
	}
	at.y -= away
	s.main = resized(s.main[away:end], rows)
	at.y = min(at.y, rows-1)
}

func (s *Screen) resizeAlt(cols, rows int) {
	away := max(s.y-(rows-1), 0)
	s.y -= away
	s.alt = resized(s.alt[away:], rows)
	for _, r := range s.alt {
		r.cut(cols)
	}
}

// resized returns the first rows lines, or all and blank ones.
func resized(lines []*row, rows int) []*row {
	out := make([]*row, 0, rows)
	out = append(out, lines[:min(rows, len(lines))]...)
	return append(out, newRows(rows-len(out))...)
}

// rewrap lays lines of width from out at width to, and returns where the cursor
// at x, y has gone.
func rewrap(lines []*row, from, to, x, y int) (out []*row, newX, newY int) {
	for first := 0; first < len(lines); {
		end := first + 1
		for end < len(lines) && lines[end].joined {
			end++
		}
		w := wrapper{to: to, out: out, joined: lines[first].joined}
		w.next()
		for i, r := range lines[first:end] {
			width := from
			if first+i+1 == end {
				width = r.used()
			}
			w.copy(r, width, first+i == y, x)
		}
		if y >= first && y < end {
			newX, newY = w.x, w.y
		}
		out = w.out
		first = end
	}
	return out, min(newX, to-1), newY
}

// wrapper lays one line out that may have been broken into several.
type wrapper struct {
	to     int
	out    []*row
	joined bool
	at     int // where the next cell goes
	x, y   int // where the cursor is
}

func (w *wrapper) next() {
	w.out = append(w.out, &row{joined: w.joined})
	w.joined, w.at = true, 0
}

// copy adds the first cells of r.
func (w *wrapper) copy(r *row, width int, here bool, x int) {
	for i := range max(width, 0) {
		c := r.at(i)
		if c.attr&tail != 0 && w.at > 0 {
			continue // went with its first half
		}
		need := 1
		if c.attr&wide != 0 {
			need = 2
		}
		if need > w.to {
			c, need = cell{pen: c.plain()}, 1
		}
		if w.at+need > w.to {
			w.next()
		}
		if here && (i == x || need == 2 && i+1 == x) {
			w.x, w.y = w.at, len(w.out)-1
		}
		w.put(c, r.marks[i], need)
	}
	if here && x >= width {
		w.x, w.y = w.at+x-width, len(w.out)-1
	}
}

func (w *wrapper) put(c cell, marks string, need int) {
	line := w.out[len(w.out)-1]
	line.set(w.at, c)
	if marks != "" {
		if line.marks == nil {
			line.marks = map[int]string{}
		}
		line.marks[w.at] = marks
	}
	if need == 2 {
		line.set(w.at+1, cell{pen: pen{attr: tail}})
	}
	w.at += need
}
