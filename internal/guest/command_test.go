package guest_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/guest/guesttest"
	"github.com/pandovm/pando/internal/link"
)

func newID() string { return "exec-" + uuid.NewString() }

// startExec starts a command under a new id.
func startExec(t *testing.T, l *guest.Link, o guest.ExecOrder) (string, *guest.Output) {
	t.Helper()
	o.ID = newID()
	out, err := l.Start(t.Context(), o)
	if err != nil {
		t.Fatalf("start %.80q: %v", o.Command, err)
	}
	t.Cleanup(out.Close)
	return o.ID, out
}

// heard is what a follower got.
type heard struct {
	stdout, stderr []byte
	seqs           []int64
	order          []command.Stream
	last           *command.Info
}

// take adds one event and reports whether the stream is over.
func (h *heard) take(t *testing.T, out command.Output) (over bool) {
	t.Helper()
	e, err := out.Next()
	if errors.Is(err, io.EOF) {
		return true
	}
	if err != nil {
		t.Fatalf("next: %v", err)
	}
	if e.Info != nil {
		h.last = e.Info
		return false
	}
	to := &h.stdout
	if e.Chunk.Stream == command.Stderr {
		to = &h.stderr
	}
	if e.Chunk.Offset != int64(len(*to)) {
		t.Fatalf("a piece of %s at %d after %d bytes", e.Chunk.Stream, e.Chunk.Offset, len(*to))
	}
	*to = append(*to, e.Chunk.Data...)
	h.seqs, h.order = append(h.seqs, e.Chunk.Seq), append(h.order, e.Chunk.Stream)
	return false
}

func (h *heard) all(t *testing.T, out command.Output) {
	t.Helper()
	for !h.take(t, out) {
	}
}

func hear(t *testing.T, out command.Output) *heard {
	t.Helper()
	h := new(heard)
	h.all(t, out)
	return h
}

func follow(t *testing.T, l *guest.Link, f command.Follow) *guest.Output {
	t.Helper()
	out, err := l.Follow(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.Close)
	return out
}

func TestStartStreams(t *testing.T) {
	t.Parallel()
	l := start3(t)
	id, out := startExec(t, l, guest.ExecOrder{Command: "echo a; sleep 0.05; echo b >&2; sleep 0.05; echo c; exit 3"})
	h := hear(t, out)
	if string(h.stdout) != "a\nc\n" || string(h.stderr) != "b\n" {
		t.Errorf("printed %q and %q", h.stdout, h.stderr)
	}
	if diff := cmp.Diff([]command.Stream{"stdout", "stderr", "stdout"}, h.order); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int64{1, 2, 3}, h.seqs); diff != "" {
		t.Error(diff)
	}
	i := h.last
	if i == nil || i.ID != id || i.State != command.Exited || i.ExitCode == nil || *i.ExitCode != 3 || i.StdoutBytes != 4 || i.StderrBytes != 2 {
		t.Errorf("ended as %+v", i)
	}
	again, err := l.ExecInfo(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*i, again); diff != "" {
		t.Error(diff)
	}
}

// A follower that comes late, or back, misses nothing and gets nothing twice.
func TestFollowFromAnywhere(t *testing.T) {
	t.Parallel()
	l := start3(t)
	id, out := startExec(t, l, guest.ExecOrder{Command: "for i in $(seq 200); do echo out $i; echo err $i >&2; done"})
	whole := hear(t, out)
	for range 20 {
		from := 1 + rand.Int64N(int64(len(whole.seqs)))
		rest := follow(t, l, command.Follow{ID: id, Seq: from, Wait: true})
		e, err := rest.Next()
		if err != nil || e.Info == nil {
			t.Fatal(e, err)
		}
		if e, err = rest.Next(); err != nil || e.Chunk == nil || e.Chunk.Seq != from {
			t.Fatalf("asked for piece %d, got %+v, %v", from, e, err)
		}
		rest.Close()
	}
	for _, s := range []struct {
		stream command.Stream
		want   []byte
	}{{command.Stdout, whole.stdout}, {command.Stderr, whole.stderr}} {
		for range 10 {
			at := rand.IntN(len(s.want))
			rest := follow(t, l, command.Follow{ID: id, Stream: s.stream, Offset: int64(at)})
			if got := bytesOf(t, rest, s.stream, int64(at)); !bytes.Equal(got, s.want[at:]) {
				t.Errorf("%s from %d: %d bytes, want %d", s.stream, at, len(got), len(s.want)-at)
			}
		}
	}
}

