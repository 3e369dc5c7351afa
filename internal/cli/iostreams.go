package cli

import (
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
