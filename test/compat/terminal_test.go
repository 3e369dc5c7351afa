package compat

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

// person is a run of the command line at a terminal, as a person has it.
type person struct {
	t    *testing.T
	cmd  *exec.Cmd
	pty  *os.File
	done chan error

	mu   sync.Mutex
	text strings.Builder
}

// patience is how long something may take until a terminal shows it.
const patience = 2 * time.Minute

// atTerminal starts the command line at a terminal of 100 columns and 30 rows.
func (f *freestyle) atTerminal(t *testing.T, args ...string) *person {
	t.Helper()
	pty, tty := openTerminal(t)
	p := &person{t: t, cmd: f.command(t.Context(), args...), pty: pty, done: make(chan error, 1)}
	p.resize(100, 30)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = tty, tty, tty
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close() // the program has it
	f.used.add(args)
	go p.read()
	go func() { p.done <- p.cmd.Wait() }()
	return p
}

// openTerminal returns both ends of a new terminal.
func openTerminal(t *testing.T) (pty, tty *os.File) {
	t.Helper()
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pty.Close() })
	fd := int(pty.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return pty, tty
}

func (p *person) read() {
	buf := make([]byte, 4096)
	for {
		n, err := p.pty.Read(buf)
		p.mu.Lock()
		p.text.Write(buf[:n])
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *person) seen() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// sees waits until the terminal has shown a text.
func (p *person) sees(text string) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(p.seen(), text); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("the terminal does not show %q but\n%s", text, p.seen())
		}
	}
}

func (p *person) types(text string) {
	p.t.Helper()
	if _, err := p.pty.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
}

func (p *person) resize(columns, rows uint16) {
	p.t.Helper()
	if err := unix.IoctlSetWinsize(int(p.pty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		p.t.Fatal(err)
	}
}

// ends waits for the program's end and checks its code.
func (p *person) ends(code int) {
	p.t.Helper()
	select {
	case err := <-p.done:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) || p.cmd.ProcessState.ExitCode() != code {
			p.t.Fatalf("%v, want code %d; the terminal shows\n%s", err, code, p.seen())
		}
	case <-time.After(patience):
		p.t.Fatalf("it does not end; the terminal shows\n%s", p.seen())
	}
}
