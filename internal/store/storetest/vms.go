package storetest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/vm"
)

// fullVM is a record with every field set.
func fullVM(id string) vm.VM {
	at := time.Date(2026, 2, 3, 4, 5, 6, 7, time.UTC)
	return vm.VM{
		ID: id, Slug: "slug-of-" + id, DisplayName: "Größe 大", State: api.StatePaused, StateReason: "qemu was killed (signal 9)",
		Resources:  api.Resources{CPU: 2, Memory: 2048, Storage: 16384},
		SnapshotID: "sh-9", SnapshotSlug: "pando/debian", Image: "pando/debian",
		ParentID: "vm-p", Ancestry: []string{"vm-p", "vm-pp"}, ForkedAt: at,
		Generation: 1 << 40, RunTime: 90*time.Minute + 1, RunningSince: at.Add(time.Hour),
		Metadata:     map[string]string{"job": "7", "": "empty key", "quote\"'": "%_\\"},
		AgentVersion: "1.2.3", CreatedAt: at.Add(2 * time.Hour), UpdatedAt: at.Add(3 * time.Hour),
		RestingSince: at.Add(4 * time.Hour), UsedAt: at.Add(5 * time.Hour), AutomaticRestart: true, Restarts: 3, RestartAt: at.Add(6 * time.Hour),
		Timers: vm.Timers{
			Idle: new(time.Minute), AutoDelete: new(time.Duration(0)), TTL: new(100 * 365 * 24 * time.Hour), MaxRun: new(2 * time.Second), MaxRunTotal: new(time.Second),
		},
		Placement: []vm.AntiAffinity{{Topology: "node", MatchLabels: map[string]string{"quote\"'": "%_"}}, {Topology: "node", MatchLabels: map[string]string{"a": ""}}},
	}
}

func vmRoundTrip(b *bench) {
	t := b.t
	for _, v := range []vm.VM{fullVM("vm-1"), {ID: "vm-2", State: api.StateStarting, CreatedAt: b.clock.Now(), UpdatedAt: b.clock.Now()}} {
		must(t, b.InsertVM(t.Context(), v))
		got := value(b.FindVM(t.Context(), v.ID))(t)
		equal(t, got, v)
		if got.Metadata == nil {
			t.Error("Metadata is nil: a change function cannot write to it")
		}
		if err := b.InsertVM(t.Context(), v); err == nil {
			t.Error("an id was inserted twice")
		}
	}
}

func vmTimes(b *bench) {
	t := b.t
	must(t, b.InsertVM(t.Context(), vm.VM{ID: "vm-1", State: api.StateRunning}))
	got := value(b.FindVM(t.Context(), "vm-1"))(t)
	if !got.CreatedAt.Equal(b.clock.Now()) || !got.UpdatedAt.Equal(b.clock.Now()) {
		t.Errorf("created %v, updated %v, want the clock's time", got.CreatedAt, got.UpdatedAt)
	}
	if !got.ForkedAt.IsZero() || !got.RunningSince.IsZero() {
		t.Errorf("unset times came back as %v and %v", got.ForkedAt, got.RunningSince)
	}
	if got.CreatedAt.Location() != time.UTC {
		t.Errorf("times are in %v, want UTC", got.CreatedAt.Location())
	}
}

func vmFind(b *bench) {
	t := b.t
	a, c := fullVM("vm-a"), fullVM("vm-c")
	c.Slug = "vm-a" // The slug grammar allows the shape of an id.
	must(t, b.InsertVM(t.Context(), c))
	must(t, b.InsertVM(t.Context(), a))
	equal(t, value(b.FindVM(t.Context(), "vm-a"))(t), a)
	equal(t, value(b.FindVM(t.Context(), "slug-of-vm-a"))(t), a)
	must(t, b.InsertVM(t.Context(), vm.VM{ID: "vm-slugless", State: api.StateStopped}))
	for _, ref := range []string{"", "vm-", "VM-A", "nope", "%", "' OR 1=1 --"} {
		_, err := b.FindVM(t.Context(), ref)
		wantFault(t, err, api.CodeNotFound, "")
	}
}

