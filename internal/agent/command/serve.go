package command

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/agent/process"
	"github.com/pandovm/pando/internal/link"
)

const (
	// maxStdin bounds the input that an order may bring.
	maxStdin = 16 << 20
	// maxArgument is the kernel's bound on one argument, with its NUL.
	maxArgument = 128 << 10
)

// Exec serves PathExec: it runs a command and waits for it.
func (s *Service) Exec(st *http2.Stream) {
	x, o, ok := s.begin(st, false)
	if !ok {
		return
	}
	p := pump{to: st, done: st.Done(), wait: true, left: [2]int64{o.MaxOutput, o.MaxOutput}}
	p.run(x.out, &link.Ref{})
	select {
	case <-x.ended:
	case <-st.Done():
		return
	}
	i := x.info()
	body, _ := i.Exit.MarshalBinary()
	_, _ = st.Write(link.AppendFrame(nil, link.FrameExit, body))
}

// Start serves PathStart: it starts a command and follows it.
func (s *Service) Start(st *http2.Stream) {
	x, _, ok := s.begin(st, true)
	if !ok {
		return
	}
	_, _ = st.Write(appendInfo(nil, x))
	s.follow(st, x, &link.Ref{Wait: true})
}

// Output serves PathOutput.
func (s *Service) Output(st *http2.Stream) {
	ref, x, ok := s.refer(st)
	if !ok {
		return
	}
	_, _ = st.Write(appendInfo(nil, x))
	s.follow(st, x, &ref)
}

func (s *Service) follow(st *http2.Stream, x *execution, ref *link.Ref) {
	const all = 1<<63 - 1
	p := pump{to: st, done: st.Done(), wait: ref.Wait, left: [2]int64{all, all}}
	p.run(x.out, ref)
	if ref.Wait {
		_, _ = st.Write(appendInfo(nil, x))
	}
}

func appendInfo(b []byte, x *execution) []byte {
	body, _ := x.info().MarshalBinary()
	return link.AppendFrame(b, link.FrameInfo, body)
}

func refuse(w io.Writer, cause link.Cause, err error) {
	text := err.Error()
	body, _ := link.Refusal{Cause: cause, Text: text[:min(len(text), 1024)]}.MarshalBinary()
	_, _ = w.Write(link.AppendFrame(nil, link.FrameRefused, body))
}

// begin reads an order and starts its command, or says why not.
func (s *Service) begin(st *http2.Stream, rolling bool) (*execution, *link.Order, bool) {
	o, stdin, err := readOrder(st)
	if err != nil {
		refuse(st, link.CauseFailed, err)
		return nil, nil, false
	}
	c, cause, err := s.prepare(&o)
	if err != nil {
		refuse(st, cause, err)
		return nil, nil, false
	}
	if !s.enlist(o.ID) {
		closeAll(c.Extra)
		refuse(st, link.CauseBusy, fmt.Errorf("%d commands run, or the id is taken", mostRunning))
		return nil, nil, false
	}
	x, err := s.launch(c, &o, stdin, rolling)
	if err != nil {
		s.unlist()
		refuse(st, causeOf(err), err)
		return nil, nil, false
	}
	s.register(x)
	return x, &o, true
}

// readOrder reads the order and all of its input, so that no command ever works
// on the first half of what it was meant to get.
func readOrder(r io.Reader) (o link.Order, stdin []byte, err error) {
	frames := link.NewOrderReader(r)
	t, payload, err := frames.Next()
	if err == nil && t != link.FrameOrder {
		err = link.ErrFrame
	}
	if err == nil {
		err = o.UnmarshalBinary(payload)
	}
	for err == nil && o.Stdin {
		t, payload, err = frames.Next()
		if err != nil || t == link.FrameStdinEnd {
			break
		}
		if stdin = append(stdin, payload...); len(stdin) > maxStdin {
			err = errors.New("stdin exceeds 16 MiB")
		}
	}
	if err == nil && strings.Trim(o.ID, idLetters) != "" {
		err = errors.New("malformed id")
	}
	if err != nil {
		return o, nil, fmt.Errorf("read order: %w", err)
	}
	return o, stdin, nil
}

// prepare turns an order into a command without descriptors 0 to 2.
func (s *Service) prepare(o *link.Order) (*process.Command, link.Cause, error) {
	if strings.IndexByte(o.Command, 0) >= 0 {
		return nil, link.CauseCommand, errors.New("command has a NUL byte")
	}
	for _, e := range o.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" || len(e) >= maxArgument || strings.IndexByte(e, 0) >= 0 {
			return nil, link.CauseEnv, fmt.Errorf("environment entry %.40q", e)
		}
	}
	a, err := s.Accounts.Find(o.User)
	if errors.Is(err, process.ErrNoAccount) {
		return nil, link.CauseUser, err
	}
	if err != nil {
		return nil, link.CauseFailed, err
	}
	o.User = a.Name // which the record shows
	if len(o.Command) < maxArgument {
		return a.Run(o.Command, o.Env), link.CauseFailed, nil
	}
	c, err := runLong(a, o)
	return c, link.CauseFailed, err
}

func causeOf(err error) link.Cause {
	if errors.Is(err, syscall.E2BIG) {
		return link.CauseEnv
	}
	return link.CauseFailed
}

// pump carries a transcript to the host.
type pump struct {
	to   io.Writer
	done <-chan struct{}
	// wait goes on until nothing more will come.
	wait bool
	// left is how much of each stream is still wanted.
	left [2]int64
}

// run carries what ref asks for.
func (p *pump) run(t *transcript, ref *link.Ref) {
	f := t.follow(ref)
	defer f.leave()
	var buf []byte
	for {
		select {
		case <-p.done:
			return
		default:
		}
		block, over := f.next(&buf)
		if len(block) > 0 {
			if _, err := p.to.Write(p.choose(block, ref)); err != nil {
				return
			}
			continue
		}
		if over || !p.wait || p.left == [2]int64{} {
			return
		}
		select {
		case <-f.ready:
		case <-p.done:
			return
		}
	}
}

// choose returns the part of a block of pieces that is wanted. It works in place:
// pieces only get shorter.
func (p *pump) choose(block []byte, ref *link.Ref) []byte {
	kept := block[:0]
	for len(block) > 0 {
		n := pieceLength(block)
		if n == 0 {
			return kept
		}
		kept = p.piece(kept, block[:n], ref)
		block = block[n:]
	}
	return kept
}

// piece appends what is wanted of one piece to kept, which ends before it.
func (p *pump) piece(kept, piece []byte, ref *link.Ref) []byte {
	o, err := link.ParseOutput(piece[link.FrameHeader:])
	if err != nil {
		return kept
	}
	stream := int(o.Stream) - 1
	if ref.Stream != 0 && (ref.Stream != int(o.Stream) || o.Offset+int64(len(o.Data)) <= ref.Offset) || ref.Stream == 0 && o.Seq < ref.Seq {
		return kept
	}
	if skip := ref.Offset - o.Offset; ref.Stream != 0 && skip > 0 {
		o.Offset, o.Data = ref.Offset, o.Data[skip:]
	}
	n := min(int64(len(o.Data)), p.left[stream])
	if n == 0 {
		return kept
	}
	p.left[stream] -= n
	head := len(kept)
	kept = append(kept, piece[:pieceHead]...)
	binary.BigEndian.PutUint32(kept[head+1:], uint32(link.OutputHeader+n))
	binary.BigEndian.PutUint64(kept[head+pieceHead-8:], uint64(o.Offset))
	return append(kept, o.Data[:n]...)
}
