package cli

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// defaultWidth is assumed where no terminal says how wide it is.
const defaultWidth = 80

// IOStreams are the streams of one run and what is known of them.
type IOStreams struct {
	In       io.Reader
	Out, Err io.Writer
	// InTerminal, OutTerminal and ErrTerminal say which of them are terminals.
	InTerminal, OutTerminal, ErrTerminal bool
	// InEmpty says that In is known to hold nothing, such as /dev/null.
	InEmpty bool
	// Width is the terminal's width in columns.
	Width int
	// Size returns the terminal's columns and rows, and MakeRaw hands every key to
	// this program until restore is called. Both are nil without a terminal.
	Size    func() (cols, rows int, err error)
	MakeRaw func() (restore func() error, err error)
}

// size is the terminal's, or the usual one where there is none.
func (s *IOStreams) size() (cols, rows int) {
	const usualRows, most = 24, 1000
	if s.Size != nil {
		if cols, rows, err := s.Size(); err == nil && cols > 0 && rows > 0 {
			return min(cols, most), min(rows, most)
		}
	}
	return defaultWidth, usualRows
}

// raw hands every key to this program, if there are keys.
func (s *IOStreams) raw() (restore func(), err error) {
	if s.MakeRaw == nil || !s.InTerminal {
		return func() {}, nil
	}
	back, err := s.MakeRaw()
	if err != nil {
		return nil, fmt.Errorf("prepare the terminal: %w", err)
	}
	return func() { _ = back() }, nil // it worked one way, and there is nothing else to try
}

// SystemIO returns the streams of this process.
func SystemIO() *IOStreams {
	s := &IOStreams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		InTerminal:  term.IsTerminal(int(os.Stdin.Fd())),
		OutTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		ErrTerminal: term.IsTerminal(int(os.Stderr.Fd())),
		InEmpty:     isEmpty(os.Stdin),
		Width:       defaultWidth,
	}
	if s.InTerminal {
		s.MakeRaw = func() (func() error, error) {
			state, err := term.MakeRaw(int(os.Stdin.Fd()))
			return func() error { return term.Restore(int(os.Stdin.Fd()), state) }, err
		}
		s.Size = func() (int, int, error) { return term.GetSize(int(os.Stdin.Fd())) }
	}
	if w, _, err := term.GetSize(int(os.Stderr.Fd())); err == nil && w > 0 {
		s.Width = w
	}
	return s
}

// isEmpty reports whether f is closed or a device: reading /dev/zero or a
// serial line to its end would never end.
func isEmpty(f *os.File) bool {
	info, err := f.Stat()
	return err != nil || info.Mode()&os.ModeDevice != 0
}
