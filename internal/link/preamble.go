package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrTooLong is returned for a record of more than MaxBody bytes.
var ErrTooLong = errors.New("record exceeds 64 KiB")

// AppendMessage appends to b a token, the length of body, and body: a preamble
// or a confirmation.
func AppendMessage(b []byte, t Token, body []byte) ([]byte, error) {
	if len(body) > MaxBody {
		return b, ErrTooLong
	}
	b = append(b, t[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...), nil
}

// Finder finds tokens in a stream that arrives in chunks. The zero Finder finds
// nothing.
type Finder struct {
	tokens []Token
	// tail is the end of the stream so far: all that a token split between
	// chunks can have in the past.
	tail []byte
}

// Expect replaces the tokens looked for and forgets the stream so far.
func (f *Finder) Expect(tokens ...Token) {
	f.tokens = append(f.tokens[:0], tokens...)
	f.tail = f.tail[:0]
}

// Find takes the next chunk p of the stream. If a token ends in p it returns the
// offset after its last byte, and forgets the stream so far: the caller goes on
// with p[end:]. Otherwise it returns -1.
func (f *Finder) Find(p []byte) (end int) {
	seam := append(f.tail, p[:min(len(p), TokenSize-1)]...)
	old := len(f.tail)
	end = -1
	for i := range f.tokens {
		t := f.tokens[i][:]
		at := -1
		if old > 0 {
			if j := bytes.Index(seam, t); j >= 0 {
				at = j + TokenSize - old
			}
		}
		if at < 0 {
			if j := bytes.Index(p, t); j >= 0 {
				at = j + TokenSize
			}
		}
		if at >= 0 && (end < 0 || at < end) {
			end = at
		}
	}
	if end >= 0 {
		f.tail = f.tail[:0]
		return end
	}
	f.remember(seam, p)
	return -1
}

func (f *Finder) remember(seam, p []byte) {
	all := p
	if len(p) < TokenSize-1 {
		all = seam
	}
	f.tail = append(f.tail[:0], all[max(0, len(all)-(TokenSize-1)):]...)
}

// Partial returns the length of the longest end of the stream that is the
// beginning of a token.
func (f *Finder) Partial() int {
	longest := 0
	for i := range f.tokens {
		for n := len(f.tail); n > longest; n-- {
			if bytes.HasPrefix(f.tokens[i][:], f.tail[len(f.tail)-n:]) {
				longest = n
			}
		}
	}
	return longest
}

// Body collects the length and the record that follow a token, from chunks.
// The zero Body is ready for use.
type Body struct {
	head  []byte
	body  []byte
	want  int
	sized bool
}

// Take consumes bytes of p until the record is complete and returns the rest of
// p. done tells that Bytes is valid. It fails if the length exceeds MaxBody.
func (b *Body) Take(p []byte) (rest []byte, done bool, err error) {
	if !b.sized {
		n := min(len(p), 4-len(b.head))
		b.head, p = append(b.head, p[:n]...), p[n:]
		if len(b.head) < 4 {
			return p, false, nil
		}
		size := binary.BigEndian.Uint32(b.head)
		if size > MaxBody {
			return p, false, fmt.Errorf("read record of %d bytes: %w", size, ErrTooLong)
		}
		b.want, b.sized = int(size), true
	}
	n := min(len(p), b.want-len(b.body))
	b.body, p = append(b.body, p[:n]...), p[n:]
	return p, len(b.body) == b.want, nil
}

// Bytes returns the record once Take has said done.
func (b *Body) Bytes() []byte { return b.body }
