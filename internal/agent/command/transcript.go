package command

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"sync"

	"github.com/pandovm/pando/internal/link"
)

const (
	// pieceHead is what a piece of output has before its bytes.
	pieceHead = link.FrameHeader + link.OutputHeader
	// pieceSize is the most output in one piece: with its head it fills one
	// HTTP/2 frame.
	pieceSize = 16<<10 - pieceHead
	// blockSize is how much is read at once for the host: some pieces.
	blockSize = 64 << 10
	// memorySize is how much of a command's output is held in memory at most.
	memorySize = 64 << 10
	// unkeptSize is how much is kept of a command if there is no disk for it.
	unkeptSize = 256 << 10
	// markDistance is how far apart the places are that can be found at once.
	markDistance = 128 << 10
)

// transcript is what a command printed: a log of the pieces of both streams in
// the order in which they were read, encoded as the frames that the host gets.
// Its end is in memory, what comes before in a file that is used as a ring.
type transcript struct {
	shelf *shelf
	name  string
	// rolling transcripts keep the end of what is too long, others the beginning.
	rolling bool

	mu sync.Mutex
	// room wakes the outputs that wait for a slow follower.
	room sync.Cond
	// start and end bound what is kept, as positions in the endless log; memory
	// holds what is from memoryStart on.
	start, end, memoryStart int64
	memory                  []byte
	file                    *os.File
	// quota bounds end-start, reserved is what the shelf has promised of it.
	quota, reserved int64
	// held is what was kept of each stream, heads and all.
	held [2]int64
	// seq is the number of the next piece, total the length of each stream.
	seq   int64
	total [2]int64
	marks []mark
	// hurried outputs wait for no follower.
	hurried bool
	// over: nothing more will come.
	over      bool
	followers map[*follower]struct{}
}

// mark is a place at which a piece begins.
type mark struct {
	pos, seq int64
	offset   [2]int64
}

func newTranscript(s *shelf, name string, rolling bool) *transcript {
	t := &transcript{shelf: s, name: name, rolling: true, seq: 1, quota: unkeptSize, marks: []mark{{seq: 1}}}
	if s.usable() && name != "" {
		t.rolling, t.quota = rolling, s.perCommand()
	}
	t.room.L = &t.mu
	return t
}

// append adds output. It waits while a follower is so far behind that its place
// would be lost.
func (t *transcript) append(stream int, p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := int64(pieceHead + len(p))
	if t.makeRoom(stream, size) {
		if last := t.marks[len(t.marks)-1]; t.end-last.pos >= markDistance {
			t.marks = append(t.marks, mark{t.end, t.seq, t.total})
		}
		t.memory = link.AppendOutput(t.memory, link.Output{Stream: byte(stream + 1), Seq: t.seq, Offset: t.total[stream], Data: p})
		t.end += size
		t.held[stream] += size
	}
	t.seq++
	t.total[stream] += int64(len(p))
	if len(t.memory) >= memorySize && t.quota > unkeptSize {
		t.spill()
	}
	t.wake()
}

// makeRoom tells whether a piece of that size is to be kept. Of the beginning
// each stream has half, so that a flood on one does not hide the other. The
// caller holds mu.
func (t *transcript) makeRoom(stream int, size int64) bool {
	for {
		excess := t.end + size - t.start - t.quota
		switch {
		case !t.rolling:
			return t.held[stream]+size <= t.quota/2
		case excess <= 0:
			return true
		}
		at := t.markAfter(t.start + excess)
		if t.hurried || !t.anyFollowerBefore(at.pos) {
			t.dropBefore(at)
			continue
		}
		t.room.Wait()
	}
}

// markAfter returns the first mark at pos or behind it, or the end.
func (t *transcript) markAfter(pos int64) mark {
	for _, m := range t.marks {
		if m.pos >= pos {
			return m
		}
	}
	return mark{t.end, t.seq, t.total}
}

func (t *transcript) anyFollowerBefore(pos int64) bool {
	for f := range t.followers {
		if f.pos < pos {
			return true
		}
	}
	return false
}

func (t *transcript) dropBefore(at mark) {
	t.start = at.pos
	for len(t.marks) > 0 && t.marks[0].pos < at.pos {
		t.marks = t.marks[1:]
	}
	if len(t.marks) == 0 {
		t.marks = []mark{at}
	}
	if t.memoryStart < t.start {
		t.memory = append(t.memory[:0], t.memory[min(t.start-t.memoryStart, int64(len(t.memory))):]...)
		t.memoryStart = t.start
	}
	for f := range t.followers {
		f.pos = max(f.pos, t.start)
	}
}

// spill moves what is in memory to the file. Without room on the disk, only the
// end is kept from then on, and in memory. The caller holds mu.
func (t *transcript) spill() {
	if t.reserve(min(t.end, t.quota)) && t.write() == nil {
		t.memoryStart, t.memory = t.end, t.memory[:0]
		return
	}
	t.rolling, t.quota = true, unkeptSize
	t.dropBefore(t.markAfter(t.memoryStart))
}

func (t *transcript) reserve(size int64) bool {
	for t.reserved < size {
		if !t.shelf.reserve(reservation) {
			return false
		}
		t.reserved += reservation
	}
	return t.open(os.O_RDWR|os.O_CREATE) == nil
}

func (t *transcript) open(flags int) error {
	if t.file != nil {
		return nil
	}
	f, err := t.shelf.open(t.name, flags)
	t.file = f
	return err
}

