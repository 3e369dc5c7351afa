package memory

import (
	"fmt"
	"slices"

	"github.com/pandovm/pando/internal/layer"
)

// Limits of a Map. Every extent is a mapping in QEMU, and every gap beside one
// is another; the kernel allows 65,530 per process.
const (
	PageSize   = 4096
	MaxExtents = 8192
	MaxLayers  = 16
	// MaxSize is the largest RAM: 4 TiB.
	MaxSize = int64(1) << 42
)

// Extent says that Length bytes of RAM at Offset are those of a layer at
// LayerOffset. All three are multiples of PageSize. Layer indexes Map.Layers.
type Extent struct {
	Offset, Length int64
	Layer          int
	LayerOffset    int64
}

// Map is the content of a RAM of Size bytes. Extents are in ascending order and
// do not overlap; what they leave out reads as zero.
type Map struct {
	Size    int64
	Layers  []layer.ID
	Extents []Extent
}

// Validate returns what is wrong with m, or nil. Whether the layers are long
// enough is checked when the map is laid.
func (m Map) Validate() error {
	if m.Size < 0 || m.Size > MaxSize || m.Size%PageSize != 0 {
		return fmt.Errorf("memory map: size %d is not a number of whole pages up to %d bytes", m.Size, MaxSize)
	}
	if len(m.Layers) > MaxLayers {
		return fmt.Errorf("memory map: %d layers, at most %d are allowed", len(m.Layers), MaxLayers)
	}
	if len(m.Extents) > MaxExtents {
		return fmt.Errorf("memory map: %d extents, at most %d are allowed", len(m.Extents), MaxExtents)
	}
	for i, id := range m.Layers {
		if _, err := id.Bytes(); err != nil {
			return fmt.Errorf("memory map: layer %d: %w", i, err)
		}
		if slices.Contains(m.Layers[:i], id) {
			return fmt.Errorf("memory map: layer %s is listed twice", id)
		}
	}
	return m.validateExtents()
}

func (m Map) validateExtents() error {
	end := int64(0)
	for i, e := range m.Extents {
		switch {
		case e.Offset%PageSize != 0 || e.Length%PageSize != 0 || e.LayerOffset%PageSize != 0:
			return fmt.Errorf("memory map: extent %d is not made of whole pages", i)
		case e.Length <= 0:
			return fmt.Errorf("memory map: extent %d has length %d", i, e.Length)
		case e.Offset < end:
			return fmt.Errorf("memory map: extent %d overlaps or is out of order", i)
		case e.Length > m.Size || e.Offset > m.Size-e.Length:
			return fmt.Errorf("memory map: extent %d ends beyond the size %d", i, m.Size)
		case e.LayerOffset < 0 || e.LayerOffset > MaxSize-e.Length:
			return fmt.Errorf("memory map: extent %d has offset %d in its layer", i, e.LayerOffset)
		case e.Layer < 0 || e.Layer >= len(m.Layers):
			return fmt.Errorf("memory map: extent %d names layer %d of %d", i, e.Layer, len(m.Layers))
		}
		end = e.Offset + e.Length
	}
	return nil
}

// Bytes returns how much of the RAM comes from layers, that is, is not zero.
func (m Map) Bytes() int64 {
	total := int64(0)
	for _, e := range m.Extents {
		total += e.Length
	}
	return total
}

// OwnBytes returns how much of the RAM comes from the layer id.
func (m Map) OwnBytes(id layer.ID) int64 {
	total := int64(0)
	for _, e := range m.Extents {
		if m.Layers[e.Layer] == id {
			total += e.Length
		}
	}
	return total
}

// pages returns the size of the RAM in pages.
func (m Map) pages() int64 { return m.Size / PageSize }

// split returns the map of the first size bytes, and that of the rest, which
// counts from 0 again. Both name all layers.
func (m Map) split(size int64) (first, rest Map) {
	first, rest = Map{Size: size, Layers: m.Layers}, Map{Size: m.Size - size, Layers: m.Layers}
	for _, e := range m.Extents {
		if e.Offset < size {
			head := e
			head.Length = min(e.Length, size-e.Offset)
			first.Extents = append(first.Extents, head)
		}
		if cut := max(size-e.Offset, 0); cut < e.Length {
			rest.Extents = append(rest.Extents, Extent{
				Offset: e.Offset + cut - size, Length: e.Length - cut, Layer: e.Layer, LayerOffset: e.LayerOffset + cut,
			})
		}
	}
	return first, rest
}

// Grown returns m with its RAM made larger; what is new reads as zero.
func (m Map) Grown(size int64) Map {
	m.Size = max(m.Size, size)
	return m
}

// mapBuilder collects extents in ascending order, joins those that continue
// each other, and lists the layers they use.
type mapBuilder struct {
	m      Map
	layers map[layer.ID]int
}

func newMapBuilder(size int64) *mapBuilder {
	return &mapBuilder{m: Map{Size: size}, layers: map[layer.ID]int{}}
}

func (b *mapBuilder) add(id layer.ID, offset, length, layerOffset int64) {
	index, known := b.layers[id]
	if !known {
		index = len(b.m.Layers)
		b.layers[id] = index
		b.m.Layers = append(b.m.Layers, id)
	}
	if n := len(b.m.Extents); n > 0 {
		last := &b.m.Extents[n-1]
		if last.Layer == index && last.Offset+last.Length == offset && last.LayerOffset+last.Length == layerOffset {
			last.Length += length
			return
		}
	}
	b.m.Extents = append(b.m.Extents, Extent{Offset: offset, Length: length, Layer: index, LayerOffset: layerOffset})
}

// overlay returns base with the pages of cut taken out and the extents of top,
// all of them within cut and of the layer id, put in.
func overlay(base Map, cut *pageSet, id layer.ID, top []Extent) Map {
	b := newMapBuilder(base.Size)
	next := 0
	addTop := func(before int64) {
		for ; next < len(top) && top[next].Offset < before; next++ {
			b.add(id, top[next].Offset, top[next].Length, top[next].LayerOffset)
		}
	}
	for _, e := range base.Extents {
		first, end := e.Offset/PageSize, (e.Offset+e.Length)/PageSize
		for from := cut.nextClear(first); from < end; {
			to := min(cut.nextSet(from), end)
			addTop(from * PageSize)
			b.add(base.Layers[e.Layer], from*PageSize, (to-from)*PageSize, e.LayerOffset+from*PageSize-e.Offset)
			from = cut.nextClear(to)
		}
	}
	addTop(base.Size)
	return b.m
}
