package memory

import (
	"encoding/binary"
	"iter"
	"math/bits"
)

// pageSet is a set of page numbers below n, one bit each: 32 KiB per GiB of
// RAM, however fragmented the set is.
type pageSet struct {
	n     int64
	words []uint64
}

func newPageSet(n int64) *pageSet { return &pageSet{n: n, words: make([]uint64, (n+63)/64)} }

func (s *pageSet) add(page int64) { s.words[page/64] |= 1 << (page % 64) }

// addRange adds [from, to).
func (s *pageSet) addRange(from, to int64) {
	for from < to {
		bit := from % 64
		count := min(64-bit, to-from)
		s.words[from/64] |= (^uint64(0) >> (64 - count)) << bit
		from += count
	}
}

func (s *pageSet) count() int64 {
	total := 0
	for _, w := range s.words {
		total += bits.OnesCount64(w)
	}
	return int64(total)
}

func (s *pageSet) clone() *pageSet {
	c := newPageSet(s.n)
	copy(c.words, s.words)
	return c
}

// nextSet returns the first member that is page or more, or n.
func (s *pageSet) nextSet(page int64) int64 { return s.next(page, 0) }

// nextClear returns the first number from page on that is no member, or n.
func (s *pageSet) nextClear(page int64) int64 { return s.next(page, ^uint64(0)) }

// next finds the first set bit from page on of the words xored with flip.
func (s *pageSet) next(page int64, flip uint64) int64 {
	if page >= s.n {
		return s.n
	}
	word := page / 64
	w := (s.words[word] ^ flip) &^ (1<<(page%64) - 1)
	for w == 0 {
		word++
		if word == int64(len(s.words)) {
			return s.n
		}
		w = s.words[word] ^ flip
	}
	return min(word*64+int64(bits.TrailingZeros64(w)), s.n)
}

// runs yields the longest runs [from, to) of members, in ascending order.
func (s *pageSet) runs() iter.Seq2[int64, int64] {
	return func(yield func(from, to int64) bool) {
		for from := s.nextSet(0); from < s.n; {
			to := s.nextClear(from)
			if !yield(from, to) {
				return
			}
			from = s.nextSet(to)
		}
	}
}

// bridged returns s with every gap of at most width pages between two members
// filled.
func (s *pageSet) bridged(width int64) *pageSet {
	filled := s.clone()
	last := int64(-1)
	for from, to := range s.runs() {
		if last >= 0 && from-last <= width {
			filled.addRange(last, from)
		}
		last = to
	}
	return filled
}

// isZero reports whether a whole number of 32-byte blocks is all zero. Nearly
// every page that is not zero says so in its first blocks.
func isZero(page []byte) bool {
	for len(page) >= 32 {
		if binary.LittleEndian.Uint64(page)|binary.LittleEndian.Uint64(page[8:])|
			binary.LittleEndian.Uint64(page[16:])|binary.LittleEndian.Uint64(page[24:]) != 0 {
			return false
		}
		page = page[32:]
	}
	return true
}
