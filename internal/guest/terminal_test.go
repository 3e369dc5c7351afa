package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/guest/guesttest"
	"github.com/pandovm/pando/internal/link"
)

// startTerminals starts a guest whose sessions are all closed in the end.
func startTerminals(t *testing.T) (*guest.Link, *guesttest.Guest) {
	t.Helper()
	g := guesttest.Start(t, guesttest.WithAccounts(t, passwd, group))
	l := dial(t, g.Socket, link.FreshToken(), epoch(1))
	t.Cleanup(func() { closeAll(t, l) })
	return l, g
}

func closeAll(t *testing.T, l *guest.Link) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	all, err := l.Terminals(ctx, "")
	if err != nil {
		return // the test has cut the link, and closed what it had
	}
	for _, s := range all {
		if _, err := l.CloseTerminal(ctx, guest.TerminalPick{ID: s.ID}); err != nil {
			t.Errorf("close session %d: %v", s.ID, err)
		}
	}
}

func open(t *testing.T, l *guest.Link, o guest.TerminalOrder) *guest.Terminal {
	t.Helper()
	if o.Cols == 0 {
		o.Cols, o.Rows = 80, 24
	}
	term, err := l.OpenTerminal(t.Context(), o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(term.Close)
	return term
}

func attach(t *testing.T, l *guest.Link, p guest.TerminalPick) *guest.Terminal {
	t.Helper()
	term, err := l.AttachTerminal(t.Context(), p)
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	t.Cleanup(term.Close)
	return term
}

// until reads until the output holds want, and returns all of it.
func until(t *testing.T, term *guest.Terminal, want string) string {
	t.Helper()
	var seen bytes.Buffer
	for !strings.Contains(seen.String(), want) {
		e, err := term.Next()
		if err != nil {
			t.Fatalf("waiting for %q, got %v after %.3000q", want, err, seen.String())
		}
		if e.Exited {
			t.Fatalf("waiting for %q, the program ended with %d after %.3000q", want, e.ExitCode, seen.String())
		}
		seen.Write(e.Output)
		if e.Message != "" {
			t.Logf("message %s", e.Message)
		}
	}
	return seen.String()
}

// exit reads to the end of the program.
func exit(t *testing.T, term *guest.Terminal) (out string, code int) {
	t.Helper()
	var seen bytes.Buffer
	for {
		e, err := term.Next()
		if err != nil {
			t.Fatalf("waiting for the end, got %v after %.3000q", err, seen.String())
		}
		seen.Write(e.Output)
		if e.Exited {
			return seen.String(), e.ExitCode
		}
	}
}

func write(t *testing.T, term *guest.Terminal, text string) {
	t.Helper()
	if _, err := term.Write([]byte(text)); err != nil {
		t.Fatalf("type %.40q: %v", text, err)
	}
}

func TestTerminalPrograms(t *testing.T) {
	t.Parallel()
	l, _ := startTerminals(t)
	for name, c := range map[string]struct {
		order guest.TerminalOrder
		out   string
		code  int
	}{
		"output and status": {guest.TerminalOrder{Command: "echo hi; exit 3"}, "hi\r\n", 3},
		"killed":            {guest.TerminalOrder{Command: "kill -9 $$"}, "", 137},
		"environment": {
			guest.TerminalOrder{Command: "echo $TERM $USER $HOME; pwd; id -u"},
			"xterm-256color agent /tmp\r\n/tmp\r\n1000\r\n", 0,
		},
		"other user": {guest.TerminalOrder{Command: "id -u; echo $HOME", User: "root"}, "0\r\n/root\r\n", 0},
		"size":       {guest.TerminalOrder{Command: "stty size", Cols: 133, Rows: 7}, "7 133\r\n", 0},
		"the terminal is the user's": {
			guest.TerminalOrder{Command: "stat -c '%u %a' $(tty) ; test -t 0 && test -t 2 && echo yes"},
			"1000 620\r\nyes\r\n", 0,
		},
		"controlling terminal": {guest.TerminalOrder{Command: "echo direct > /dev/tty"}, "direct\r\n", 0},
		"last words":           {guest.TerminalOrder{Command: "seq 1 3; (sleep 0.05; echo late) &"}, "1\r\n2\r\n3\r\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, code := exit(t, open(t, l, c.order))
			if !strings.HasPrefix(out, c.out) || code != c.code {
				t.Errorf("got %q and status %d", out, code)
			}
		})
	}
}

