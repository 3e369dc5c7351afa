package memory

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pandovm/pando/internal/layer"
)

// drawPages draws a set of n pages made of runs, and the same as booleans.
func drawPages(r *rapid.T, name string, n int64) (*pageSet, []bool) {
	set, plain := newPageSet(n), make([]bool, n)
	for range rapid.IntRange(0, 12).Draw(r, name+" runs") {
		from := rapid.Int64Range(0, n).Draw(r, name+" from")
		to := min(n, from+rapid.Int64Range(0, 90).Draw(r, name+" length"))
		set.addRange(from, to)
		for i := from; i < to; i++ {
			plain[i] = true
		}
	}
	return set, plain
}

func TestPageSet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.Int64Range(0, 300).Draw(r, "n")
		set, plain := drawPages(r, "set", n)
		if n > 0 {
			page := rapid.Int64Range(0, n-1).Draw(r, "page")
			set.add(page)
			plain[page] = true
		}
		got := make([]bool, n)
		count := int64(0)
		last := int64(-1)
		for from, to := range set.runs() {
			if from <= last || to <= from || to > n {
				r.Fatalf("run [%d, %d) after %d", from, to, last)
			}
			last = to
			count += to - from
			for i := from; i < to; i++ {
				got[i] = true
			}
		}
		if diff := cmp.Diff(plain, got); diff != "" {
			r.Fatal(diff)
		}
		if set.count() != count {
			r.Fatalf("count %d, want %d", set.count(), count)
		}
		for i := range n + 2 {
			if i < n && (set.nextSet(i) == i) != plain[i] {
				r.Fatalf("nextSet(%d) = %d", i, set.nextSet(i))
			}
			if i < n && (set.nextClear(i) == i) == plain[i] {
				r.Fatalf("nextClear(%d) = %d", i, set.nextClear(i))
			}
			if i >= n && (set.nextSet(i) != n || set.nextClear(i) != n) {
				r.Fatalf("beyond the end: %d, %d", set.nextSet(i), set.nextClear(i))
			}
		}
	})
}

func TestBridged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.Int64Range(1, 300).Draw(r, "n")
		set, plain := drawPages(r, "set", n)
		width := rapid.Int64Range(0, 70).Draw(r, "width")
		bridged := set.bridged(width)
		want := slices.Clone(plain)
		last := int64(-1)
		for i, member := range plain {
			if !member {
				continue
			}
			if gap := int64(i) - last - 1; last >= 0 && gap <= width {
				for j := last; j < int64(i); j++ {
					want[j] = true
				}
			}
			last = int64(i)
		}
		for i := range n {
			if (bridged.nextSet(i) == i) != want[i] {
				r.Fatalf("page %d is %v, want %v", i, !want[i], want[i])
			}
		}
	})
}

func TestIsZero(t *testing.T) {
	t.Parallel()
	page := make([]byte, PageSize)
	if !isZero(page) {
		t.Error("a zero page is not zero")
	}
	for i := range page {
		page[i] = 1
		if isZero(page) {
			t.Fatalf("byte %d was not seen", i)
		}
		page[i] = 0
	}
}

// TestOverlay compares overlay, page by page, with the obvious way.
func TestOverlay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.Int64Range(1, 200).Draw(r, "pages")
		base := drawMap(r, n)
		cut, _ := drawPages(r, "cut", n)
		top := drawTop(r, cut)
		got := overlay(base, cut, "new", top)
		want := pagesOf(base)
		for from, to := range cut.runs() {
			for i := from; i < to; i++ {
				want[i] = source{}
			}
		}
		for _, e := range top {
			for i := range e.Length / PageSize {
				want[e.Offset/PageSize+i] = source{"new", e.LayerOffset/PageSize + i}
			}
		}
		if diff := cmp.Diff(want, pagesOf(got), cmp.AllowUnexported(source{})); diff != "" {
			r.Fatal(diff)
		}
		if err := got.validateExtents(); err != nil {
			r.Fatal(err)
		}
		checkCompact(r, got)
	})
}

// source is where a page comes from; the zero value is the zero page.
type source struct {
	layer string
	page  int64
}

func pagesOf(m Map) []source {
	pages := make([]source, m.pages())
	for _, e := range m.Extents {
		for i := range e.Length / PageSize {
			pages[e.Offset/PageSize+i] = source{string(m.Layers[e.Layer]), e.LayerOffset/PageSize + i}
		}
	}
	return pages
}

// checkCompact finds extents that should have been one, and layers not in use.
func checkCompact(r *rapid.T, m Map) {
	used := map[int]bool{}
	for i, e := range m.Extents {
		used[e.Layer] = true
		if i == 0 {
			continue
		}
		p := m.Extents[i-1]
		if p.Layer == e.Layer && p.Offset+p.Length == e.Offset && p.LayerOffset+p.Length == e.LayerOffset {
			r.Fatalf("extents %d and %d should be one", i-1, i)
		}
	}
	if len(used) != len(m.Layers) {
		r.Fatalf("%d of %d layers are used", len(used), len(m.Layers))
	}
}

func drawMap(r *rapid.T, pages int64) Map {
	b := newMapBuilder(pages * PageSize)
	for at := int64(0); at < pages; {
		at += rapid.Int64Range(0, 9).Draw(r, "gap")
		length := min(rapid.Int64Range(1, 20).Draw(r, "length"), pages-at)
		if length <= 0 {
			break
		}
		id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "layer")
		from := rapid.Int64Range(0, 50).Draw(r, "at")
		b.add(layer.ID(id), at*PageSize, length*PageSize, from*PageSize)
		at += length
	}
	return b.m
}

// drawTop draws extents within cut, as a capture writes them: compact.
func drawTop(r *rapid.T, cut *pageSet) []Extent {
	var top []Extent
	at := int64(0)
	for from, to := range cut.runs() {
		first := rapid.Int64Range(from, to).Draw(r, "first")
		last := rapid.Int64Range(first, to).Draw(r, "last")
		if first == last {
			continue
		}
		top = append(top, Extent{Offset: first * PageSize, Length: (last - first) * PageSize, LayerOffset: at})
		at += (last - first) * PageSize
	}
	return top
}
