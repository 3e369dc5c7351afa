package snapshot_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/store"
)

// holder is a node that knows which saved machines it was told to remove.
type holder struct{ removed []string }

func (h *holder) DeleteSnapshot(_ context.Context, id string) error {
	h.removed = append(h.removed, id)
	return nil
}

// rig is a service over a real store with two snapshots and a base image.
type rig struct {
	*snapshot.Service

	node    *holder
	changed []snapshot.Snapshot
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "pando.db"), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, r := range []snapshot.Snapshot{
		{ID: "sh-1", Slug: "one", DisplayName: "One"}, {ID: "sh-2", Slug: "two"}, {ID: "sh-base", Slug: "pando/debian", Public: true},
	} {
		if err := s.InsertSnapshot(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{node: &holder{}}
	canonical := func(ref string) string { return strings.Replace(ref, "freestyle/ubuntu", "pando/debian", 1) }
	r.Service = snapshot.NewService(s, r.node, canonical, func(s snapshot.Snapshot) { r.changed = append(r.changed, s) })
	return r
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := t.Context()
	got, err := r.Update(ctx, "one", snapshot.UpdateParams{Slug: new("new"), DisplayName: new(""), AutoDelete: new(int64(60)), TTL: new(int64(3600))})
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != "sh-1" || got.Slug != "new" || got.DisplayName != "" || *got.AutoDelete != time.Minute || *got.TTL != time.Hour {
		t.Errorf("got %+v", got)
	}
	if len(r.changed) != 1 || r.changed[0].ID != "sh-1" {
		t.Errorf("the timers were told of %+v", r.changed)
	}
	got, err = r.Update(ctx, "new", snapshot.UpdateParams{AutoDelete: new(int64(-1))})
	if err != nil || got.AutoDelete != nil || got.TTL == nil || got.Slug != "new" {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = r.Update(ctx, "sh-1", snapshot.UpdateParams{Slug: new("")})
	if err != nil || got.Slug != "" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestUpdateRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	long := strings.Repeat("x", 300)
	for name, c := range map[string]struct {
		ref    string
		params snapshot.UpdateParams
		code   api.Code
		field  string
	}{
		"bad slug":         {"one", snapshot.UpdateParams{Slug: new("A b")}, api.CodeBadRequest, "slug"},
		"slug of an image": {"one", snapshot.UpdateParams{Slug: new("pando/debian")}, api.CodeBadRequest, "slug"},
		"long name":        {"one", snapshot.UpdateParams{DisplayName: &long}, api.CodeBadRequest, "displayName"},
		"no time":          {"one", snapshot.UpdateParams{AutoDelete: new(int64(0))}, api.CodeBadRequest, "autoDeleteSeconds"},
		"negative time":    {"one", snapshot.UpdateParams{TTL: new(int64(-2))}, api.CodeBadRequest, "ttlSeconds"},
		"taken slug":       {"one", snapshot.UpdateParams{Slug: new("two")}, api.CodeConflict, "slug"},
		"unknown":          {"none", snapshot.UpdateParams{}, api.CodeNotFound, ""},
		"base image":       {"freestyle/ubuntu", snapshot.UpdateParams{DisplayName: new("x")}, api.CodeConflict, ""},
	} {
		_, err := r.Update(t.Context(), c.ref, c.params)
		f := fault.As(err)
		if f == nil || f.Code != c.code || f.Field != c.field || f.Remedy == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := r.Get(t.Context(), "one"); err != nil || got.DisplayName != "One" || len(r.changed) > 0 {
		t.Errorf("the refusals changed %+v, %v; told %v", got, err, r.changed)
	}
}

func TestDeleteAt(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		autoDelete, ttl time.Duration
		used            time.Time
		want            time.Time
	}{
		"never":              {},
		"ttl":                {ttl: time.Hour, want: at.Add(time.Hour)},
		"ttl, used":          {ttl: time.Hour, used: at.Add(time.Minute), want: at.Add(time.Hour)},
		"unused":             {autoDelete: time.Hour, want: at.Add(time.Hour)},
		"used":               {autoDelete: time.Hour, used: at.Add(time.Minute), want: at.Add(61 * time.Minute)},
		"both, ttl first":    {autoDelete: time.Hour, ttl: 30 * time.Minute, want: at.Add(30 * time.Minute)},
		"both, unused first": {autoDelete: time.Minute, ttl: time.Hour, want: at.Add(time.Minute)},
	} {
		s := snapshot.Snapshot{CreatedAt: at, LastUsedAt: c.used}
		if c.autoDelete > 0 {
			s.AutoDelete = &c.autoDelete
		}
		if c.ttl > 0 {
			s.TTL = &c.ttl
		}
		if got := s.DeleteAt(); !got.Equal(c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
