package testlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long something may take until a terminal shows it.
const patience = 2 * time.Minute

// Terminal is a terminal as a person has it, for a program to run at.
type Terminal struct {
	// TTY is the program's end. Run closes it.
	TTY *os.File

	tb   testing.TB
	pty  *os.File
	cmd  *exec.Cmd
	done chan error

	mu   sync.Mutex
	text strings.Builder
}

// NewTerminal opens a terminal of 100 columns and 30 rows. It is closed when the
// test ends.
func NewTerminal(tb testing.TB) *Terminal {
	tb.Helper()
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	fd := int(pty.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		tb.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		tb.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	t := &Terminal{TTY: tty, tb: tb, pty: pty, done: make(chan error, 1)}
	t.Resize(100, 30)
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		t.read()
	}()
	tb.Cleanup(func() {
		_ = tty.Close() // the last one to let go ends the reading
		<-reading
		_ = pty.Close()
	})
	return t
}

// Run starts a program at the terminal.
func (t *Terminal) Run(cmd *exec.Cmd) {
	t.tb.Helper()
	t.cmd = cmd
	cmd.Stdin, cmd.Stdout, cmd.Stderr = t.TTY, t.TTY, t.TTY
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.tb.Fatal(err)
	}
	_ = t.TTY.Close() // the program has it
	go func() { t.done <- cmd.Wait() }()
}

func (t *Terminal) read() {
	buf := make([]byte, 4096)
	for {
		n, err := t.pty.Read(buf)
		t.mu.Lock()
		t.text.Write(buf[:n])
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Seen is all that the terminal was sent so far.
func (t *Terminal) Seen() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// lately is the end of what was seen, for messages.
func (t *Terminal) lately() string {
	seen := t.Seen()
	return seen[max(0, len(seen)-2000):]
}

// Sees waits until the terminal was sent a text.
func (t *Terminal) Sees(text string) {
	t.tb.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(t.Seen(), text); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.tb.Fatalf("the terminal does not show %q but\n%q", text, t.lately())
		}
	}
}

// Types sends keys.
func (t *Terminal) Types(text string) {
	t.tb.Helper()
	if _, err := t.pty.WriteString(text); err != nil {
		t.tb.Fatal(err)
	}
}

// Resize changes the size of the window.
func (t *Terminal) Resize(columns, rows uint16) {
	t.tb.Helper()
	if err := unix.IoctlSetWinsize(int(t.pty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		t.tb.Fatal(err)
	}
}

// Settings are the modes of the terminal, to compare before and after.
func (t *Terminal) Settings() unix.Termios {
	t.tb.Helper()
	settings, err := unix.IoctlGetTermios(int(t.pty.Fd()), unix.TCGETS)
	if err != nil {
		t.tb.Fatal(err)
	}
	return *settings
}

// Signal sends the program a signal.
func (t *Terminal) Signal(sig syscall.Signal) {
	t.tb.Helper()
	if err := t.cmd.Process.Signal(sig); err != nil {
		t.tb.Fatal(err)
	}
}

// Ends waits for the program's end and checks its code.
func (t *Terminal) Ends(code int) {
	t.tb.Helper()
	select {
	case err := <-t.done:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) || t.cmd.ProcessState.ExitCode() != code {
			t.tb.Fatalf("%v, want code %d; the terminal shows\n%q", err, code, t.lately())
		}
	case <-time.After(patience):
		t.tb.Fatalf("it does not end; the terminal shows\n%q", t.lately())
	}
}
