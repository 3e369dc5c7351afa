package screen

// The bounds of a size.
const (
	MaxCols = 1000
	MaxRows = 1000
)

// mode is a set of the modes that are on.
type mode uint32

const (
	modeInsert mode = 1 << iota
	modeNewline
	modeCursorKeys
	modeReverse
	modeOrigin
	modeWrap
	modeBlink
	modeVisible
	modeKeypad
	modeFocus
	modeAltScroll
	modePaste
	modeReverseWrap

	modesAtReset = modeWrap | modeVisible
)

// cursor is what DECSC saves.
type cursor struct {
	x, y   int
	pen    pen
	origin bool
	shift  uint8 // which of sets is in use
	sets   [4]byte
}

func newCursor() cursor { return cursor{sets: [4]byte{'B', 'B', 'B', 'B'}} }

// Screen is the state of one terminal.
type Screen struct {
	cols, rows int
	main, alt  []*row
	onAlt      bool
	history    history

	cursor
	// full says that the last column has been written: the next character goes
	// to the next line.
	full bool
	// saved are the cursors saved on the main and on the alternate screen.
	saved       [2]cursor
	top, bottom int // the margins, both included
	tabs        []bool
	modes       mode
	// mouse and encoding are the numbers of the modes, or 0. shape is that of
	// DECSCUSR, otherKeys that of modifyOtherKeys.
	mouse, encoding, shape, otherKeys int

	title, icon string
	titles      []string // saved by the program

	last    rune // the character before, if nothing else came since
	parser  parser
	live    []byte
	replies []byte
}

// New returns a blank terminal. The size must be within the bounds.
// maxBytes and maxLines bound the scrollback.
func New(cols, rows, maxBytes, maxLines int) *Screen {
	s := &Screen{cols: cols, rows: rows}
	s.history.maxBytes, s.history.maxLines = maxBytes, maxLines
	s.main, s.alt = newRows(rows), newRows(rows)
	s.reset()
	return s
}

func newRows(n int) []*row {
	all := make([]row, n)
	rows := make([]*row, n)
	for i := range rows {
		rows[i] = &all[i]
	}
	return rows
}

// reset is RIS.
func (s *Screen) reset() {
	for _, rows := range [][]*row{s.main, s.alt} {
		for _, r := range rows {
			r.reset(0, cell{})
		}
	}
	s.history.clear()
	s.onAlt, s.full = false, false
	s.cursor = newCursor()
	s.saved = [2]cursor{newCursor(), newCursor()}
	s.top, s.bottom = 0, s.rows-1
	s.tabs = appendTabs(s.tabs[:0], s.cols)
	s.modes = modesAtReset
	s.mouse, s.encoding, s.shape, s.otherKeys = 0, 0, 0, 0
	s.title, s.icon, s.titles = "", "", nil
}

// appendTabs adds the usual stops up to cols.
func appendTabs(tabs []bool, cols int) []bool {
	for x := len(tabs); x < cols; x++ {
		tabs = append(tabs, x > 0 && x%8 == 0)
	}
	return tabs
}

// softReset is DECSTR.
func (s *Screen) softReset() {
	s.modes = s.modes&^(modeInsert|modeOrigin|modeCursorKeys|modeKeypad) | modesAtReset
	s.top, s.bottom = 0, s.rows-1
	x, y := s.x, s.y
	s.cursor = newCursor()
	s.x, s.y = x, y
	s.saved[s.index()] = newCursor()
	s.full = false
}

// Size returns columns and rows.
func (s *Screen) Size() (cols, rows int) { return s.cols, s.rows }

// Title returns the title that the program has set.
func (s *Screen) Title() string { return s.title }

// Limit changes the bound of the scrollback, in bytes.
func (s *Screen) Limit(bytes int) {
	s.history.maxBytes = bytes
	s.history.trim()
}

// Replies returns the answers that the terminal owes the program since the last
// call.
func (s *Screen) Replies() []byte {
	r := s.replies
	s.replies = nil
	return r
}

// reply adds an answer, unless the program asks without listening.
func (s *Screen) reply(text string) {
	const most = 4 << 10
	if len(s.replies)+len(text) <= most {
		s.replies = append(s.replies, text...)
	}
}

func (s *Screen) index() int {
	if s.onAlt {
		return 1
	}
	return 0
}

func (s *Screen) lines() []*row {
	if s.onAlt {
		return s.alt
	}
	return s.main
}

func (s *Screen) is(m mode) bool { return s.modes&m != 0 }

func (s *Screen) put(m mode, on bool) {
	if on {
		s.modes |= m
	} else {
		s.modes &^= m
	}
}

// blank is what erased places become.
func (s *Screen) blank() cell { return cell{pen: pen{bg: s.pen.bg}} }

// Text returns the lines of the screen that is shown, without what is blank at
// their ends.
func (s *Screen) Text() []string {
	var text []string
	for _, r := range s.lines() {
		var b []byte
		for x := range r.used() {
			c := r.at(x)
			if c.attr&tail == 0 {
				b = appendText(b, r, x, c)
			}
		}
		text = append(text, string(b))
	}
	return text
}
