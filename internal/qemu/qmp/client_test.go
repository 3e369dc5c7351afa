package qmp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/internal/qemu/qmp"
)

// dial connects to a scripted server and closes with the test.
func dial(t *testing.T, script func(*server)) *qmp.Client {
	t.Helper()
	c, err := qmp.Dial(t.Context(), listen(t, script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestExecuteDecodesTheAnswer(t *testing.T) {
	t.Parallel()
	var got command
	c := dial(t, func(s *server) {
		s.greet()
		got = s.next()
		s.answer(got, `{"status": "running"}`)
	})
	var answer struct{ Status string }
	if err := c.Execute(t.Context(), "query-status", map[string]int{"a": 1}, &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Status != "running" {
		t.Errorf("status = %q, want running", answer.Status)
	}
	if got.Execute != "query-status" || string(got.Arguments) != `{"a":1}` {
		t.Errorf("server got %s %s", got.Execute, got.Arguments)
	}
	if c.Version() != "7.2.22" {
		t.Errorf("version = %q, want 7.2.22", c.Version())
	}
}

func TestExecuteReturnsQEMUsRefusal(t *testing.T) {
	t.Parallel()
	c := dial(t, func(s *server) {
		s.greet()
		s.next()
		s.say(`{"id": 2, "error": {"class": "DeviceNotFound", "desc": "no such node"}}`)
		s.answer(s.next(), `{}`)
	})
	err := c.Execute(t.Context(), "blockdev-del", nil, nil)
	var refused *qmp.CommandError
	if !errors.As(err, &refused) {
		t.Fatalf("err = %v, want a CommandError", err)
	}
	want := &qmp.CommandError{Command: "blockdev-del", Class: "DeviceNotFound", Desc: "no such node"}
	if diff := cmp.Diff(want, refused); diff != "" {
		t.Error(diff)
	}
	if err := c.Execute(t.Context(), "stop", nil, nil); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
}

func TestAnswersAndEventsMayComeInAnyOrder(t *testing.T) {
	t.Parallel()
	both := make(chan struct{})
	c := dial(t, func(s *server) {
		s.greet()
		first, second := s.next(), s.next()
		close(both)
		s.event("STOP")
		s.answer(second, `"`+second.Execute+`"`)
		s.event("RESUME")
		s.answer(first, `"`+first.Execute+`"`)
		s.idle()
	})
	events, cancel := c.Subscribe(2)
	defer cancel()
	var calls sync.WaitGroup
	for _, name := range []string{"one", "two"} {
		calls.Go(func() {
			var echo string
			if err := c.Execute(t.Context(), name, nil, &echo); err != nil || echo != name {
				t.Errorf("%s answered %q, %v", name, echo, err)
			}
		})
	}
	<-both
	calls.Wait()
	stop, resume := <-events, <-events
	if stop.Name != "STOP" || resume.Name != "RESUME" {
		t.Errorf("events = %s, %s", stop.Name, resume.Name)
	}
	if string(stop.Data) != `{"n": 1}` || !stop.Time.Equal(time.Unix(1700000000, 500_000_000)) {
		t.Errorf("event has data %s and time %v", stop.Data, stop.Time)
	}
}

func TestExecutePassesDescriptors(t *testing.T) {
	t.Parallel()
	got := make(chan []byte, 2)
	c := dial(t, func(s *server) {
		s.greet()
		for range 2 {
			cmd := s.next()
			f := os.NewFile(uintptr(s.fds[len(s.fds)-1]), "passed")
			content, err := io.ReadAll(f)
			if err != nil {
				t.Error(err)
			}
			_ = f.Close()
			got <- content
			s.answer(cmd, `{}`)
		}
	})
	for _, content := range []string{"first", "second"} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := c.Execute(t.Context(), "getfd", map[string]string{"fdname": "x"}, nil, f); err != nil {
			t.Fatal(err)
		}
		if passed := string(<-got); passed != content {
			t.Errorf("server read %q, want %q", passed, content)
		}
		if _, err := f.Stat(); err != nil {
			t.Errorf("our copy: %v", err)
		}
	}
}

func TestOnlyOneCommandWithDescriptorsIsInFlight(t *testing.T) {
	t.Parallel()
	received := make(chan struct{})
	var order []string
	c := dial(t, func(s *server) {
		s.greet()
		first := s.next()
		order = append(order, first.Execute)
		close(received)
		// The other one with descriptors must not come before the answer.
		second := s.next()
		order = append(order, second.Execute)
		s.answer(second, `{}`)
		s.answer(first, `{}`)
		third := s.next()
		order = append(order, third.Execute)
		s.answer(third, `{}`)
	})
	var calls sync.WaitGroup
	call := func(name string, files ...*os.File) {
		calls.Go(func() {
			if err := c.Execute(t.Context(), name, nil, nil, files...); err != nil {
				t.Error(err)
			}
		})
	}
	call("fd", os.Stdin)
	call("fd", os.Stdin)
	<-received
	call("plain")
	calls.Wait()
	if diff := cmp.Diff([]string{"fd", "plain", "fd"}, order); diff != "" {
		t.Error(diff)
	}
}

func TestSlowSubscriberIsClosedAndTheReaderGoesOn(t *testing.T) {
	t.Parallel()
	c := dial(t, func(s *server) {
		s.greet()
		cmd := s.next()
		for range 3 {
			s.event("TICK")
		}
		s.answer(cmd, `{}`)
		s.idle()
	})
	slow, cancelSlow := c.Subscribe(2)
	wide, cancelWide := c.Subscribe(3)
	defer cancelSlow()
	if err := c.Execute(t.Context(), "go", nil, nil); err != nil {
		t.Fatal(err)
	}
	if n := count(slow); n != 2 {
		t.Errorf("slow subscriber got %d events, want 2 and the end", n)
	}
	cancelWide()
	cancelWide()
	if n := count(wide); n != 3 {
		t.Errorf("wide subscriber got %d events, want 3", n)
	}
	select {
	case <-c.Done():
		t.Errorf("client ended: %v", c.Err())
	default:
	}
}

// count empties a channel that will be closed.
func count(events <-chan qmp.Event) int {
	n := 0
	for range events {
		n++
	}
	return n
}

func TestPeerDeathInMidCommand(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]string{"silent": "", "half a line": `{"return": {`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dial(t, func(s *server) {
				s.greet()
				s.next()
				_, _ = s.conn.Write([]byte(last))
			})
			events, cancel := c.Subscribe(1)
			defer cancel()
			if err := c.Execute(t.Context(), "stop", nil, nil); !errors.Is(err, qmp.ErrGone) {
				t.Errorf("err = %v, want ErrGone", err)
			}
			<-c.Done()
			if !errors.Is(c.Err(), qmp.ErrGone) {
				t.Errorf("Err = %v, want ErrGone", c.Err())
			}
			if _, ok := <-events; ok {
				t.Error("an event after the end")
			}
			if err := c.Execute(t.Context(), "stop", nil, nil); !errors.Is(err, qmp.ErrGone) {
				t.Errorf("later command: %v, want ErrGone", err)
			}
			if err := c.Execute(t.Context(), "getfd", nil, nil, os.Stdin); !errors.Is(err, qmp.ErrGone) {
				t.Errorf("later command with a descriptor: %v, want ErrGone", err)
			}
			late, _ := c.Subscribe(1)
			if _, ok := <-late; ok {
				t.Error("a late subscriber got an event")
			}
		})
	}
}

