package command

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/pandovm/pando/internal/agent/process"
	"github.com/pandovm/pando/internal/link"
)

// reading is what comes out of a transcript.
type reading struct {
	seq   int64
	ends  [2]int64
	bytes [2][]byte
	// gaps tells whether something was missing.
	gaps bool
}

func (r *reading) take(t interface{ Fatalf(string, ...any) }, block []byte) {
	for len(block) > 0 {
		n := pieceLength(block)
		o, err := link.ParseOutput(block[link.FrameHeader:n])
		if err != nil {
			t.Fatalf("a piece is broken: %v", err)
		}
		s := o.Stream - 1
		if o.Seq <= r.seq || o.Offset < r.ends[s] {
			t.Fatalf("piece %d at %d after piece %d and %d", o.Seq, o.Offset, r.seq, r.ends[s])
		}
		r.gaps = r.gaps || o.Seq != r.seq+1
		r.seq, r.ends[s] = o.Seq, o.Offset+int64(len(o.Data))
		r.bytes[s] = append(r.bytes[s], o.Data...)
		block = block[n:]
	}
}

// Whatever is written and wherever one begins to read: what comes is in order,
// is what was written, and lacks nothing but what is no longer kept.
func TestTranscript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		sh := &shelf{dir: dir}
		rolling := rapid.Bool().Draw(rt, "rolling")
		tr := newTranscript(sh, "exec-1", rolling)
		if rapid.Bool().Draw(rt, "kept") {
			tr.quota = 300 << 10
		} else {
			tr.rolling, tr.quota = true, unkeptSize
		}
		defer tr.remove()
		var written [2][]byte
		for range rapid.IntRange(1, 60).Draw(rt, "pieces") {
			s := rapid.IntRange(0, 1).Draw(rt, "stream")
			p := bytes.Repeat([]byte{byte(len(written[s]))}, rapid.IntRange(1, pieceSize).Draw(rt, "size"))
			tr.append(s, p)
			written[s] = append(written[s], p...)
		}
		tr.finish()
		if rapid.Bool().Draw(rt, "settled") {
			tr.settle(smallOutput)
		}
		if tr.end-tr.start > tr.quota {
			rt.Fatalf("%d bytes are kept of %d", tr.end-tr.start, tr.quota)
		}
		var i link.Info
		tr.describe(&i)
		if i.Exit.StdoutBytes != int64(len(written[0])) || i.Exit.StderrBytes != int64(len(written[1])) {
			rt.Fatalf("counted %+v, wrote %d and %d", i.Exit, len(written[0]), len(written[1]))
		}
		r := reading{seq: i.LogSeq - 1, ends: [2]int64{i.StdoutFrom, i.StderrFrom}}
		from := r.ends
		f := tr.follow(&link.Ref{})
		var buf []byte
		for {
			block, over := f.next(&buf)
			r.take(rt, block)
			if over {
				break
			}
		}
		f.leave()
		for s := range written {
			if tr.rolling && !bytes.Equal(r.bytes[s], written[s][from[s]:]) {
				rt.Fatalf("read %d bytes of stream %d from %d of %d", len(r.bytes[s]), s, from[s], len(written[s]))
			}
			if !tr.rolling && !bytes.HasPrefix(written[s], r.bytes[s]) {
				rt.Fatalf("the beginning of stream %d is not what was written", s)
			}
		}
		if tr.rolling && r.gaps {
			rt.Fatalf("pieces are missing")
		}
	})
}

// FuzzRecordFile has an agent start on a file of records that somebody damaged.
func FuzzRecordFile(f *testing.F) {
	info, _ := link.Info{ID: "exec-1", State: link.ExecExited, LogEnd: 30, LogSeq: 1, LogRing: 1 << 20}.MarshalBinary()
	good := link.AppendOutput(link.AppendFrame(nil, link.FrameInfo, info), link.Output{Stream: 1, Seq: 1, Data: []byte("hello")})
	f.Add(good)
	f.Add(good[:len(good)-3])
	evil, _ := link.Info{ID: "../../etc/passwd", State: 1, LogEnd: -1, LogSeq: 1, LogRing: 1}.MarshalBinary()
	f.Add(link.AppendFrame(good, link.FrameInfo, evil))
	f.Fuzz(func(t *testing.T, file []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, recordsName), file, 0o600); err != nil {
			t.Fatal(err)
		}
		s := New(nil, process.Accounts{}, dir)
		for _, x := range s.list() {
			if !plausible(&link.Info{ID: x.id, LogSeq: 1, LogRing: 1}) || x.isRunning() {
				t.Fatalf("%q was taken", x.id)
			}
			x.info()
			fo := x.out.follow(&link.Ref{})
			var buf []byte
			for {
				if _, over := fo.next(&buf); over {
					break
				}
			}
			fo.leave()
		}
	})
}
