package layer_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pandovm/pando/internal/layer"
)

func open(t testing.TB) *layer.Store {
	t.Helper()
	s, err := layer.Open(filepath.Join(t.TempDir(), "layers"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// write makes a sealed layer with that content.
func write(t testing.TB, s *layer.Store, content string) layer.Layer {
	t.Helper()
	d, err := s.Create(layer.KindMemory)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.File().WriteString(content); err != nil {
		t.Fatal(err)
	}
	l, err := d.Seal()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func exists(s *layer.Store, id layer.ID) bool {
	_, err := os.Lstat(s.Path(id))
	return !errors.Is(err, fs.ErrNotExist)
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestSealedLayerIsReadOnly(t *testing.T) {
	t.Parallel()
	s := open(t)
	if got := mode(t, s.Dir()); got != 0o711 {
		t.Errorf("folder has mode %o", got)
	}
	d, err := s.Create(layer.KindState)
	if err != nil {
		t.Fatal(err)
	}
	if got := mode(t, s.Path(d.ID())); got != 0o600 {
		t.Errorf("draft has mode %o", got)
	}
	if _, err := d.File().WriteString("state"); err != nil {
		t.Fatal(err)
	}
	l, err := d.Seal()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(layer.Layer{ID: d.ID(), Kind: layer.KindState, Bytes: 5}, l); diff != "" {
		t.Error(diff)
	}
	if got := mode(t, s.Path(l.ID)); got != 0o444 {
		t.Errorf("layer has mode %o", got)
	}
	if _, err := d.Seal(); err == nil {
		t.Error("a second Seal did not fail")
	}
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	s := open(t)
	d, err := s.Create(layer.KindMemory)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Discard(); err != nil {
			t.Error(err)
		}
	}
	if exists(s, d.ID()) {
		t.Error("the file of a discarded draft is there")
	}
	held, err := s.Create(layer.KindMemory)
	if err != nil {
		t.Fatal(err)
	}
	s.Hold("vm", held.ID())
	if err := held.Discard(); err != nil || !exists(s, held.ID()) {
		t.Errorf("discarding took a held layer away: %v", err)
	}
}

func TestCreateRefusesUnknownKind(t *testing.T) {
	t.Parallel()
	if _, err := open(t).Create("photograph"); err == nil {
		t.Error("no error")
	}
}

func TestPathOfMalformedID(t *testing.T) {
	t.Parallel()
	s := open(t)
	if got := s.Path("../../etc/passwd"); filepath.Dir(got) != s.Dir() {
		t.Errorf("path is %q", got)
	}
}

func TestLastHolderDeletes(t *testing.T) {
	t.Parallel()
	s := open(t)
	a, b := write(t, s, "a"), write(t, s, "b")
	s.Hold("one", a.ID, b.ID)
	s.Hold("two", a.ID)
	if got := s.Holders(a.ID); len(got) != 2 {
		t.Errorf("holders of a: %v", got)
	}
	check := func(when string, wantA, wantB bool) {
		t.Helper()
		if gotA, gotB := exists(s, a.ID), exists(s, b.ID); gotA != wantA || gotB != wantB {
			t.Errorf("%s: a %v, b %v; want %v, %v", when, gotA, gotB, wantA, wantB)
		}
	}
	check("held", true, true)
	if err := s.Replace("one", b.ID); err != nil {
		t.Fatal(err)
	}
	check("one replaced", true, true)
	if err := s.Drop("two"); err != nil {
		t.Fatal(err)
	}
	check("two dropped", false, true)
	if err := s.Forget(b.ID); err != nil {
		t.Fatal(err)
	}
	check("b forgotten though held", false, true)
	if err := s.Drop("one"); err != nil {
		t.Fatal(err)
	}
	check("one dropped", false, false)
	if err := s.Drop("nobody"); err != nil {
		t.Error(err)
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	before := open(t)
	held, orphan := write(t, before, "held"), write(t, before, "orphan")
	for _, name := range []string{".copy-123", "README"} {
		if err := os.WriteFile(filepath.Join(before.Dir(), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The next process knows nothing but what it is told.
	s, err := layer.Open(before.Dir())
	if err != nil {
		t.Fatal(err)
	}
	s.Hold("vm", held.ID)
	fresh := write(t, s, "fresh")
	swept, err := s.Sweep()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]layer.ID{orphan.ID}, swept); diff != "" {
		t.Error(diff)
	}
	entries, err := os.ReadDir(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{"README", string(held.ID), string(fresh.ID)}
	slices.Sort(want)
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

// TestHoldersProperty compares the store with a model: after every step exactly
// the layers that somebody holds, or that are fresh, have a file.
func TestHoldersProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s, err := layer.Open(filepath.Join(t.TempDir(), fmt.Sprint("layers", rapid.Int64().Draw(r, "dir"))))
		if err != nil {
			r.Fatal(err)
		}
		m := &holdersModel{held: map[string]map[layer.ID]bool{}, file: map[layer.ID]bool{}}
		owner := rapid.SampledFrom([]string{"vm-1", "vm-2", "sh-1", "sh-2"})
		r.Repeat(map[string]func(*rapid.T){
			"create": func(*rapid.T) { m.ids = append(m.ids, write(t, s, "x").ID); m.file[m.ids[len(m.ids)-1]] = true },
			"hold": func(r *rapid.T) {
				o, ids := owner.Draw(r, "owner"), m.some(r)
				s.Hold(o, ids...)
				m.hold(o, ids)
			},
			"replace": func(r *rapid.T) {
				o, ids := owner.Draw(r, "owner"), m.some(r)
				if err := s.Replace(o, ids...); err != nil {
					r.Fatal(err)
				}
				m.replace(o, ids)
			},
			"drop": func(r *rapid.T) {
				o := owner.Draw(r, "owner")
				if err := s.Drop(o); err != nil {
					r.Fatal(err)
				}
				m.replace(o, nil)
			},
			"": func(r *rapid.T) {
				for _, id := range m.ids {
					if got := exists(s, id); got != m.file[id] {
						r.Fatalf("%s exists: %v, want %v", id, got, m.file[id])
					}
				}
			},
		})
		if err := os.RemoveAll(s.Dir()); err != nil {
			r.Fatal(err)
		}
	})
}

type holdersModel struct {
	ids  []layer.ID
	held map[string]map[layer.ID]bool
	file map[layer.ID]bool
}

// some draws layers that have a file: only those may be held.
func (m *holdersModel) some(r *rapid.T) []layer.ID {
	var live []layer.ID
	for _, id := range m.ids {
		if m.file[id] {
			live = append(live, id)
		}
	}
	if len(live) == 0 {
		return nil
	}
	return rapid.SliceOfN(rapid.SampledFrom(live), 0, 4).Draw(r, "ids")
}

func (m *holdersModel) hold(owner string, ids []layer.ID) {
	if m.held[owner] == nil {
		m.held[owner] = map[layer.ID]bool{}
	}
	for _, id := range ids {
		m.held[owner][id] = true
	}
}

func (m *holdersModel) replace(owner string, ids []layer.ID) {
	before := m.held[owner]
	delete(m.held, owner)
	m.hold(owner, ids)
	for id := range before {
		kept := false
		for _, set := range m.held {
			kept = kept || set[id]
		}
		m.file[id] = kept
	}
}

// TestConcurrentHolders lets many owners pass one layer on. It must be there as
// long as anybody holds it, and gone afterwards.
func TestConcurrentHolders(t *testing.T) {
	t.Parallel()
	s := open(t)
	for range 20 {
		l := write(t, s, "shared")
		s.Hold("source", l.ID)
		var wg sync.WaitGroup
		for i := range 16 {
			s.Hold(fmt.Sprint("capture-", i), l.ID)
			wg.Go(func() {
				owner := fmt.Sprint("child-", i)
				s.Hold(owner, l.ID)
				if err := s.Drop(fmt.Sprint("capture-", i)); err != nil {
					t.Error(err)
				}
				if _, err := os.ReadFile(s.Path(l.ID)); err != nil {
					t.Errorf("a held layer cannot be read: %v", err)
				}
				if err := s.Replace(owner); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			if err := s.Drop("source"); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if exists(s, l.ID) {
			t.Fatal("a layer without holders is there")
		}
	}
}