func TestCancelLeavesTheConnectionUsable(t *testing.T) {
	t.Parallel()
	received, cancelled := make(chan struct{}), make(chan struct{})
	c := dial(t, func(s *server) {
		s.greet()
		slow := s.next()
		close(received)
		<-cancelled
		s.answer(slow, `{}`)
		s.answer(s.next(), `"second"`)
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	tired := errors.New("tired of waiting")
	go func() { <-received; cancel(tired) }()
	if err := c.Execute(ctx, "slow", nil, nil, os.Stdin); !errors.Is(err, tired) {
		t.Errorf("err = %v, want the cause", err)
	}
	if err := c.Execute(ctx, "never sent", nil, nil); !errors.Is(err, tired) {
		t.Errorf("err = %v, want the cause", err)
	}
	close(cancelled)
	var echo string
	if err := c.Execute(t.Context(), "next", nil, &echo, os.Stdin); err != nil || echo != "second" {
		t.Errorf("next command: %q, %v", echo, err)
	}
}

func TestCancelWhileQEMUDoesNotRead(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := dial(t, func(s *server) {
		s.greet()
		_, _ = s.in.ReadByte()
		cancel()
		<-over // reads nothing more
	})
	defer close(over)
	huge := strings.Repeat("x", 4<<20) // more than any socket buffer
	if err := c.Execute(ctx, "fill", huge, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want the cancellation", err)
	}
	<-c.Done() // a command was cut short: the next one would be garbled
}

func TestCloseEndsWaitingCalls(t *testing.T) {
	t.Parallel()
	received := make(chan struct{})
	c := dial(t, func(s *server) {
		s.greet()
		s.next()
		close(received)
		s.idle()
	})
	go func() { <-received; _ = c.Close() }()
	if err := c.Execute(t.Context(), "stop", nil, nil); !errors.Is(err, qmp.ErrClosed) {
		t.Errorf("err = %v, want ErrClosed", err)
	}
	if err := c.Close(); err != nil || !errors.Is(c.Err(), qmp.ErrClosed) {
		t.Errorf("second close: %v; Err = %v", err, c.Err())
	}
}

func TestNonsenseEndsTheClient(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"no json":        `hello`,
		"no kind":        `{}`,
		"two kinds":      `{"return": {}, "event": "X", "id": 2}`,
		"answer, no id":  `{"return": {}}`,
		"error, no id":   `{"error": {"class": "GenericError", "desc": "bad json"}}`,
		"late greeting":  hello,
		"wrong id type":  `{"return": {}, "id": "two"}`,
		"array":          `[1, 2]`,
		"deeply nested":  strings.Repeat(`{"a":`, 20_000),
		"unbounded line": strings.Repeat("x", qmp.MaxLine+1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dial(t, func(s *server) {
				s.greet()
				s.next()
				s.say(line)
				s.idle()
			})
			if err := c.Execute(t.Context(), "stop", nil, nil); err == nil || errors.Is(err, qmp.ErrGone) {
				t.Errorf("err = %v, want what was wrong", err)
			}
			<-c.Done()
		})
	}
}