// bytesOf reads one output.
func bytesOf(t *testing.T, out command.Output, stream command.Stream, at int64) []byte {
	t.Helper()
	var got []byte
	for {
		e, err := out.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Chunk == nil {
			continue
		}
		if e.Chunk.Stream != stream || e.Chunk.Offset != at+int64(len(got)) {
			t.Fatalf("a piece of %s at %d, want %s at %d", e.Chunk.Stream, e.Chunk.Offset, stream, at+int64(len(got)))
		}
		got = append(got, e.Chunk.Data...)
	}
}

// The command goes on without its follower, and a new one takes over.
func TestFollowerLeavesAndComesBack(t *testing.T) {
	t.Parallel()
	l := start3(t)
	dir := sharedDir(t)
	mustFifo(t, filepath.Join(dir, "go"))
	id, out := startExec(t, l, guest.ExecOrder{Command: "echo first; read _ < " + dir + "/go; echo second; exit 5"})
	h := new(heard)
	for len(h.stdout) == 0 {
		h.take(t, out)
	}
	out.Close()
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	h.all(t, follow(t, l, command.Follow{ID: id, Seq: h.seqs[len(h.seqs)-1] + 1, Wait: true}))
	if string(h.stdout) != "first\nsecond\n" || *h.last.ExitCode != 5 {
		t.Errorf("printed %q, ended as %+v", h.stdout, h.last)
	}
}

// What is longer than what is kept is held back while somebody follows, however
// slowly, and loses nothing.
func TestSlowFollowerLosesNothing(t *testing.T) {
	t.Parallel()
	l := start3(t)
	const size = 150 << 20
	_, out := startExec(t, l, guest.ExecOrder{Command: "head -c " + strconv.Itoa(size) + " /dev/zero"})
	var got int64
	for {
		e, err := out.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Chunk == nil {
			continue
		}
		if e.Chunk.Offset != got {
			t.Fatalf("a piece at %d after %d bytes", e.Chunk.Offset, got)
		}
		if got += int64(len(e.Chunk.Data)); got < 1<<20 {
			time.Sleep(time.Millisecond)
		}
	}
	if got != size {
		t.Errorf("got %d bytes", got)
	}
}

// Without a follower a command is never held back, and the end is kept.
func TestAbandonedCommandIsNotHeldBack(t *testing.T) {
	t.Parallel()
	l := start3(t)
	id, out := startExec(t, l, guest.ExecOrder{Command: "sleep 0.2; head -c 150000000 /dev/zero; printf end; exit 9"})
	out.Close()
	i := awaitEnd(t, l, id)
	if *i.ExitCode != 9 || i.StdoutBytes != 150_000_003 || i.StdoutFrom == 0 {
		t.Errorf("ended as %+v", i)
	}
	if got := bytesOf(t, follow(t, l, command.Follow{ID: id, Stream: command.Stdout, Offset: i.StdoutFrom}), command.Stdout, i.StdoutFrom); !bytes.HasSuffix(got, []byte("end")) ||
		int64(len(got)) != i.StdoutBytes-i.StdoutFrom {
		t.Errorf("%d bytes are kept from %d", len(got), i.StdoutFrom)
	}
}

func awaitEnd(t *testing.T, l *guest.Link, id string) command.Info {
	t.Helper()
	h := hear(t, follow(t, l, command.Follow{ID: id, Seq: 1 << 60, Wait: true}))
	return *h.last
}

