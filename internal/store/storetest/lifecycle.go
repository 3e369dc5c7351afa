package storetest

import (
	"slices"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/vm"
)

// vmTakeover: the slug changes hands in one step, and searches know it.
func vmTakeover(b *bench) {
	t := b.t
	ctx := t.Context()
	must(t, b.InsertVM(ctx, vm.VM{ID: "vm-a", Slug: "web", State: api.StateRunning, DisplayName: "old"}))
	b.clock.Advance(time.Hour)
	must(t, b.InsertVM(ctx, vm.VM{ID: "vm-b", Slug: "web", TakeSlug: true, State: api.StateRunning}))
	if got := value(b.FindVM(ctx, "web"))(t); got.ID != "vm-b" || got.TakeSlug {
		t.Errorf("the slug leads to %+v", got)
	}
	if old := value(b.FindVM(ctx, "vm-a"))(t); old.Slug != "" || old.DisplayName != "old" {
		t.Errorf("the former holder is %+v", old)
	}
	got := value(b.UpdateVM(ctx, "vm-a", func(v *vm.VM) error { v.Slug, v.TakeSlug = "web", true; return nil }))(t)
	if got.Slug != "web" || got.TakeSlug {
		t.Errorf("the update returned %+v", got)
	}
	found, _, err := b.ListVMs(ctx, vm.Filter{Search: "web"})
	must(t, err)
	equal(t, ids(found), []string{"vm-a"})
	// A change that is refused takes nothing.
	_, err = b.UpdateVM(ctx, "vm-b", func(v *vm.VM) error { v.Slug, v.TakeSlug = "web", true; return errRefused })
	if err == nil || value(b.FindVM(ctx, "web"))(t).ID != "vm-a" {
		t.Errorf("after a refusal: %v", err)
	}
	must(t, discard(b.UpdateVM(ctx, "vm-b", func(v *vm.VM) error { v.Slug, v.TakeSlug = "free", true; return nil })))
	must(t, discard(b.UpdateVM(ctx, "vm-b", func(v *vm.VM) error { v.TakeSlug = true; return nil })))
}

func vmApart(b *bench) {
	t := b.t
	ctx := t.Context()
	rule := func(labels ...string) []vm.AntiAffinity {
		m := map[string]string{}
		for pair := range slices.Chunk(labels, 2) {
			m[pair[0]] = pair[1]
		}
		return []vm.AntiAffinity{{Topology: "node", MatchLabels: m}}
	}
	must(t, b.InsertVM(ctx, vm.VM{ID: "vm-1", State: api.StateStopped, Metadata: map[string]string{"app": "db", "tier": "1", "x": ""}}))
	must(t, b.InsertVM(ctx, vm.VM{ID: "vm-2", State: api.StateRunning, Metadata: map[string]string{"app": "web"}}))
	for name, c := range map[string]struct {
		rules []vm.AntiAffinity
		near  bool
	}{
		"no rule":            {nil, false},
		"nobody has it":      {rule("app", "queue"), false},
		"one has it":         {rule("app", "db"), true},
		"one has both":       {rule("app", "db", "tier", "1"), true},
		"nobody has both":    {rule("app", "web", "tier", "1"), false},
		"an empty value":     {rule("x", ""), true},
		"a key that lacks":   {rule("y", ""), false},
		"the second of two":  {append(rule("app", "queue"), rule("app", "web")...), true},
		"keys are no paths":  {rule("$.app", "db"), false},
		"values are literal": {rule("app", "d%"), false},
	} {
		v := vm.VM{ID: "vm-new", State: api.StateStarting, Placement: c.rules}
		err := b.InsertVM(ctx, v)
		if near := fault.HasReason(err, api.ReasonPlacement); near != c.near || !near && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if f := fault.As(err); f != nil && (f.Code != api.CodeConflict || f.Field == "" || f.Remedy == "") {
			t.Errorf("%s: the fault lacks something: %+v", name, f)
		}
		must(t, b.DeleteVM(ctx, v.ID))
	}
	// A VM does not keep away from itself, and later changes are free.
	must(t, b.InsertVM(ctx, vm.VM{ID: "vm-3", State: api.StateRunning, Metadata: map[string]string{"own": "1"}, Placement: rule("own", "1")}))
	must(t, discard(b.UpdateVM(ctx, "vm-2", func(v *vm.VM) error { v.Metadata["own"] = "1"; return nil })))
	must(t, discard(b.UpdateVM(ctx, "vm-3", func(v *vm.VM) error { v.DisplayName = "x"; return nil })))
}

func vmNoteUse(b *bench) {
	t := b.t
	ctx := t.Context()
	want := fullVM("vm-1")
	must(t, b.InsertVM(ctx, want))
	b.clock.Advance(time.Hour)
	want.UsedAt = b.clock.Now()
	must(t, b.NoteUse(ctx, "vm-1", want.UsedAt))
	equal(t, value(b.FindVM(ctx, "vm-1"))(t), want)
	must(t, b.NoteUse(ctx, "vm-none", want.UsedAt))
}
