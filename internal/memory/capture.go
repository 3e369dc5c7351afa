package memory

import (
	"context"
	"fmt"

	"github.com/pandovm/pando/internal/layer"
)

const (
	// nearGap and wideGap are the gaps between own pages, in pages, that a
	// capture copies over. An extent more costs every descendant two mappings,
	// at each restore and each fork; a page more costs one copy, once.
	nearGap = 8
	wideGap = 64
)

// CaptureStats says what a capture found and wrote. OwnBytes are the pages that
// the VM had made its own, ZeroBytes the pages read that were all zero and
// became gaps, Extents the extents of the resulting map. Full says that the new
// layer holds the whole RAM, so that the map needs no other.
type CaptureStats struct {
	OwnBytes, ZeroBytes, WrittenBytes int64
	Extents                           int
	Full                              bool
}

// attempt is one way to write a layer: which pages to read, and how many zero
// pages may lie inside an extent.
type attempt struct {
	read    *pageSet
	zeroGap int64
	full    bool
}

// Capture writes the pages that the VM has made its own since base was laid
// into d, and returns the map of the whole RAM, which refers to base's layers
// and to d. Where that map would be too fragmented or too deep, it writes
// everything that is not zero instead, and the map refers to d alone. If
// nothing needed writing, the map does not refer to d.
//
// A full disk is fault CONFLICT with reason disk_full. On error the content of
// d is undefined. Capture closes neither f nor d.
func (f *Frozen) Capture(ctx context.Context, base Map, d *layer.Draft) (Map, CaptureStats, error) {
	m, stats, err := f.capture(ctx, base, d)
	if err != nil {
		return Map{}, CaptureStats{}, fmt.Errorf("capture memory: %w", err)
	}
	return m, stats, nil
}

func (f *Frozen) capture(ctx context.Context, base Map, d *layer.Draft) (Map, CaptureStats, error) {
	if err := base.Validate(); err != nil {
		return Map{}, CaptureStats{}, err
	}
	if base.Size != f.Size {
		return Map{}, CaptureStats{}, fmt.Errorf("the map is for %d bytes of RAM, the VM has %d", base.Size, f.Size)
	}
	f.sacrifice()
	own, err := f.ownPages(ctx)
	if err != nil {
		return Map{}, CaptureStats{}, err
	}
	stats := CaptureStats{OwnBytes: own.count() * PageSize}
	for _, a := range attempts(base, own) {
		p, err := f.write(ctx, a, d)
		if err != nil {
			return Map{}, CaptureStats{}, err
		}
		m := merge(base, a, d.ID(), p.extents)
		if len(m.Extents) > MaxExtents || len(m.Layers) > MaxLayers {
			continue
		}
		stats.ZeroBytes, stats.WrittenBytes = p.zeroPages*PageSize, p.end
		stats.Extents, stats.Full = len(m.Extents), a.full
		// If the process lived until now, everything read was its own.
		return m, stats, f.alive()
	}
	return Map{}, CaptureStats{}, fmt.Errorf("no map of at most %d extents was found", MaxExtents)
}

// attempts lists the ways to capture, cheapest first; the last always fits.
func attempts(base Map, own *pageSet) []attempt {
	everything := own.clone()
	for _, e := range base.Extents {
		everything.addRange(e.Offset/PageSize, (e.Offset+e.Length)/PageSize)
	}
	near, wide := own.bridged(nearGap), own.bridged(wideGap)
	var list []attempt
	if deep := len(overlay(base, near, "", nil).Layers) >= MaxLayers; !deep {
		list = append(list, attempt{read: near, zeroGap: nearGap})
		// Bridging wide gaps is worth it while it writes clearly less than all.
		if wide.count() < everything.count()/2 {
			list = append(list, attempt{read: wide, zeroGap: wideGap})
		}
	}
	// Extents that are further apart than that cannot be more than MaxExtents.
	fits := (base.pages() + MaxExtents - 1) / MaxExtents
	return append(list,
		attempt{read: everything, zeroGap: nearGap, full: true},
		attempt{read: everything, zeroGap: max(fits, wideGap), full: true})
}

// merge returns the map that an attempt gave.
func merge(base Map, a attempt, id layer.ID, written []Extent) Map {
	if a.full {
		base.Layers, base.Extents = nil, nil
	}
	return overlay(base, a.read, id, written)
}

func (f *Frozen) write(ctx context.Context, a attempt, d *layer.Draft) (*pass, error) {
	needed := a.read.count() * PageSize
	if err := d.Store().Reserve(needed); err != nil {
		return nil, err
	}
	if err := d.File().Truncate(0); err != nil {
		return nil, fmt.Errorf("empty draft: %w", err)
	}
	r, err := newReader(f)
	if err != nil {
		return nil, err
	}
	defer r.close()
	p := &pass{reader: r, file: d.File(), zeroGap: a.zeroGap}
	if err := p.run(ctx, a.read); err != nil {
		return nil, d.Store().Full(needed, err)
	}
	return p, nil
}
