package memory

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// batchPages is what is read and written at once: 256 KiB, which stays in the
	// processor's cache between the two. 2 MiB take twice as long.
	batchPages = 64
	// holePages is the length from which zero pages inside an extent become a
	// hole in the file instead of written zeros.
	holePages = 16
)

// pageRun is the pages [from, to).
type pageRun struct{ from, to int64 }

// pass writes the pages of a set to a file, one after the other without the
// zero pages between them, and notes where each went.
type pass struct {
	reader  *reader
	file    *os.File
	zeroGap int64

	// extents are those written so far, with Layer left 0.
	extents   []Extent
	zeroPages int64
	// end is where the next page goes in the file; pending are slices of the
	// batch that go right before it and are not written yet.
	end          int64
	pending      [][]byte
	pendingBytes int64
	zeros        []byte
}

func (p *pass) run(ctx context.Context, read *pageSet) error {
	buffer := make([]byte, batchPages*PageSize)
	p.zeros = make([]byte, holePages*PageSize)
	batch := make([]pageRun, 0, batchPages)
	room := int64(batchPages)
	flush := func() error {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		err := p.batch(batch, buffer[:(batchPages-room)*PageSize])
		batch, room = batch[:0], batchPages
		return err
	}
	for from, to := range read.runs() {
		for from < to {
			n := min(to-from, room)
			batch = append(batch, pageRun{from, from + n})
			from, room = from+n, room-n
			if room > 0 {
				continue
			}
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return flush()
}

// batch reads the runs into buffer, which they fill, and writes what is not zero.
func (p *pass) batch(runs []pageRun, buffer []byte) error {
	if err := p.reader.read(runs, buffer); err != nil {
		return err
	}
	at := int64(0)
	for _, r := range runs {
		n := (r.to - r.from) * PageSize
		if err := p.emit(r.from, buffer[at:at+n]); err != nil {
			return err
		}
		at += n
	}
	return p.flush()
}

// emit takes the content of consecutive pages, the first of which is page.
func (p *pass) emit(page int64, content []byte) error {
	for len(content) > 0 {
		n := 0
		for n < len(content) && !isZero(content[n:n+PageSize]) {
			n += PageSize
		}
		if n > 0 {
			if err := p.place(page, content[:n]); err != nil {
				return err
			}
			page, content = page+int64(n)/PageSize, content[n:]
			continue
		}
		p.zeroPages++
		page, content = page+1, content[PageSize:]
	}
	return nil
}

// place puts pages without a zero page among them into the current extent, if
// they are near enough, or into a new one.
func (p *pass) place(page int64, content []byte) error {
	if n := len(p.extents); n > 0 {
		last := &p.extents[n-1]
		gap := page - (last.Offset+last.Length)/PageSize
		if gap <= p.zeroGap {
			last.Length += gap*PageSize + int64(len(content))
			if err := p.skip(gap); err != nil {
				return err
			}
			p.append(content)
			return nil
		}
	}
	p.extents = append(p.extents, Extent{Offset: page * PageSize, Length: int64(len(content)), LayerOffset: p.end})
	p.append(content)
	return nil
}

// skip puts zero pages.
func (p *pass) skip(pages int64) error {
	if pages < holePages {
		if pages > 0 {
			p.append(p.zeros[:pages*PageSize])
		}
		return nil
	}
	if err := p.flush(); err != nil {
		return err
	}
	p.end += pages * PageSize
	return nil
}

func (p *pass) append(b []byte) {
	p.end += int64(len(b))
	p.pendingBytes += int64(len(b))
	if n := len(p.pending); n > 0 {
		last := p.pending[n-1]
		// Neighbours in the buffer are one slice, and so one write.
		if joined := last[:cap(last)]; len(joined) >= len(last)+len(b) && &joined[len(last):][0] == &b[0] {
			p.pending[n-1] = joined[:len(last)+len(b)]
			return
		}
	}
	p.pending = append(p.pending, b)
}

// flush writes what is pending.
func (p *pass) flush() error {
	at := p.end - p.pendingBytes
	for len(p.pending) > 0 {
		n, err := unix.Pwritev(int(p.file.Fd()), p.pending, at)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = unix.ENOSPC
		}
		if err != nil {
			return fmt.Errorf("write layer: %w", err)
		}
		at += int64(n)
		p.pending = drop(p.pending, n)
	}
	p.pending, p.pendingBytes = p.pending[:0], 0
	return nil
}

// drop takes the first n bytes off a list of slices.
func drop(list [][]byte, n int) [][]byte {
	for n > 0 && n >= len(list[0]) {
		n -= len(list[0])
		list = list[1:]
	}
	if n > 0 {
		list[0] = list[0][n:]
	}
	return list
}