// Of a command that is waited for, the answer is cut and the guest keeps more.
func TestKeptBeyondTheAnswer(t *testing.T) {
	t.Parallel()
	l := start3(t)
	id := newID()
	r := mustExec(t, l, guest.ExecOrder{ID: id, Command: "seq 1000000; echo oops >&2", MaxOutput: 1000})
	if len(r.Stdout) != 1000 || r.StdoutBytes != 6_888_896 || string(r.Stderr) != "oops\n" {
		t.Errorf("%d of %d bytes, %q", len(r.Stdout), r.StdoutBytes, r.Stderr)
	}
	got := bytesOf(t, follow(t, l, command.Follow{ID: id, Stream: command.Stdout}), command.Stdout, 0)
	if int64(len(got)) != r.StdoutBytes || !bytes.HasPrefix(got, r.Stdout) || !bytes.HasSuffix(got, []byte("\n1000000\n")) {
		t.Errorf("%d bytes are kept", len(got))
	}
	// Beyond what is kept, output is counted.
	id = newID()
	r = mustExec(t, l, guest.ExecOrder{ID: id, Command: "head -c 100000000 /dev/zero; echo oops >&2", MaxOutput: 1000})
	if r.StdoutBytes != 100_000_000 || string(r.Stderr) != "oops\n" {
		t.Errorf("wrote %d bytes and %q", r.StdoutBytes, r.Stderr)
	}
}

func TestFeed(t *testing.T) {
	t.Parallel()
	l := start3(t)
	id, out := startExec(t, l, guest.ExecOrder{Command: "sha256sum", Stdin: []byte("begin "), OpenStdin: true})
	sum := sha256.New()
	_, _ = sum.Write([]byte("begin "))
	var size int64 = 6
	for n := range 4 {
		part := make([]byte, 1+rand.IntN(3<<20))
		for i := range part {
			part[i] = byte(rand.Uint32())
		}
		_, _ = sum.Write(part)
		size += int64(len(part))
		in := command.Input{ID: id, Offset: -1, Close: n == 3, Body: bytes.NewReader(part)}
		i, err := l.Feed(t.Context(), in)
		if err != nil || i.StdinBytes != size {
			t.Fatalf("%+v, %v; want %d bytes", i, err, size)
		}
		// To repeat what has arrived does nothing.
		in.Offset, in.Body, in.Close = size-int64(len(part)), bytes.NewReader(part), false
		if i, err = l.Feed(t.Context(), in); err != nil || i.StdinBytes != size {
			t.Fatalf("repeated: %+v, %v; want %d bytes", i, err, size)
		}
	}
	h := hear(t, out)
	if want := fmt.Sprintf("%x  -\n", sum.Sum(nil)); string(h.stdout) != want {
		t.Errorf("got %s, want %s", h.stdout, want)
	}
	_, err := l.Feed(t.Context(), command.Input{ID: id, Offset: -1, Body: strings.NewReader("x")})
	wantReason(t, err, api.ReasonCommandEnded)
}

func wantReason(t *testing.T, err error, reason api.Reason) {
	t.Helper()
	if !fault.HasReason(err, reason) {
		t.Errorf("error is %v, want reason %s", err, reason)
	}
}