func vmSlug(b *bench) {
	t := b.t
	ctx := t.Context()
	a, c := fullVM("vm-a"), fullVM("vm-c")
	a.Slug, c.Slug = "one", "one"
	must(t, b.InsertVM(ctx, a))
	err := b.InsertVM(ctx, c)
	wantFault(t, err, api.CodeConflict, api.ReasonSlugTaken)
	f := fault.As(err)
	if f.Field != "slug" || !strings.Contains(f.Message, `"one"`) || !strings.Contains(f.Message, "vm-a") || f.Remedy == "" {
		t.Errorf("the fault does not name field, slug, holder and remedy: %+v", f)
	}
	_, err = b.FindVM(ctx, "vm-c")
	wantFault(t, err, api.CodeNotFound, "")

	c.Slug = "two"
	must(t, b.InsertVM(ctx, c))
	_, err = b.UpdateVM(ctx, "vm-c", func(v *vm.VM) error { v.Slug = "one"; return nil })
	wantFault(t, err, api.CodeConflict, api.ReasonSlugTaken)

	// A slug is unique per kind, its own holder may keep it, and empty ones do not collide.
	must(t, b.InsertSnapshot(ctx, snapshot.Snapshot{ID: "sh-1", Slug: "one"}))
	must(t, discard(b.UpdateVM(ctx, "vm-a", func(v *vm.VM) error { v.Slug = "one"; return nil })))
	must(t, discard(b.UpdateVM(ctx, "vm-a", func(v *vm.VM) error { v.Slug = ""; return nil })))
	must(t, discard(b.UpdateVM(ctx, "vm-c", func(v *vm.VM) error { v.Slug = ""; return nil })))
	_, err = b.FindVM(ctx, "one")
	wantFault(t, err, api.CodeNotFound, "")
}

func vmUpdate(b *bench) {
	t := b.t
	ctx := t.Context()
	before := fullVM("vm-1")
	must(t, b.InsertVM(ctx, before))
	b.clock.Advance(time.Hour)
	want := fullVM("vm-1")
	want.State, want.StateReason, want.Slug = api.StateRunning, "", "new"
	want.Metadata = map[string]string{"only": "this"}
	want.RunningSince, want.ForkedAt = time.Time{}, time.Time{}
	want.Ancestry, want.CreatedAt = nil, b.clock.Now().Add(-time.Minute)
	want.UpdatedAt = b.clock.Now()
	got := value(b.UpdateVM(ctx, "vm-1", func(v *vm.VM) error {
		equal(t, *v, before)
		*v = want
		v.ID, v.UpdatedAt = "other", time.Time{}
		return nil
	}))(t)
	equal(t, got, want)
	equal(t, value(b.FindVM(ctx, "new"))(t), want)
	_, err := b.UpdateVM(ctx, "new", func(*vm.VM) error { return nil })
	wantFault(t, err, api.CodeNotFound, "")
}

func vmFailedUpdate(b *bench) {
	t := b.t
	ctx := t.Context()
	v := fullVM("vm-1")
	must(t, b.InsertVM(ctx, v))
	_, err := b.UpdateVM(ctx, "vm-1", func(v *vm.VM) error { v.Slug = "changed"; return errRefused })
	if !errors.Is(err, errRefused) {
		t.Errorf("got %v, want the error of change", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of change was swallowed")
			}
		}()
		_, _ = b.UpdateVM(ctx, "vm-1", func(v *vm.VM) error { v.Slug = "changed"; panic("change failed") })
	}()
	if _, err := b.UpdateVM(ctx, "vm-1", func(v *vm.VM) error { v.State = "sleeping"; return nil }); err == nil {
		t.Error("a state that does not exist was stored")
	}
	equal(t, value(b.FindVM(ctx, "vm-1"))(t), v)
	must(t, discard(b.UpdateVM(ctx, "vm-1", func(*vm.VM) error { return nil })))
}

