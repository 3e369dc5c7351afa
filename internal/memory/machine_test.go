package memory_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pandovm/pando/internal/layer"
	"github.com/pandovm/pando/internal/memory"
)

// machine is a process with guest RAM, and the model of what that RAM holds.
type machine interface {
	// fill writes pseudo-random bytes, zero zeros, touch reads.
	fill(offset, length int64, seed uint64)
	zero(offset, length int64)
	touch(offset, length int64)
	// floor is where the RAM that can be written starts.
	floor() int64
	// content returns the whole RAM as the process sees it.
	content() []byte
	control() *memory.Control
	pid() int
	stop()
}

// start makes machines of size bytes of RAM in folders below dir.
type start func(t testing.TB, dir string, size int64) machine

// lineMachine obeys one line at a time and answers with one.
type lineMachine struct {
	t      testing.TB
	cmd    *exec.Cmd
	to     io.Writer
	from   *bufio.Reader
	ctl    *memory.Control
	sock   string
	size   int64
	stderr bytes.Buffer
	ended  bool
}

func (m *lineMachine) control() *memory.Control { return m.ctl }
func (m *lineMachine) pid() int                 { return m.cmd.Process.Pid }

func (m *lineMachine) stop() {
	if m.ended {
		return
	}
	m.ended = true
	if m.ctl != nil {
		_ = m.ctl.Close()
	}
	m.kill()
	_ = m.cmd.Wait()
}

func (m *lineMachine) kill() { _ = m.cmd.Process.Kill() }

func (m *lineMachine) say(format string, args ...any) string {
	m.t.Helper()
	if _, err := fmt.Fprintf(m.to, format+"\n", args...); err != nil {
		m.t.Fatalf("order %q: %v (stderr: %s)", format, err, m.stderr.String())
	}
	line, err := m.from.ReadString('\n')
	if err != nil {
		m.t.Fatalf("order %q: %v (stderr: %s)", format, err, m.stderr.String())
	}
	return strings.TrimSuffix(line, "\n")
}

func (m *lineMachine) sayOK(format string, args ...any) {
	m.t.Helper()
	if got := m.say(format, args...); !strings.HasPrefix(strings.ToLower(got), "ok") {
		m.t.Fatalf("order %q: answered %q", fmt.Sprintf(format, args...), got)
	}
}

// victim is testdata/victim.c.
type victim struct{ lineMachine }

func (v *victim) fill(offset, length int64, seed uint64) {
	v.sayOK("fill %d %d %d", offset, length, seed)
}
func (v *victim) zero(offset, length int64)  { v.sayOK("zero %d %d", offset, length) }
func (v *victim) touch(offset, length int64) { v.sayOK("touch %d %d", offset, length) }

func (v *victim) floor() int64 { return 0 }

func (v *victim) content() []byte {
	v.t.Helper()
	if _, err := io.WriteString(v.to, "dump\n"); err != nil {
		v.t.Fatal(err)
	}
	b := make([]byte, v.size)
	if _, err := io.ReadFull(v.from, b); err != nil {
		v.t.Fatalf("dump: %v", err)
	}
	return b
}

// libraryEnv makes RAM files in dir and returns the environment of the library.
func libraryEnv(t testing.TB, dir string, size int64) (env []string, ram, sock string) {
	t.Helper()
	ram, sock = filepath.Join(dir, "ram"), filepath.Join(dir, "memory.sock")
	added := filepath.Join(dir, "added")
	for _, path := range []string{ram, added} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
	return append(os.Environ(), memory.LibraryEnv(testTools().library, ram, added, sock)...), ram, sock
}

func machineDir(t testing.TB, dir string) string {
	t.Helper()
	made, err := os.MkdirTemp(dir, "vm-")
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func startVictim(t testing.TB, dir string, size int64) machine { return newVictim(t, dir, size) }

// startGrown starts a victim a good third of whose RAM was added, and which has
// room for more.
func startGrown(t testing.TB, dir string, size int64) machine {
	boot := size * 5 / 8 / memory.PageSize * memory.PageSize
	return newVictimOf(t, dir, size, boot, 2*size)
}

func newVictim(t testing.TB, dir string, size int64) *victim {
	return newVictimOf(t, dir, size, size, 0)
}

func newVictimOf(t testing.TB, dir string, size, boot, room int64) *victim {
	t.Helper()
	dir = machineDir(t, dir)
	env, _, sock := libraryEnv(t, dir, max(size, room))
	v := &victim{lineMachine{t: t, size: size, sock: sock}}
	v.cmd = exec.CommandContext(t.Context(), testTools().victim, fmt.Sprint(size), fmt.Sprint(boot), fmt.Sprint(room))
	v.cmd.Env = env
	v.cmd.Stderr = &v.stderr
	to, err := v.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	from, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	v.to, v.from = to, bufio.NewReaderSize(from, 1<<20)
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.stop)
	if line, err := v.from.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("victim said %q, %v: %s", line, err, v.stderr.String())
	}
	v.ctl = v.dial(sock)
	return v
}

