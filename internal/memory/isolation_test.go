package memory_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/pandovm/pando/internal/layer"
	"github.com/pandovm/pando/internal/memory"
)

// TestIsolation writes at random in sources and children, forks and deletes
// them through generations, and compares every page of every live machine with
// its model after each step.
func TestIsolation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		start start
		size  int64
		steps int
		seeds uint64
	}{
		{"victim", startVictim, 4 << 20, 40, 3},
		{"two regions", startGrown, 4 << 20, 40, 3},
		{"qemu", startQEMU, 8 << 20, 14, 2},
	} {
		for seed := range c.seeds {
			t.Run(fmt.Sprintf("%s/%d", c.name, seed), func(t *testing.T) {
				t.Parallel()
				store, dir := newStore(t)
				f := &family{t: t, start: c.start, store: store, dir: dir, random: rand.New(rand.NewPCG(seed, 1))}
				f.live = []*twin{newTwin(t, c.start, dir, "root", c.size)}
				for range c.steps {
					f.step()
				}
				if f.deepest < 4 {
					t.Errorf("the walk reached generation %d only", f.deepest)
				}
			})
		}
	}
}

// family is a random walk over machines that descend from one.
type family struct {
	t       *testing.T
	start   start
	store   *layer.Store
	dir     string
	random  *rand.Rand
	live    []*twin
	born    int
	deepest int
}

func (f *family) step() {
	f.t.Helper()
	w := f.live[f.random.IntN(len(f.live))]
	// The newest is the deepest: prefer it, to get through generations.
	if f.random.IntN(2) == 0 {
		w = f.live[len(f.live)-1]
	}
	w.scribble(f.random, 1+f.random.IntN(30))
	switch {
	case len(f.live) > 4:
		f.end(f.random.IntN(len(f.live)))
	default:
		f.fork(w, 1+f.random.IntN(2))
	}
	for _, w := range f.live {
		w.compare(f.t)
	}
}

// fork captures w once, while w goes on writing, and starts children.
func (f *family) fork(w *twin, children int) {
	f.t.Helper()
	frozen, err := w.control().Fork(f.t.Context(), w.base.Size)
	if err != nil {
		f.t.Fatal(err)
	}
	moment := append([]byte(nil), w.model...)
	w.scribble(f.random, f.random.IntN(10))
	m, _ := captureFrozen(f.t, frozen, w.base, f.store, "capture")
	if err := frozen.Close(); err != nil {
		f.t.Fatal(err)
	}
	m = reread(f.t, m)
	for range children {
		f.born++
		name := fmt.Sprintf("%s.%d", w.name, f.born)
		child := restore(f.t, f.start, f.dir, name, f.store, m, moment)
		f.store.Hold(name, m.Layers...)
		f.live = append(f.live, child)
		f.deepest = max(f.deepest, generation(name))
	}
	if err := f.store.Drop("capture"); err != nil {
		f.t.Fatal(err)
	}
}

// end stops a machine and lets go of its layers.
func (f *family) end(i int) {
	f.t.Helper()
	w := f.live[i]
	w.stop()
	if err := f.store.Drop(w.name); err != nil {
		f.t.Fatal(err)
	}
	f.live = append(f.live[:i], f.live[i+1:]...)
}

func generation(name string) int {
	n := 0
	for _, c := range name {
		if c == '.' {
			n++
		}
	}
	return n
}

// reread sends a map through its binary form.
func reread(t testing.TB, m memory.Map) memory.Map {
	t.Helper()
	b, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var again memory.Map
	if err := again.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	return again
}
