package growth

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/link"
)

const (
	// patience is how long the kernel may take to see what is new. An emulated CPU
	// takes some hundred milliseconds, a gigabyte of memory as long.
	patience = 45 * time.Second
	look     = 20 * time.Millisecond
)

// Service carries orders out. It is safe for concurrent use.
type Service struct {
	// Root is put before every path; empty outside of tests.
	Root string
	// Extend grows the file system that is mounted at a folder to a number of its
	// blocks; nil asks the kernel to.
	Extend func(folder string, blocks uint64) error
}

// Grow serves one PathGrow request. It answers when the order is carried out.
func (s *Service) Grow(st *http2.Stream) {
	r := link.Reply{}
	if err := s.grow(st, st.Done()); err != nil {
		text := err.Error()
		r.Error = text[:min(len(text), 1024)]
	}
	body, _ := r.MarshalBinary()
	// Whoever ordered it may be gone: then nobody wants to know.
	_, _ = st.Write(link.AppendFrame(nil, link.FrameReply, body))
}

func (s *Service) grow(body io.Reader, gone <-chan struct{}) error {
	t, payload, err := link.NewFrameReader(body).Next()
	if err == nil && t != link.FrameOrder {
		err = link.ErrFrame
	}
	var g link.Growth
	if err == nil {
		err = g.UnmarshalBinary(payload)
	}
	if err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	w := waiter{gone: gone, until: time.Now().Add(patience)}
	// One that fails does not keep the others from what they can have.
	return errors.Join(
		w.await(func() (bool, error) { return s.cpus(g.CPUs) }),
		w.await(func() (bool, error) { return s.memory(g.MemoryBytes) }),
		w.await(func() (bool, error) { return s.disk(g.DiskBytes) }),
	)
}

// waiter repeats something until it is done.
type waiter struct {
	gone  <-chan struct{}
	until time.Time
}

var errGone = errors.New("the host has left")

// await calls step until it is done. The reason why it is not done yet becomes
// the error when patience ends.
func (w *waiter) await(step func() (done bool, err error)) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		done, err := step()
		if done {
			return err
		}
		if time.Now().After(w.until) {
			return err
		}
		select {
		case <-tick.C:
		case <-w.gone:
			return errGone
		}
	}
}
