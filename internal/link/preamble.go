package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrTooLong is returned for a record of more than MaxBody bytes.
var ErrTooLong = errors.New("record exceeds 64 KiB")

// ErrChecksum is returned for a record that is not what was sent.
var ErrChecksum = errors.New("record has the wrong checksum")

// bodyHeader is length[4] checksum[4].
const bodyHeader = 8

// checksum is FNV-1a. It has to find a record whose end was overwritten by the
// beginning of another, and needs no tables, which would have to be built first
// in each restored guest.
func checksum(p []byte) uint32 {
	h := uint32(2166136261)
	for _, b := range p {
		h = (h ^ uint32(b)) * 16777619
	}
	return h
}

// AppendMessage appends to b a token, the length and the checksum of body, and
// body: a preamble or a confirmation.
func AppendMessage(b []byte, t Token, body []byte) ([]byte, error) {
	if len(body) > MaxBody {
		return b, ErrTooLong
	}
	b = append(b, t[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	b = binary.BigEndian.AppendUint32(b, checksum(body))
	return append(b, body...), nil
}

// Finder finds tokens in a stream that arrives in chunks. The zero Finder finds
// nothing.
type Finder struct {
	tokens []Token
	// shift tells for each byte how far it is, at least, from there to where a
	// token can end. Most bytes of a stream are jumped over.
	shift [256]uint8
	// tail is the end of the stream so far: all that a token split between
	// chunks can have in the past.
	tail []byte
}

// Expect replaces the tokens looked for. A token whose beginning has already
// passed is still found.
func (f *Finder) Expect(tokens ...Token) {
	f.tokens = append(f.tokens[:0], tokens...)
	for i := range f.shift {
		f.shift[i] = TokenSize
	}
	for _, t := range tokens {
		for i, b := range t {
			f.shift[b] = min(f.shift[b], uint8(TokenSize-1-i))
		}
	}
}

// Reset forgets the stream so far.
func (f *Finder) Reset() { f.tail = f.tail[:0] }

// Find takes the next chunk p of the stream. If a token ends in p it returns that
// token and the offset after its last byte, and forgets the stream so far: the
// caller goes on with p[end:]. Otherwise end is -1.
func (f *Finder) Find(p []byte) (found Token, end int) {
	seam := append(f.tail, p[:min(len(p), TokenSize-1)]...)
	found, end = f.search(seam)
	end -= len(f.tail)
	if end <= 0 {
		found, end = f.search(p)
	}
	if end > 0 {
		f.Reset()
		return found, end
	}
	f.remember(seam, p)
	return Token{}, -1
}

// search returns the first token in p and the offset after it, or -1.
func (f *Finder) search(p []byte) (Token, int) {
	for i := TokenSize - 1; i < len(p); {
		if n := f.shift[p[i]]; n > 0 {
			i += int(n)
			continue
		}
		i++
		for _, t := range f.tokens {
			if string(p[i-TokenSize:i]) == string(t[:]) {
				return t, i
			}
		}
	}
	return Token{}, -1
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

// Body collects what follows a token, from chunks. The zero Body is ready for
// use.
type Body struct {
	head []byte
	body []byte
	want int
}

// Missing returns how many bytes can be taken before more is known: those that
// lack in the head, or in the record. It is 0 when the record is complete.
func (b *Body) Missing() int {
	if len(b.head) < bodyHeader {
		return bodyHeader - len(b.head)
	}
	return b.want - len(b.body)
}

// Take consumes p, of which Missing bytes at most belong to the record, and
// returns the rest. Done tells that the record is complete. It fails if the
// length exceeds MaxBody or the checksum is wrong.
func (b *Body) Take(p []byte) (rest []byte, done bool, err error) {
	if n := bodyHeader - len(b.head); n > 0 {
		n = min(n, len(p))
		b.head, p = append(b.head, p[:n]...), p[n:]
		if len(b.head) < bodyHeader {
			return p, false, nil
		}
		size := binary.BigEndian.Uint32(b.head)
		if size > MaxBody {
			return p, false, fmt.Errorf("read record of %d bytes: %w", size, ErrTooLong)
		}
		b.want = int(size)
	}
	n := min(len(p), b.want-len(b.body))
	b.body, p = append(b.body, p[:n]...), p[n:]
	if len(b.body) < b.want {
		return p, false, nil
	}
	if checksum(b.body) != binary.BigEndian.Uint32(b.head[4:]) {
		return p, false, ErrChecksum
	}
	return p, true, nil
}

// Bytes returns the record once Take has said done.
func (b *Body) Bytes() []byte { return b.body }