func TestTerminalRefusals(t *testing.T) {
	t.Parallel()
	l, _ := startTerminals(t)
	open(t, l, guest.TerminalOrder{Command: "cat", Slug: "taken", User: "root"})
	for name, c := range map[string]struct {
		order guest.TerminalOrder
		code  api.Code
		field string
	}{
		"no such user":        {guest.TerminalOrder{User: "nobody-here"}, api.CodeBadRequest, "linuxUser"},
		"slug of another":     {guest.TerminalOrder{User: "agent", Slug: "taken"}, api.CodeConflict, ""},
		"NUL":                 {guest.TerminalOrder{Command: "a\x00b"}, api.CodeBadRequest, "exec"},
		"too long":            {guest.TerminalOrder{Command: strings.Repeat("x", 200<<10)}, api.CodeBadRequest, "exec"},
		"longer than a frame": {guest.TerminalOrder{Command: strings.Repeat("x", 300<<10)}, api.CodeBadRequest, "exec"},
	} {
		c.order.Cols, c.order.Rows = 80, 24
		_, err := l.OpenTerminal(t.Context(), c.order)
		if f := fault.As(err); f == nil || f.Code != c.code || f.Field != c.field {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, p := range map[string]guest.TerminalPick{
		"no such id": {ID: 99}, "no such slug": {Slug: "none"}, "another's": {Slug: "taken", User: "agent"},
	} {
		_, err := l.AttachTerminal(t.Context(), p)
		_, closeErr := l.CloseTerminal(t.Context(), p)
		if f, g := fault.As(err), fault.As(closeErr); f == nil || g == nil || f.Code != api.CodeNotFound || g.Code != api.CodeNotFound {
			t.Errorf("%s: %v, %v", name, err, closeErr)
		}
	}
	if s, err := l.Terminals(t.Context(), "agent"); err != nil || len(s) != 0 {
		t.Errorf("sessions of another: %+v, %v", s, err)
	}
}

// A session goes on without viewers, and shows itself to those that come.
func TestTerminalOutlivesItsViewers(t *testing.T) {
	t.Parallel()
	l, _ := startTerminals(t)
	first := open(t, l, guest.TerminalOrder{Command: "echo begun; while read x; do echo got $x; done", Slug: "main"})
	if s := first.Session; !s.New || s.Slug != "main" || s.User != "agent" || s.Exited {
		t.Errorf("session %+v", s)
	}
	until(t, first, "begun")
	first.Close()

	again := open(t, l, guest.TerminalOrder{Command: "echo not run", Slug: "main"})
	if again.Session.New || again.Session.ID != first.Session.ID {
		t.Errorf("the slug made another session: %+v", again.Session)
	}
	if out := until(t, again, "begun"); !strings.HasPrefix(out, "\x1bc") {
		t.Errorf("the screen does not begin with a reset: %q", out)
	}
	second := attach(t, l, guest.TerminalPick{ID: first.Session.ID})
	until(t, second, "begun")
	write(t, again, "one\n")
	write(t, second, "two\n")
	until(t, again, "got two")
	until(t, second, "got two")
	again.Close()
	if _, err := l.CloseTerminal(t.Context(), guest.TerminalPick{Slug: "main", User: "agent"}); err != nil {
		t.Fatal(err)
	}
	if _, code := exit(t, second); code != 129 {
		t.Errorf("a closed session ended with %d, want 128 and SIGHUP", code)
	}
	if _, err := second.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end of a closed session: %v", err)
	}
}

// What has ended can still be looked at, by its name too.
func TestTerminalAfterItsEnd(t *testing.T) {
	t.Parallel()
	l, _ := startTerminals(t)
	_, code := exit(t, open(t, l, guest.TerminalOrder{Command: "echo result; exit 5", Slug: "job"}))
	all, err := l.Terminals(t.Context(), "")
	if err != nil || code != 5 || len(all) != 1 || !all[0].Exited || all[0].ExitCode != 5 {
		t.Fatalf("sessions %+v, %v, status %d", all, err, code)
	}
	late := open(t, l, guest.TerminalOrder{Slug: "job", Command: "echo other"})
	if late.Session.New || !late.Session.Exited {
		t.Errorf("session %+v", late.Session)
	}
	if out, code := exit(t, late); !strings.Contains(out, "result") || code != 5 {
		t.Errorf("got %q, %d", out, code)
	}
	write(t, late, "to nobody\n")
	closed, err := l.CloseTerminal(t.Context(), guest.TerminalPick{Slug: "job"})
	if err != nil || !closed.Exited || closed.ExitCode != 5 {
		t.Errorf("closed %+v, %v", closed, err)
	}
	if fresh := open(t, l, guest.TerminalOrder{Slug: "job", Command: "cat"}); !fresh.Session.New {
		t.Error("the slug was not free")
	}
}

func TestTerminalResize(t *testing.T) {
	t.Parallel()
	l, _ := startTerminals(t)
	term := open(t, l, guest.TerminalOrder{Command: `trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done`})
	until(t, term, "ready")
	other := attach(t, l, guest.TerminalPick{ID: term.Session.ID})
	if err := term.Resize(100, 30); err != nil {
		t.Fatal(err)
	}
	until(t, term, "30 100")
	until(t, other, "30 100")
	if all, err := l.Terminals(t.Context(), ""); err != nil || all[0].Cols != 100 || all[0].Rows != 30 || all[0].Viewers != 2 {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestTerminalSignals(t *testing.T) {
	t.Parallel()
	l, _ := startTerminals(t)
	shell := open(t, l, guest.TerminalOrder{Command: `set -m; echo ready; sleep 100; echo slept $?; sleep 100; echo slept $?`})
	until(t, shell, "ready")
	for _, number := range []int{2, 9} {
		// The foreground changes hands a moment after the shell says so.
		for answered := false; !answered; {
			if err := shell.Signal(number); err != nil {
				t.Fatal(err)
			}
			e, err := shell.Next()
			if err != nil {
				t.Fatal(err)
			}
			answered = bytes.Contains(e.Output, fmt.Appendf(nil, "slept %d", 128+number))
			if e.Exited {
				return
			}
		}
	}
}

func TestTerminalReplacesItsProgram(t *testing.T) {
	t.Parallel()
	l, _ := startTerminals(t)
	term := open(t, l, guest.TerminalOrder{Command: "echo shell $$; read x", Slug: "s", Replace: true})
	until(t, term, "shell ")
	write(t, term, "\n")
	until(t, term, "shell ")
	all, err := l.Terminals(t.Context(), "")
	if err != nil || len(all) != 1 || all[0].Exited {
		t.Errorf("%+v, %v", all, err)
	}
	if out, code := exit(t, open(t, l, guest.TerminalOrder{Command: "echo try; exit 4", Replace: true})); strings.Count(out, "try") < 2 || code != 4 {
		t.Errorf("a program that cannot start was started: %q, %d", out, code)
	}
}

// The host goes away without a word and another comes, as after a fork or a
// restart of the daemon.
func TestTerminalOutlivesTheLink(t *testing.T) {
	t.Parallel()
	l, g := startTerminals(t)
	term := open(t, l, guest.TerminalOrder{Command: "echo kept; cat", Slug: "main"})
	until(t, term, "kept")
	_ = l.Close()
	if _, err := term.Next(); err == nil {
		t.Error("a terminal survived its link")
	}
	again := dial(t, g.Socket, link.FreshToken(), epoch(2))
	t.Cleanup(func() { closeAll(t, again) })
	back := attach(t, again, guest.TerminalPick{Slug: "main"})
	until(t, back, "kept")
	write(t, back, "typed\n")
	until(t, back, "typed")
}

// A viewer that does not read holds nobody up and costs a bounded amount of
// memory; later it gets the screen as it is then.
func TestTerminalSlowViewer(t *testing.T) {
	t.Parallel()
	l, _ := startTerminals(t)
	fast := open(t, l, guest.TerminalOrder{Command: "stty -echo; read x; seq 1 300000 | sed s/$/----------/; echo; echo finished; cat"})
	slow := attach(t, l, guest.TerminalPick{ID: fast.Session.ID})
	write(t, fast, "go\n")
	until(t, fast, "finished")
	out := until(t, slow, "finished")
	if !strings.Contains(out, "300000----------") {
		t.Errorf("the slow viewer got a screen without the last line, of %d bytes", len(out))
	}
}

// Input that the program does not read waits, and none of it is lost.
func TestTerminalLongInput(t *testing.T) {
	t.Parallel()
	l, _ := startTerminals(t)
	term := open(t, l, guest.TerminalOrder{Command: "stty raw -echo; echo ready; sleep 0.3; head -c 1000000 | cksum"})
	until(t, term, "ready")
	go func() { _, _ = term.Write(bytes.Repeat([]byte("0123456789"), 100000)) }()
	want := mustExec(t, l, guest.ExecOrder{Command: "yes 0123456789 | tr -d '\\n' | head -c 1000000 | cksum"})
	until(t, term, strings.TrimSpace(string(want.Stdout)))
}

// Questions to the terminal are answered without anybody there, and once.
func TestTerminalAnswers(t *testing.T) {
	t.Parallel()
	l, _ := startTerminals(t)
	const ask = `stty raw -echo min 0 time 20; printf 'ab\033[6n'; a=$(dd bs=1 count=6 2>/dev/null | tr '\033' E); stty sane; echo "answer $a"`
	out := until(t, open(t, l, guest.TerminalOrder{Command: ask + "; cat", Slug: "q"}), "answer E[1;3R")
	if strings.Contains(out, "\x1b[6n") {
		t.Errorf("the viewer was asked: %q", out)
	}
}
