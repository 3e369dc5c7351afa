package screen

import "encoding/binary"

const (
	chunkBytes = 32 << 10
	chunkLines = 256
	// lineHead is joined[1] width[2] length[4].
	lineHead = 7
)

// history keeps the lines that have left the screen, as the bytes that write
// them again.
type history struct {
	chunks []chunk
	spare  []byte
	bytes  int
	lines  int
	// maxBytes and maxLines bound it; the oldest lines go first.
	maxBytes, maxLines int
}

type chunk struct {
	b     []byte
	lines int
}

// push adds a line. encode appends its text.
func (h *history) push(r *row) {
	if h.maxBytes <= 0 || h.maxLines <= 0 {
		return
	}
	if n := len(h.chunks); n == 0 || len(h.chunks[n-1].b) >= chunkBytes || h.chunks[n-1].lines >= chunkLines {
		h.chunks = append(h.chunks, chunk{b: h.spare[:0]})
		h.spare = nil
	}
	c := &h.chunks[len(h.chunks)-1]
	start := len(c.b)
	c.b = append(c.b, make([]byte, lineHead)...)
	width := r.used()
	c.b = appendCells(c.b, r, width)
	if r.joined {
		c.b[start] = 1
	}
	binary.BigEndian.PutUint16(c.b[start+1:], uint16(width))
	binary.BigEndian.PutUint32(c.b[start+3:], uint32(len(c.b)-start-lineHead))
	c.lines++
	h.lines++
	h.bytes += len(c.b) - start
	h.trim()
}

func (h *history) trim() {
	drop := 0
	for drop < len(h.chunks) && (h.bytes > h.maxBytes || h.lines > h.maxLines) {
		h.bytes -= len(h.chunks[drop].b)
		h.lines -= h.chunks[drop].lines
		if cap(h.chunks[drop].b) <= 2*chunkBytes {
			h.spare = h.chunks[drop].b
		}
		drop++
	}
	if drop > 0 {
		n := copy(h.chunks, h.chunks[drop:])
		clear(h.chunks[n:])
		h.chunks = h.chunks[:n]
	}
}

func (h *history) clear() {
	h.chunks, h.spare, h.bytes, h.lines = nil, nil, 0, 0
}

// line is one line of the history.
type line struct {
	text   []byte
	width  int
	joined bool
}

// last calls f with the newest lines that together have at most that many
// bytes, oldest first.
func (h *history) last(bytes int, f func(line)) {
	first, left := len(h.chunks), bytes
	for first > 0 && len(h.chunks[first-1].b) <= left {
		first--
		left -= len(h.chunks[first].b)
	}
	for _, c := range h.chunks[first:] {
		for b := c.b; len(b) >= lineHead; {
			n := lineHead + int(binary.BigEndian.Uint32(b[3:]))
			f(line{text: b[lineHead:n], width: int(binary.BigEndian.Uint16(b[1:])), joined: b[0] != 0})
			b = b[n:]
		}
	}
}
