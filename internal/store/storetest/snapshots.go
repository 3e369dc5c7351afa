package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/vm"
)

// fullSnapshot is a record with every field set.
func fullSnapshot() snapshot.Snapshot {
	at := time.Date(2026, 2, 3, 4, 5, 6, 7, time.UTC)
	return snapshot.Snapshot{
		ID: "sh-1", Slug: "slug-of-sh-1", DisplayName: "before the upgrade",
		SourceVMID: "vm-1", SourceVMSlug: "web", SourceVMDisplayName: "Web",
		Public: true, Resources: api.Resources{CPU: 1, Memory: 128, Storage: 1024}, Image: "pando/busybox",
		Durable: true, Ancestry: []string{"vm-1", "vm-0"}, Bytes: 1 << 41, LastUsedAt: at,
		CreatedAt: at.Add(time.Hour), UpdatedAt: at.Add(2 * time.Hour), AutoDelete: new(time.Minute), TTL: new(time.Hour),
	}
}

func snapshotRoundTrip(b *bench) {
	t := b.t
	for _, r := range []snapshot.Snapshot{fullSnapshot(), {ID: "sh-2", CreatedAt: b.clock.Now(), UpdatedAt: b.clock.Now()}} {
		must(t, b.InsertSnapshot(t.Context(), r))
		equal(t, value(b.FindSnapshot(t.Context(), r.ID))(t), r)
		if err := b.InsertSnapshot(t.Context(), r); err == nil {
			t.Error("an id was inserted twice")
		}
	}
	must(t, b.InsertSnapshot(t.Context(), snapshot.Snapshot{ID: "sh-3"}))
	if got := value(b.FindSnapshot(t.Context(), "sh-3"))(t); !got.CreatedAt.Equal(b.clock.Now()) || !got.LastUsedAt.IsZero() {
		t.Errorf("created %v, last used %v; want the clock's time and none", got.CreatedAt, got.LastUsedAt)
	}
}

func snapshotFind(b *bench) {
	t := b.t
	r := fullSnapshot()
	r.Slug = "pando/debian"
	must(t, b.InsertSnapshot(t.Context(), r))
	equal(t, value(b.FindSnapshot(t.Context(), "pando/debian"))(t), r)
	equal(t, value(b.FindSnapshot(t.Context(), "sh-1"))(t), r)
	must(t, b.InsertSnapshot(t.Context(), snapshot.Snapshot{ID: "sh-slugless"}))
	for _, ref := range []string{"", "debian", "nope"} {
		_, err := b.FindSnapshot(t.Context(), ref)
		wantFault(t, err, api.CodeNotFound, "")
	}
}

func snapshotSlug(b *bench) {
	t := b.t
	ctx := t.Context()
	must(t, b.InsertSnapshot(ctx, snapshot.Snapshot{ID: "sh-1", Slug: "one"}))
	wantFault(t, b.InsertSnapshot(ctx, snapshot.Snapshot{ID: "sh-2", Slug: "one"}), api.CodeConflict, api.ReasonSlugTaken)
	must(t, b.InsertSnapshot(ctx, snapshot.Snapshot{ID: "sh-2", Slug: "two"}))
	_, err := b.UpdateSnapshot(ctx, "sh-2", func(r *snapshot.Snapshot) error { r.Slug = "one"; return nil })
	wantFault(t, err, api.CodeConflict, api.ReasonSlugTaken)
	must(t, b.InsertVM(ctx, vm.VM{ID: "vm-1", Slug: "one", State: api.StateRunning}))
}

func snapshotUpdate(b *bench) {
	t := b.t
	ctx := t.Context()
	want := fullSnapshot()
	want.Durable = false
	must(t, b.InsertSnapshot(ctx, want))
	b.clock.Advance(time.Hour)
	want.Durable, want.LastUsedAt, want.UpdatedAt = true, b.clock.Now(), b.clock.Now()
	want.CreatedAt = want.CreatedAt.Add(time.Millisecond)
	got := value(b.UpdateSnapshot(ctx, "sh-1", func(r *snapshot.Snapshot) error {
		r.Durable, r.LastUsedAt = true, b.clock.Now()
		r.ID, r.CreatedAt = "other", want.CreatedAt
		return nil
	}))(t)
	equal(t, got, want)
	_, err := b.UpdateSnapshot(ctx, "sh-1", func(r *snapshot.Snapshot) error { r.Durable = false; return errRefused })
	if !errors.Is(err, errRefused) {
		t.Errorf("got %v, want the error of change", err)
	}
	equal(t, value(b.FindSnapshot(ctx, "sh-1"))(t), want)
	_, err = b.UpdateSnapshot(ctx, "sh-0", func(*snapshot.Snapshot) error { return nil })
	wantFault(t, err, api.CodeNotFound, "")
}

func snapshotDelete(b *bench) {
	t := b.t
	ctx := t.Context()
	must(t, b.InsertSnapshot(ctx, snapshot.Snapshot{ID: "sh-1", Slug: "one"}))
	must(t, b.InsertVM(ctx, vm.VM{ID: "vm-1", SnapshotID: "sh-1", State: api.StateRunning}))
	must(t, b.DeleteSnapshot(ctx, "sh-1"))
	must(t, b.DeleteSnapshot(ctx, "sh-1"))
	_, err := b.FindSnapshot(ctx, "one")
	wantFault(t, err, api.CodeNotFound, "")
	if v := value(b.FindVM(ctx, "vm-1"))(t); v.SnapshotID != "sh-1" {
		t.Errorf("the VM forgot its deleted snapshot: %+v", v)
	}
	must(t, b.InsertSnapshot(ctx, snapshot.Snapshot{ID: "sh-2", Slug: "one"}))
}

func snapshotList(b *bench) {
	t := b.t
	ctx := t.Context()
	must(t, b.InsertVM(ctx, vm.VM{ID: "vm-1", Slug: "web", State: api.StateRunning}))
	for _, r := range []snapshot.Snapshot{
		{ID: "sh-1", Slug: "first", SourceVMID: "vm-1"},
		{ID: "sh-2", DisplayName: "First Try", SourceVMID: "vm-2"},
		{ID: "sh-3", SourceVMID: "vm-1"},
		{ID: "sh-4", Slug: "pando/first", Public: true},
	} {
		b.clock.Advance(time.Second)
		must(t, b.InsertSnapshot(ctx, r))
	}
	for name, c := range map[string]struct {
		filter snapshot.Filter
		want   []string
		total  int
	}{
		"private ones, newest first": {snapshot.Filter{}, []string{"sh-3", "sh-2", "sh-1"}, 3},
		"source":                     {snapshot.Filter{SourceVMID: "vm-1"}, []string{"sh-3", "sh-1"}, 2},
		"source by slug":             {snapshot.Filter{SourceVMID: "web"}, []string{"sh-3", "sh-1"}, 2},
		"gone source":                {snapshot.Filter{SourceVMID: "vm-2"}, []string{"sh-2"}, 1},
		"search":                     {snapshot.Filter{Search: "FIRST"}, []string{"sh-2", "sh-1"}, 2},
		"page":                       {snapshot.Filter{Limit: 1, Offset: 1}, []string{"sh-2"}, 3},
		"past the end":               {snapshot.Filter{Limit: 1, Offset: 9}, nil, 3},
	} {
		list, total, err := b.ListSnapshots(ctx, c.filter)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		for _, r := range list {
			got = append(got, r.ID)
		}
		if !slices.Equal(got, c.want) || total != c.total {
			t.Errorf("%s: got %v of %d, want %v of %d", name, got, total, c.want, c.total)
		}
	}
}
