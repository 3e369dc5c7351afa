package image_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/image"
	"github.com/pandovm/pando/internal/snapshot"
)

// records keeps snapshots in memory, by id. What Shelf does not call panics.
type records struct {
	snapshot.Repository

	mu   sync.Mutex
	byID map[string]snapshot.Snapshot
}

func (r *records) InsertSnapshot(_ context.Context, s snapshot.Snapshot) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.byID {
		if other.ID == s.ID || other.Slug == s.Slug {
			return fault.Conflict(api.ReasonSlugTaken, "%s is there", s.Slug)
		}
	}
	r.byID[s.ID] = s
	return nil
}

func (r *records) FindSnapshot(_ context.Context, ref string) (snapshot.Snapshot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.byID {
		if s.ID == ref || s.Slug == ref {
			return s, nil
		}
	}
	return snapshot.Snapshot{}, fault.NotFound("snapshot", ref)
}

func (r *records) UpdateSnapshot(_ context.Context, id string, change func(*snapshot.Snapshot) error) (snapshot.Snapshot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.byID[id]
	err := change(&s)
	r.byID[id] = s
	return s, err
}

// shelves is a node and the snapshots of one data folder.
type shelves struct {
	*lab

	records *records
	fail    error
	mu      sync.Mutex
	// imported counts by id of the snapshot.
	imported map[string]int
}

func (s *shelves) Import(_ context.Context, _, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.imported[id]++
	return s.fail
}

// open is what a daemon that starts does.
func (s *shelves) open(machine string) *image.Shelf {
	now := func() time.Time { return time.Unix(1e9, 0) }
	return image.NewShelf(s.service(machine), s, s.records, now)
}

func newShelves(t *testing.T) *shelves {
	t.Helper()
	return &shelves{lab: newLab(t), records: &records{byID: map[string]snapshot.Snapshot{}}, imported: map[string]int{}}
}

func resolve(t *testing.T, s *image.Shelf, ref string) snapshot.Snapshot {
	t.Helper()
	found, ok, err := s.Resolve(t.Context(), ref)
	if err != nil || !ok {
		t.Fatalf("Resolve(%q) = %v, %v", ref, ok, err)
	}
	return found
}

func TestResolve(t *testing.T) {
	t.Parallel()
	s := newShelves(t)
	shelf := s.open("m")
	first := resolve(t, shelf, "freestyle/ubuntu")
	if first.Slug != "pando/debian" || first.Image != "pando/debian" || !first.Public || first.Resources.Memory != 2048 {
		t.Errorf("the image is recorded as %+v", first)
	}
	for _, ref := range []string{"", "pando/debian"} {
		if again := resolve(t, shelf, ref); again.ID != first.ID {
			t.Errorf("Resolve(%q) = %s, want %s", ref, again.ID, first.ID)
		}
	}
	if later := resolve(t, s.open("m"), "pando/debian"); later.ID != first.ID {
		t.Errorf("after a restart the image is %s, want %s", later.ID, first.ID)
	}
	if diff := cmp.Diff(map[string]int{first.ID: 2}, s.imported); diff != "" {
		t.Errorf("imports (-want +got):\n%s", diff)
	}
	if _, ok, err := shelf.Resolve(t.Context(), "my-snapshot"); ok || err != nil {
		t.Errorf("a name of no image: %v, %v", ok, err)
	}
}

func TestVersionsChangeForthAndBack(t *testing.T) {
	t.Parallel()
	s := newShelves(t)
	old := resolve(t, s.open("old"), "pando/busybox")
	young := resolve(t, s.open("new"), "pando/busybox")
	if old.ID == young.ID {
		t.Fatal("two versions have one id")
	}
	back := resolve(t, s.open("old"), "pando/busybox")
	if back.ID != old.ID {
		t.Errorf("the old version is now %s, was %s", back.ID, old.ID)
	}
	named := map[string]string{}
	for id, r := range s.records.byID {
		named[id] = r.Slug
	}
	if diff := cmp.Diff(map[string]string{old.ID: "pando/busybox", young.ID: ""}, named); diff != "" {
		t.Errorf("names of the versions (-want +got):\n%s", diff)
	}
}

func TestImportFails(t *testing.T) {
	t.Parallel()
	s := newShelves(t)
	shelf := s.open("m")
	s.fail = errors.New("disk full")
	if _, ok, err := shelf.Resolve(t.Context(), "pando/busybox"); !ok || !errors.Is(err, s.fail) {
		t.Errorf("Resolve = %v, %v; want %v", ok, err, s.fail)
	}
	if len(s.records.byID) != 0 {
		t.Errorf("recorded all the same: %v", s.records.byID)
	}
	s.fail = nil
	resolve(t, shelf, "pando/busybox")
}

func TestPreload(t *testing.T) {
	t.Parallel()
	s := newShelves(t)
	if _, err := s.service("m").Ensure(t.Context(), "pando/busybox", nil); err != nil {
		t.Fatal(err)
	}
	shelf := s.open("m")
	if err := shelf.Preload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.bench.orders) != 1 {
		t.Errorf("preloading built %d images", len(s.bench.orders)-1)
	}
	got := slices.Collect(maps.Values(s.records.byID))
	if len(got) != 1 || got[0].Slug != "pando/busybox" {
		t.Errorf("recorded: %+v, want pando/busybox alone", got)
	}
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	shelf := newShelves(t).open("m")
	for ref, want := range map[string]string{
		"freestyle/busybox": "pando/busybox", "pando/debian": "pando/debian", "mine": "mine", "": "",
	} {
		if got := shelf.Canonical(ref); got != want {
			t.Errorf("Canonical(%q) = %q, want %q", ref, got, want)
		}
	}
}