func TestUnknownIDAndBlankLinesAreIgnored(t *testing.T) {
	t.Parallel()
	c := dial(t, func(s *server) {
		s.greet()
		cmd := s.next()
		s.say("")
		s.say(`{"return": {}, "id": 999}`)
		s.answer(cmd, `"mine"`)
	})
	var echo string
	if err := c.Execute(t.Context(), "stop", nil, &echo); err != nil || echo != "mine" {
		t.Errorf("answer = %q, %v", echo, err)
	}
}

func TestLongLineIsReadWhole(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	c := dial(t, func(s *server) {
		s.greet()
		s.answer(s.next(), `"`+long+`"`)
	})
	var echo string
	if err := c.Execute(t.Context(), "query", nil, &echo); err != nil || echo != long {
		t.Errorf("answer of %d bytes, %v", len(echo), err)
	}
}

func TestAnswerOfAnotherShape(t *testing.T) {
	t.Parallel()
	c := dial(t, func(s *server) {
		s.greet()
		s.answer(s.next(), `[]`)
	})
	var answer struct{ Status string }
	if err := c.Execute(t.Context(), "query-status", nil, &answer); err == nil {
		t.Error("no error")
	}
}

func TestArgumentsThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	c := dial(t, func(s *server) { s.greet(); s.answer(s.next(), `{}`) })
	if err := c.Execute(t.Context(), "stop", func() {}, nil); err == nil {
		t.Error("no error")
	}
	closed, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	if err := c.Execute(t.Context(), "cont", nil, nil); err != nil {
		t.Errorf("after bad arguments: %v", err)
	}
}

func TestDialWaitsForTheSocket(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	long := filepath.Join(dir, strings.Repeat("d", 120))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]string{"short": dir, "longer than a socket address": long} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sock := filepath.Join(at, "s")
			// A dead server's socket is there, and refuses.
			folder, err := os.Open(at)
			if err != nil {
				t.Fatal(err)
			}
			defer folder.Close()
			near := filepath.Join("/proc/self/fd", itoa(int(folder.Fd())), "s")
			dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: near, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			dead.SetUnlinkOnClose(false)
			_ = dead.Close()
			dialled := make(chan error)
			go func() {
				c, err := qmp.Dial(t.Context(), sock)
				if err == nil {
					_ = c.Close()
				}
				dialled <- err
			}()
			if err := os.Remove(sock); err != nil {
				t.Fatal(err)
			}
			serve(t, near, func(s *server) { s.greet(); s.idle() })
			if err := <-dialled; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDialGivesUpWithTheContext(t *testing.T) {
	t.Parallel()
	silent := listen(t, func(s *server) { s.idle() })
	for name, sock := range map[string]string{"no socket": filepath.Join(socketDir(t), "s"), "no greeting": silent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if _, err := qmp.Dial(ctx, sock); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("err = %v, want the deadline", err)
			}
		})
	}
}

func TestDialFailsAtOnceWhereWaitingIsInVain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]func(*server){
		"hangs up":   func(*server) {},
		"is no qemu": func(s *server) { s.say(`{"return": {}, "id": 1}`); s.idle() },
		"refuses to talk": func(s *server) {
			s.say(hello)
			s.next()
			s.say(`{"error": {"class": "G", "desc": "no"}, "id": 1}`)
			s.idle()
		},
		"dies on our answer": func(s *server) { s.say(hello) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := qmp.Dial(t.Context(), listen(t, script)); err == nil || errors.Is(err, context.Canceled) {
				t.Errorf("err = %v", err)
			}
		})
	}
	if _, err := qmp.Dial(t.Context(), filepath.Join(file, "s")); err == nil {
		t.Error("no error for a path through a file")
	}
}
