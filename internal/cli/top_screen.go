package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

// What the live view asks of a terminal, and how it gives it back.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	cursorHome  = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// defaultHeight is assumed where no terminal says how high it is.
const defaultHeight = 24

// watchTop looks again and again until a key or a signal ends it. However it
// ends, the terminal is as it was.
func (a *app) watchTop(ctx context.Context, c *pando.Client, o topOptions, before api.VMStatsList) (err error) {
	keys, restore := a.listen(ctx)
	defer restore()
	if _, err := io.WriteString(a.IO.Out, enterScreen); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	defer func() { _, _ = io.WriteString(a.IO.Out, leaveScreen) }()
	rows, problem := topRows(api.VMStatsList{}, before, o.sort), error(nil)
	for wait := leastInterval; ; wait = o.interval {
		if err := a.drawTop(rows, problem); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil // a signal is how this ends
		case <-keys:
			return nil
		case <-time.After(wait):
		}
		var after api.VMStatsList
		if after, problem = c.VMs.AllStats(ctx); problem == nil {
			rows, before = topRows(before, after, o.sort), after
		}
	}
}

// drawTop draws over what was there, so that nothing flickers.
func (a *app) drawTop(rows []topRow, problem error) error {
	width, height := a.screenSize()
	var b strings.Builder
	if err := topTable(rows).write(&b, width); err != nil {
		return err
	}
	head := topSummary(rows)
	if problem != nil {
		head = "no answer from the daemon, these are the last numbers: " + problem.Error()
	}
	lines := append([]string{head, ""}, strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")...)
	if len(lines) >= height {
		lines = append(lines[:max(1, height-2)], fmt.Sprintf("… and %d more", len(lines)-max(1, height-2)))
	}
	var out strings.Builder
	out.WriteString(cursorHome)
	for _, line := range lines {
		out.WriteString(cut(printable(line), max(width, 1)) + clearLine + "\n")
	}
	out.WriteString(clearBelow)
	if _, err := io.WriteString(a.IO.Out, out.String()); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}

func (a *app) screenSize() (width, height int) {
	if f, ok := a.IO.Out.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return w, h
		}
	}
	return a.IO.Width, defaultHeight
}

// listen tells of the key q. The terminal gives keys at once and shows none of
// them until restore; Ctrl-C stays the signal that it is.
func (a *app) listen(ctx context.Context) (keys <-chan struct{}, restore func()) {
	f, ok := a.IO.In.(*os.File)
	if !ok || !a.IO.InTerminal {
		return nil, func() {}
	}
	fd := int(f.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, func() {}
	}
	quiet := *before
	quiet.Lflag &^= unix.ICANON | unix.ECHO
	quiet.Cc[unix.VMIN], quiet.Cc[unix.VTIME] = 0, 1 // a read ends after a tenth of a second
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &quiet); err != nil {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	pressed, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		awaitQuit(ctx, f, pressed)
	}()
	return pressed, func() {
		cancel()
		<-ended
		_ = unix.IoctlSetTermios(fd, unix.TCSETS, before)
	}
}

// awaitQuit closes pressed when q comes. Reads return without a key now and
// then, so it ends soon after the context.
func awaitQuit(ctx context.Context, f *os.File, pressed chan<- struct{}) {
	var key [1]byte
	for ctx.Err() == nil {
		n, err := unix.Read(int(f.Fd()), key[:])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return
		case n == 1 && (key[0] == 'q' || key[0] == 'Q'):
			close(pressed)
			return
		}
	}
}