// write puts memory into the ring.
func (t *transcript) write() error {
	p, pos := t.memory, t.memoryStart
	for len(p) > 0 {
		at := pos % t.quota
		n := min(int64(len(p)), t.quota-at)
		if _, err := t.file.WriteAt(p[:n], at); err != nil {
			return err
		}
		p, pos = p[n:], pos+n
	}
	return nil
}

// read returns whole pieces from pos on, as many as fit into buf, or none at
// the end. The caller holds mu.
func (t *transcript) read(pos int64, buf []byte) []byte {
	if pos >= t.memoryStart {
		n := copy(buf, t.memory[min(pos-t.memoryStart, int64(len(t.memory))):])
		return wholePieces(buf[:n])
	}
	if t.open(os.O_RDWR) != nil {
		return nil
	}
	n := min(int64(len(buf)), t.memoryStart-pos)
	for got := int64(0); got < n; {
		at := (pos + got) % t.quota
		part := min(n-got, t.quota-at)
		if _, err := t.file.ReadAt(buf[got:got+part], at); err != nil {
			return nil
		}
		got += part
	}
	return wholePieces(buf[:n])
}

// wholePieces cuts an incomplete piece off the end of b.
func wholePieces(b []byte) []byte {
	whole := 0
	for {
		n := pieceLength(b[whole:])
		if n == 0 || whole+n > len(b) {
			return b[:whole]
		}
		whole += n
	}
}

// pieceLength is the length of the piece at the beginning of b with its head, 0
// if there is none.
func pieceLength(b []byte) int {
	if len(b) < pieceHead || link.FrameType(b[0]) != link.FrameOutput {
		return 0
	}
	n := binary.BigEndian.Uint32(b[1:])
	if n < link.OutputHeader || n > link.OutputHeader+pieceSize {
		return 0
	}
	return link.FrameHeader + int(n)
}

// finish says that nothing more will come, and hurry that nobody is waited for.
func (t *transcript) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.wake()
}

func (t *transcript) hurry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hurried = true
	t.room.Broadcast()
}

func (t *transcript) wake() {
	for f := range t.followers {
		select {
		case f.ready <- struct{}{}:
		default:
		}
	}
}

// settle moves what a finished command printed out of memory, unless it is so
// little that it is returned instead, to be kept in the record.
func (t *transcript) settle(small int) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.memoryStart == t.start && len(t.memory) <= small {
		return slices.Clone(t.memory)
	}
	if len(t.memory) > 0 && t.quota > unkeptSize {
		t.spill()
	}
	if len(t.memory) == 0 {
		t.memory = nil
	}
	if used := blocks(min(t.end, t.quota)); t.reserved > used {
		t.shelf.release(t.reserved - used)
		t.reserved = used
	}
	t.closeFile()
	return nil
}

func (t *transcript) closeFile() {
	if t.file != nil && t.over && len(t.followers) == 0 {
		_ = t.file.Close()
		t.file = nil
	}
}

// remove forgets all output.
func (t *transcript) remove() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropBefore(mark{t.end, t.seq, t.total})
	if t.file != nil {
		_ = t.file.Close()
		t.file = nil
	}
	if t.reserved > 0 {
		t.shelf.remove(t.name, t.reserved)
		t.reserved = 0
	}
}

// evict removes what is on the disk of it, and tells whether there was anything.
// It leaves one alone that somebody follows, or that is being moved there.
func (t *transcript) evict() bool {
	if !t.mu.TryLock() {
		return false
	}
	some := t.reserved > 0 && t.over && len(t.followers) == 0
	t.mu.Unlock()
	if some {
		t.remove()
	}
	return some
}

// describe fills in what i says about the output.
func (t *transcript) describe(i *link.Info) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := t.marks[0]
	i.StdoutFrom, i.StderrFrom = first.offset[0], first.offset[1]
	i.Exit.StdoutBytes, i.Exit.StderrBytes = t.total[0], t.total[1]
	i.LogStart, i.LogEnd, i.LogSeq, i.LogRing = t.start, t.end, first.seq, t.quota
}

// follower is somebody who reads a transcript.
type follower struct {
	t   *transcript
	pos int64
	// ready gets a token when there may be something to read.
	ready chan struct{}
}

// follow returns a follower at the first piece that belongs to what ref asks for.
func (t *transcript) follow(ref *link.Ref) *follower {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &follower{t: t, pos: t.start, ready: make(chan struct{}, 1)}
	for _, m := range t.marks {
		if ref.Stream == 0 && m.seq <= ref.Seq || ref.Stream != 0 && m.offset[ref.Stream-1] <= ref.Offset {
			f.pos = m.pos
		}
	}
	if t.followers == nil {
		t.followers = map[*follower]struct{}{}
	}
	t.followers[f] = struct{}{}
	return f
}

// next returns what comes next; over says that nothing will follow it. The
// buffer is made as large as it needs to be, at most blockSize.
func (f *follower) next(buf *[]byte) (block []byte, over bool) {
	t := f.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if want := min(t.end-f.pos, blockSize); int64(len(*buf)) < want {
		*buf = make([]byte, want)
	}
	block = t.read(f.pos, *buf)
	f.pos += int64(len(block))
	if len(block) == 0 {
		return nil, t.over || f.pos < t.end
	}
	t.room.Broadcast()
	return block, false
}

func (f *follower) leave() {
	t := f.t
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.followers, f)
	t.room.Broadcast()
	t.closeFile()
}

var errNoShelf = errors.New("nothing is kept on the disk")