func (m *lineMachine) dial(sock string) *memory.Control {
	m.t.Helper()
	// Far longer than any start takes: a bound, not an expectation.
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	c, err := memory.DialControl(ctx, sock)
	if err != nil {
		m.stop()
		m.t.Fatalf("%v (stderr: %s)", err, m.stderr.String())
	}
	return c
}

// modelFill is victim.c's fill.
func modelFill(b []byte, seed uint64) {
	for chunk := range slices.Chunk(b, memory.PageSize) {
		unit := fillUnit(&seed)
		copy(chunk, bytes.Repeat(unit[:], memory.PageSize/len(unit)))
	}
}

// fillUnit returns the next 64 bytes that a fill repeats.
func fillUnit(seed *uint64) [64]byte {
	var unit [64]byte
	for i := 0; i < len(unit); i += 8 {
		*seed += 0x9e3779b97f4a7c15
		z := *seed
		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
		z = (z ^ (z >> 27)) * 0x94d049bb133111eb
		binary.NativeEndian.PutUint64(unit[i:], z^(z>>31))
	}
	return unit
}

// twin is a machine beside the model of its RAM, and the map it started from.
type twin struct {
	machine
	name  string
	model []byte
	base  memory.Map
}

func newTwin(t testing.TB, s start, dir, name string, size int64) *twin {
	t.Helper()
	return &twin{machine: s(t, dir, size), name: name, model: make([]byte, size), base: memory.Map{Size: size}}
}

// scribble makes n random changes, in the machine and in the model.
func (w *twin) scribble(r *rand.Rand, n int) {
	floor, pages := w.floor()/memory.PageSize, int64(len(w.model))/memory.PageSize
	for range n {
		first := floor + r.Int64N(pages-floor)
		count := min(1+r.Int64N(1+r.Int64N(40)), pages-first)
		at, length := first*memory.PageSize, count*memory.PageSize
		switch r.IntN(8) {
		case 0:
			w.zero(at, length)
			clear(w.model[at : at+length])
		case 1:
			w.touch(at, length)
		case 2:
			// Part of a page: the rest has to stay what it was.
			at += 8 * r.Int64N(memory.PageSize/16)
			length = 8 * (1 + r.Int64N(32))
			fallthrough
		default:
			seed := r.Uint64()
			w.fill(at, length, seed)
			modelFill(w.model[at:at+length], seed)
		}
	}
}

// compare proves every page of the machine.
func (w *twin) compare(t testing.TB) {
	t.Helper()
	got := w.content()
	if bytes.Equal(got, w.model) {
		return
	}
	wrong := 0
	for at := 0; at < len(got); at += memory.PageSize {
		if bytes.Equal(got[at:at+memory.PageSize], w.model[at:at+memory.PageSize]) {
			continue
		}
		if wrong++; wrong <= 5 {
			t.Errorf("%s: page %d differs", w.name, at/memory.PageSize)
		}
	}
	t.Fatalf("%s: %d pages differ", w.name, wrong)
}

// capture freezes and captures w into a new layer, and holds its layers for owner.
func (w *twin) capture(t testing.TB, store *layer.Store, owner string) (memory.Map, memory.CaptureStats) {
	t.Helper()
	frozen, err := w.control().Fork(t.Context(), w.base.Size)
	if err != nil {
		t.Fatal(err)
	}
	m, stats := captureFrozen(t, frozen, w.base, store, owner)
	if err := frozen.Close(); err != nil {
		t.Fatal(err)
	}
	return m, stats
}

func captureFrozen(t testing.TB, frozen *memory.Frozen, base memory.Map, store *layer.Store, owner string) (memory.Map, memory.CaptureStats) {
	t.Helper()
	d, err := store.Create(layer.KindMemory)
	if err != nil {
		t.Fatal(err)
	}
	m, stats, err := frozen.Capture(t.Context(), base, d)
	if err != nil {
		t.Fatal(err)
	}
	l, err := d.Seal()
	if err != nil {
		t.Fatal(err)
	}
	if l.Bytes != stats.WrittenBytes {
		t.Fatalf("layer has %d bytes, %d were written", l.Bytes, stats.WrittenBytes)
	}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	store.Hold(owner, m.Layers...)
	return m, stats
}

// restore starts a machine with the RAM that m says, which is model.
func restore(t testing.TB, s start, dir, name string, store *layer.Store, m memory.Map, model []byte) *twin {
	t.Helper()
	w := &twin{machine: s(t, dir, m.Size), name: name, model: bytes.Clone(model), base: m}
	if err := w.control().Lay(t.Context(), m, opener(store)); err != nil {
		t.Fatal(err)
	}
	return w
}

func opener(store *layer.Store) func(layer.ID) (*os.File, error) {
	return func(id layer.ID) (*os.File, error) { return os.Open(store.Path(id)) }
}

func newStore(t testing.TB) (*layer.Store, string) {
	t.Helper()
	dir := t.TempDir()
	store, err := layer.Open(filepath.Join(dir, "layers"))
	if err != nil {
		t.Fatal(err)
	}
	return store, dir
}