func vmConcurrentUpdates(b *bench) {
	t := b.t
	ctx := t.Context()
	must(t, b.InsertVM(ctx, vm.VM{ID: "vm-1", State: api.StateRunning}))
	const workers, each = 8, 10
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				if _, err := b.UpdateVM(ctx, "vm-1", func(v *vm.VM) error { v.Generation++; return nil }); err != nil {
					t.Error(err)
				}
				if _, _, err := b.ListVMs(ctx, vm.Filter{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := value(b.FindVM(ctx, "vm-1"))(t); got.Generation != workers*each {
		t.Errorf("%d updates were counted, want %d", got.Generation, workers*each)
	}
}

func vmDelete(b *bench) {
	t := b.t
	ctx := t.Context()
	must(t, b.InsertVM(ctx, fullVM("vm-1")))
	must(t, b.DeleteVM(ctx, "slug-of-vm-1")) // By id only: this names no record.
	value(b.FindVM(ctx, "vm-1"))(t)
	must(t, b.DeleteVM(ctx, "vm-1"))
	must(t, b.DeleteVM(ctx, "vm-1"))
	_, err := b.FindVM(ctx, "vm-1")
	wantFault(t, err, api.CodeNotFound, "")
	again := fullVM("vm-2")
	again.Slug = "slug-of-vm-1"
	must(t, b.InsertVM(ctx, again))
}

func vmPages(b *bench) {
	t := b.t
	ctx := t.Context()
	var want []string
	for i := range 7 {
		if i%3 == 0 { // Some are made in the same moment: the later insert is the newer.
			b.clock.Advance(time.Minute)
		}
		must(t, b.InsertVM(ctx, vm.VM{ID: vmID(i), State: api.StateRunning}))
		want = append(want, vmID(i))
	}
	slices.Reverse(want)
	for _, page := range []struct{ limit, offset, from, to int }{
		{0, 0, 0, 7}, {3, 0, 0, 3}, {3, 3, 3, 6}, {3, 6, 6, 7}, {3, 9, 7, 7}, {0, 5, 5, 7}, {100, 0, 0, 7},
	} {
		list, counts, err := b.ListVMs(ctx, vm.Filter{Limit: page.limit, Offset: page.offset})
		must(t, err)
		equal(t, ids(list), want[page.from:page.to])
		equal(t, counts, map[api.State]int{api.StateRunning: 7})
	}
}

func vmFilters(b *bench) {
	t := b.t
	ctx := t.Context()
	must(t, b.InsertSnapshot(ctx, snapshot.Snapshot{ID: "sh-1", Slug: "golden"}))
	for _, v := range []vm.VM{
		{ID: "vm-1", Slug: "web-1", DisplayName: "Web ÄRGER", State: api.StateRunning, SnapshotID: "sh-1", Metadata: map[string]string{"team": "a", "tier": "web"}},
		{ID: "vm-2", Slug: "web-2", DisplayName: "100% done_ok", State: api.StatePaused, SnapshotID: "sh-2", Metadata: map[string]string{"team": "a"}},
		{ID: "vm-3", Slug: "db", Image: "pando/debian", State: api.StateRunning, SnapshotID: "sh-1", Metadata: map[string]string{"team": "b", "tier": "a"}},
	} {
		must(t, b.InsertVM(ctx, v))
	}
	for name, c := range map[string]struct {
		filter vm.Filter
		want   []string
	}{
		"state":               {vm.Filter{State: api.StateRunning}, []string{"vm-3", "vm-1"}},
		"slug":                {vm.Filter{Slug: "web-1"}, []string{"vm-1"}},
		"slug is exact":       {vm.Filter{Slug: "web"}, nil},
		"snapshot id":         {vm.Filter{SnapshotID: "sh-1"}, []string{"vm-3", "vm-1"}},
		"snapshot slug":       {vm.Filter{SnapshotID: "golden"}, []string{"vm-3", "vm-1"}},
		"gone snapshot":       {vm.Filter{SnapshotID: "sh-2"}, []string{"vm-2"}},
		"unknown snapshot":    {vm.Filter{SnapshotID: "sh-0"}, nil},
		"one label":           {vm.Filter{Metadata: map[string]string{"team": "a"}}, []string{"vm-2", "vm-1"}},
		"all labels":          {vm.Filter{Metadata: map[string]string{"team": "a", "tier": "web"}}, []string{"vm-1"}},
		"label of another":    {vm.Filter{Metadata: map[string]string{"team": "web"}}, nil},
		"search slug":         {vm.Filter{Search: "WEB"}, []string{"vm-2", "vm-1"}},
		"search beyond ASCII": {vm.Filter{Search: "ärger"}, []string{"vm-1"}},
		"search id":           {vm.Filter{Search: "vm-3"}, []string{"vm-3"}},
		"search image":        {vm.Filter{Search: "debian"}, []string{"vm-3"}},
		"search is literal":   {vm.Filter{Search: "%"}, []string{"vm-2"}},
		"search underscore":   {vm.Filter{Search: "done_"}, []string{"vm-2"}},
		"search quote":        {vm.Filter{Search: "'"}, nil},
		"both":                {vm.Filter{State: api.StateRunning, Search: "web"}, []string{"vm-1"}},
	} {
		list, _, err := b.ListVMs(ctx, c.filter)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := ids(list); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func vmCounts(b *bench) {
	t := b.t
	ctx := t.Context()
	for i, state := range []api.State{api.StateRunning, api.StateRunning, api.StatePaused, api.StateStopped} {
		must(t, b.InsertVM(ctx, vm.VM{ID: vmID(i), State: state, Metadata: map[string]string{"odd": []string{"no", "yes"}[i%2]}}))
	}
	list, counts, err := b.ListVMs(ctx, vm.Filter{State: api.StateRunning, Metadata: map[string]string{"odd": "yes"}, Limit: 1})
	must(t, err)
	equal(t, ids(list), []string{"vm-001"})
	equal(t, counts, map[api.State]int{api.StateRunning: 1, api.StateStopped: 1})
}

// vmModel compares lists with a filter over plain records, for random records
// and random filters.
func vmModel(b *bench) {
	t := b.t
	ctx := t.Context()
	var records []vm.VM
	words := rapid.SampledFrom([]string{"", "a", "b", "ab", "A%", "ä", "x_y"})
	states := rapid.SampledFrom([]api.State{api.StateRunning, api.StatePaused, api.StateStopped})
	labels := rapid.MapOfN(rapid.SampledFrom([]string{"k", "l"}), words, 0, 2)
	rapid.Check(t, func(rt *rapid.T) {
		v := vm.VM{
			ID: vmID(len(records)), DisplayName: words.Draw(rt, "name"), State: states.Draw(rt, "state"),
			SnapshotID: words.Draw(rt, "snapshot"), Metadata: labels.Draw(rt, "labels"),
			CreatedAt: b.clock.Now().Add(time.Duration(rapid.IntRange(0, 3).Draw(rt, "age"))), UpdatedAt: b.clock.Now(),
		}
		if err := b.InsertVM(ctx, v); err != nil {
			rt.Fatal(err)
		}
		records = append(records, v)
		f := vm.Filter{
			State:      rapid.SampledFrom([]api.State{"", api.StateRunning}).Draw(rt, "want state"),
			SnapshotID: words.Draw(rt, "want snapshot"), Search: words.Draw(rt, "search"), Metadata: labels.Draw(rt, "want labels"),
			Limit: rapid.IntRange(0, 5).Draw(rt, "limit"), Offset: rapid.IntRange(0, 5).Draw(rt, "offset"),
		}
		list, counts, err := b.ListVMs(ctx, f)
		if err != nil {
			rt.Fatal(err)
		}
		wantIDs, wantCounts := model(records, f)
		if got := ids(list); !slices.Equal(got, wantIDs) || !maps.Equal(counts, wantCounts) {
			rt.Fatalf("filter %+v: got %v %v, want %v %v", f, got, counts, wantIDs, wantCounts)
		}
	})
}

func model(records []vm.VM, f vm.Filter) ([]string, map[api.State]int) {
	counts := map[api.State]int{}
	var match []vm.VM
	for _, v := range slices.Backward(records) {
		text := strings.ToLower(v.ID + "\n" + v.DisplayName)
		if f.SnapshotID != "" && v.SnapshotID != f.SnapshotID || !strings.Contains(text, strings.ToLower(f.Search)) {
			continue
		}
		if !hasAll(v.Metadata, f.Metadata) {
			continue
		}
		counts[v.State]++
		if f.State == "" || f.State == v.State {
			match = append(match, v)
		}
	}
	slices.SortStableFunc(match, func(a, b vm.VM) int { return cmp.Compare(b.CreatedAt.UnixNano(), a.CreatedAt.UnixNano()) })
	page := match[min(f.Offset, len(match)):]
	if f.Limit > 0 {
		page = page[:min(f.Limit, len(page))]
	}
	return ids(page), counts
}

func hasAll(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func vmAliasing(b *bench) {
	t := b.t
	ctx := t.Context()
	v := fullVM("vm-1")
	must(t, b.InsertVM(ctx, v))
	v.Metadata["job"], v.Ancestry[0] = "changed", "changed"
	got := value(b.FindVM(ctx, "vm-1"))(t)
	equal(t, got, fullVM("vm-1"))
	got.Metadata["job"], got.Ancestry[0] = "changed", "changed"
	equal(t, value(b.FindVM(ctx, "vm-1"))(t), fullVM("vm-1"))
}

func vmCancelled(b *bench) {
	t := b.t
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.InsertVM(ctx, fullVM("vm-1")); !errors.Is(err, context.Canceled) {
		t.Errorf("insert: got %v, want context canceled", err)
	}
	if _, err := b.FindVM(ctx, "vm-1"); !errors.Is(err, context.Canceled) {
		t.Errorf("find: got %v, want context canceled", err)
	}
	_, err := b.FindVM(t.Context(), "vm-1")
	wantFault(t, err, api.CodeNotFound, "")
}

func ids(list []vm.VM) []string {
	var out []string
	for _, v := range list {
		out = append(out, v.ID)
	}
	return out
}

func discard[T any](_ T, err error) error { return err }