func TestFeedRefuses(t *testing.T) {
	t.Parallel()
	l := start3(t)
	feed := func(id string, offset int64) error {
		_, err := l.Feed(t.Context(), command.Input{ID: id, Offset: offset, Body: strings.NewReader("x")})
		return err
	}
	id, _ := startExec(t, l, guest.ExecOrder{Command: "cat", OpenStdin: true})
	wantReason(t, feed(id, 5), api.ReasonWrongOffset)
	closed, _ := startExec(t, l, guest.ExecOrder{Command: "sleep 100"})
	wantReason(t, feed(closed, -1), api.ReasonCommandEnded)
	deaf, _ := startExec(t, l, guest.ExecOrder{Command: "exec 0<&-; sleep 100", OpenStdin: true})
	for feed(deaf, -1) == nil {
	}
	wantReason(t, feed(deaf, -1), api.ReasonCommandEnded)
	for _, id := range []string{id, closed, deaf} {
		if err := l.ForgetExec(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// Input that breaks off is continued where it broke.
func TestFeedBreaksOff(t *testing.T) {
	t.Parallel()
	l := start3(t)
	id, out := startExec(t, l, guest.ExecOrder{Command: "cat", OpenStdin: true})
	broken := errors.New("broken")
	_, err := l.Feed(t.Context(), command.Input{ID: id, Body: io.MultiReader(strings.NewReader("hello "), errorReader{broken})})
	if err == nil {
		t.Fatal("a broken body was taken for a whole one")
	}
	text := "hello world"
	i, err := l.ExecInfo(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if i, err = l.Feed(t.Context(), command.Input{ID: id, Body: strings.NewReader(text), Close: true}); err != nil || i.StdinBytes != int64(len(text)) {
		t.Fatalf("%+v, %v", i, err)
	}
	if h := hear(t, out); string(h.stdout) != text {
		t.Errorf("got %q", h.stdout)
	}
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

func TestSignals(t *testing.T) {
	t.Parallel()
	l := start3(t)
	id, out := startExec(t, l, guest.ExecOrder{Command: "trap 'echo caught' USR1; echo ready; while :; do sleep 0.02; done"})
	h := new(heard)
	await := func(text string) {
		for !strings.Contains(string(h.stdout), text) {
			h.take(t, out)
		}
	}
	await("ready")
	if _, err := l.SignalExec(t.Context(), id, syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	await("caught")
	if _, err := l.SignalExec(t.Context(), id, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	h.all(t, out)
	if *h.last.ExitCode != 128+15 {
		t.Errorf("ended as %+v", h.last)
	}
	_, err := l.SignalExec(t.Context(), id, syscall.SIGTERM)
	wantReason(t, err, api.ReasonCommandEnded)
}

func TestForgetKillsEverything(t *testing.T) {
	t.Parallel()
	l := start3(t)
	id, out := startExec(t, l, guest.ExecOrder{Command: "sh -c 'trap \"\" TERM; setsid sh -c \"echo \\$\\$; sleep 1000\" & wait' & wait"})
	h := new(heard)
	for !strings.Contains(string(h.stdout), "\n") {
		h.take(t, out)
	}
	if err := l.ForgetExec(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(h.stdout)))
	if err != nil {
		t.Fatal(err)
	}
	if state := processState(pid); state != "" && state != "Z" {
		t.Errorf("process %d is still there: %s", pid, state)
	}
	_, err = l.ExecInfo(t.Context(), id)
	if f := fault.As(err); f == nil || f.Code != api.CodeNotFound {
		t.Errorf("a forgotten command: %v", err)
	}
}

func TestUnknownCommands(t *testing.T) {
	t.Parallel()
	l := start3(t)
	id := newID()
	for name, ask := range map[string]func() error{
		"info":   func() error { _, err := l.ExecInfo(t.Context(), id); return err },
		"output": func() error { _, err := l.Follow(t.Context(), command.Follow{ID: id}); return err },
		"stdin": func() error {
			_, err := l.Feed(t.Context(), command.Input{ID: id, Body: strings.NewReader("x")})
			return err
		},
		"signal":  func() error { _, err := l.SignalExec(t.Context(), id, syscall.SIGTERM); return err },
		"forget":  func() error { return l.ForgetExec(t.Context(), id) },
		"process": func() error { return l.SignalProcess(t.Context(), 1<<22+5, syscall.SIGTERM) },
	} {
		if f := fault.As(ask()); f == nil || f.Code != api.CodeNotFound {
			t.Errorf("%s: %v, want NOT_FOUND", name, f)
		}
	}
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	l := start3(t)
	id, out := startExec(t, l, guest.ExecOrder{Command: "sleep 1234.5 & until grep -aq ^sleep /proc/$!/cmdline; do :; done; echo $!; wait"})
	h := new(heard)
	for !strings.Contains(string(h.stdout), "\n") {
		h.take(t, out)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(h.stdout)))
	if err != nil {
		t.Fatal(err)
	}
	list, err := l.Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.PID != pid {
			continue
		}
		if p.ExecID != id || p.User != "agent" || p.ParentPID != h.last.PID || p.RSS == 0 || p.State == "unknown" || p.State == "zombie" ||
			p.Command != "sleep 1234.5" || time.Since(p.StartedAt).Abs() > time.Minute {
			t.Errorf("the command's child is %+v", p)
		}
		if err := l.SignalProcess(t.Context(), pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		if h.all(t, out); *h.last.ExitCode != 0 {
			t.Errorf("ended as %+v", h.last)
		}
		return
	}
	t.Errorf("process %d is not listed", pid)
}

// Records and output of ended commands outlive the agent.
func TestAgentIsStartedAnew(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t)
	options := []guesttest.Option{guesttest.WithAccounts(t, passwd, group), guesttest.WithCommands(filepath.Join(dir, "kept"))}
	g := guesttest.Start(t, options...)
	l := dial(t, g.Socket, link.FreshToken(), epoch(1))
	small, large, running := newID(), newID(), newID()
	mustExec(t, l, guest.ExecOrder{ID: small, Command: "echo small; exit 4"})
	mustExec(t, l, guest.ExecOrder{ID: large, Command: "seq 100000", MaxOutput: 10})
	out, err := l.Start(t.Context(), guest.ExecOrder{ID: running, Command: "sleep 1000", User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	first, err := out.Next()
	if err != nil {
		t.Fatal(err)
	}
	before, err := l.Execs(t.Context())
	if err != nil || len(before) != 3 {
		t.Fatalf("%+v, %v", before, err)
	}
	eventuallyHas(t, filepath.Join(dir, "kept", "records"), running, small, large)
	g.Stop()
	t.Cleanup(func() { _ = syscall.Kill(-first.Info.PID, syscall.SIGKILL) })

	l = dial(t, guesttest.Start(t, options...).Socket, link.FreshToken(), epoch(2))
	after, err := l.Execs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before[0].State = command.Lost
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
	if got := bytesOf(t, follow(t, l, command.Follow{ID: small, Stream: command.Stdout}), command.Stdout, 0); string(got) != "small\n" {
		t.Errorf("of the small one is left %q", got)
	}
	if got := bytesOf(t, follow(t, l, command.Follow{ID: large, Stream: command.Stdout}), command.Stdout, 0); len(got) != 588895 {
		t.Errorf("of the large one are left %d bytes", len(got))
	}
	if err := l.ForgetExec(t.Context(), large); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "kept", large)); err == nil {
		t.Error("the output of a forgotten command is left")
	}
}

// eventuallyHas waits until a file has all the words in it.
func eventuallyHas(t *testing.T, path string, words ...string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		b, _ := os.ReadFile(path)
		missing := 0
		for _, w := range words {
			if !bytes.Contains(b, []byte(w)) {
				missing++
			}
		}
		if missing == 0 {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s lacks %d of %v", path, missing, words)
		case <-tick.C:
		}
	}
}

func TestLongCommands(t *testing.T) {
	t.Parallel()
	l := start3(t)
	for _, size := range []int{64 << 10, 128<<10 - 1, 128 << 10, 1 << 20} {
		for _, user := range []string{"root", "agent"} {
			text := "x=$0; cat <<END | wc -c; ls /proc/self/fd | wc -l; echo $x; exit 7\n"
			text += strings.Repeat("y", size-len(text)-5) + "\nEND\n"
			r := mustExec(t, l, guest.ExecOrder{Command: text, User: user, Timeout: time.Minute})
			lines := strings.Fields(string(r.Stdout))
			if *r.ExitCode != 7 || len(lines) != 3 || lines[0] != strconv.Itoa(size-len("x=$0; cat <<END | wc -c; ls /proc/self/fd | wc -l; echo $x; exit 7\n")-4) {
				t.Errorf("%d bytes as %s: %d, %q, %.200q", size, user, *r.ExitCode, r.Stdout, r.Stderr)
			}
		}
	}
}

// What a command leaves behind holds no exec, and goes on.
func TestBackgroundChildSurvives(t *testing.T) {
	t.Parallel()
	l := start3(t)
	dir := sharedDir(t)
	mustFifo(t, filepath.Join(dir, "go"))
	r := mustExec(t, l, guest.ExecOrder{Command: "cd " + dir + "; nohup setsid sh -c 'read _ < go; echo alive; echo yes > after' & echo started"})
	if string(r.Stdout) != "started\n" || *r.ExitCode != 0 {
		t.Errorf("%+v", r)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	if got := eventually(t, filepath.Join(dir, "after")); got != "yes\n" {
		t.Errorf("it says %q", got)
	}
}

func TestManyCommandsAtOnce(t *testing.T) {
	t.Parallel()
	l := start3(t)
	var all sync.WaitGroup
	for n := range 100 {
		all.Go(func() {
			r, err := l.Exec(t.Context(), guest.ExecOrder{ID: newID(), Command: "echo " + strconv.Itoa(n) + "; exit " + strconv.Itoa(n)})
			if err != nil || string(r.Stdout) != strconv.Itoa(n)+"\n" || *r.ExitCode != n {
				t.Errorf("command %d: %+v, %v", n, r, err)
			}
		})
	}
	all.Wait()
	if list, err := l.Execs(t.Context()); err != nil || len(list) != 100 {
		t.Errorf("%d commands are known, %v", len(list), err)
	}
}
