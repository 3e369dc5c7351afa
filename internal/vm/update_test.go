package vm_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/vm"
)

func TestUpdate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(t, vm.CreateParams{Slug: "web", DisplayName: "Web", Metadata: map[string]string{"a": "1", "b": "2"}})
	same := r.update(t, "web", vm.UpdateParams{Metadata: map[string]string{}})
	same.UpdatedAt = v.UpdatedAt
	same.UsedAt = v.UsedAt
	if diff := cmp.Diff(v, same); diff != "" {
		t.Errorf("a change of nothing changed:\n%s", diff)
	}
	got := r.update(t, "web", vm.UpdateParams{
		Slug: new("new"), DisplayName: new(""), AutomaticRestart: new(false),
		Timers:   vm.TimerChanges{Idle: secs(60), AutoDelete: secs(0), TTL: secs(3), MaxRun: secs(4), MaxRunTotal: secs(5)},
		Metadata: map[string]string{"a": "", "b": "3", "c": "4", "unknown": ""},
	})
	if got.Slug != "new" || got.DisplayName != "" || got.AutomaticRestart || !maps.Equal(got.Metadata, map[string]string{"b": "3", "c": "4"}) {
		t.Errorf("got %+v", got)
	}
	want := vm.Timers{
		Idle: new(time.Minute), AutoDelete: new(time.Duration(0)), TTL: new(3 * time.Second), MaxRun: new(4 * time.Second), MaxRunTotal: new(5 * time.Second),
	}
	if diff := cmp.Diff(want, got.Timers); diff != "" {
		t.Error(diff)
	}
	never := secs(-1)
	got = r.update(t, "new", vm.UpdateParams{
		Slug: new(""), Timers: vm.TimerChanges{Idle: never, AutoDelete: never, TTL: never, MaxRun: never, MaxRunTotal: never},
	})
	if got.Slug != "" || got.Timers != (vm.Timers{}) {
		t.Errorf("got %+v", got)
	}
}

func TestUpdateRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	full := map[string]string{}
	for i := range vm.MaxMetadataEntries {
		full[fmt.Sprint("key-", i)] = "x"
	}
	v := r.create(t, vm.CreateParams{Slug: "web", Metadata: full})
	r.create(t, vm.CreateParams{Slug: "taken"})
	before := r.get(t, v.ID)
	long := strings.Repeat("x", 300)
	for name, c := range map[string]struct {
		params vm.UpdateParams
		code   api.Code
		field  string
	}{
		"slug with capitals":     {vm.UpdateParams{Slug: new("Bad")}, api.CodeBadRequest, "slug"},
		"long slug":              {vm.UpdateParams{Slug: &long}, api.CodeBadRequest, "slug"},
		"long name":              {vm.UpdateParams{DisplayName: &long}, api.CodeBadRequest, "displayName"},
		"long metadata":          {vm.UpdateParams{Metadata: map[string]string{"k": long}}, api.CodeBadRequest, "metadata"},
		"empty metadata key":     {vm.UpdateParams{Metadata: map[string]string{"": ""}}, api.CodeBadRequest, "metadata"},
		"one entry too many":     {vm.UpdateParams{Metadata: map[string]string{"more": "x"}}, api.CodeBadRequest, "metadata"},
		"reassign without slug":  {vm.UpdateParams{ReassignSlug: true}, api.CodeBadRequest, "reassignSlug"},
		"reassign of no slug":    {vm.UpdateParams{ReassignSlug: true, Slug: new("")}, api.CodeBadRequest, "reassignSlug"},
		"taken slug":             {vm.UpdateParams{Slug: new("taken"), DisplayName: new("changed")}, api.CodeConflict, "slug"},
		"all or nothing of both": {vm.UpdateParams{DisplayName: new("changed"), Metadata: map[string]string{"more": "x"}}, api.CodeBadRequest, "metadata"},
	} {
		_, err := r.manager.Update(t.Context(), v.ID, c.params)
		f := fault.As(err)
		if f == nil || f.Code != c.code || f.Field != c.field || f.Remedy == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if diff := cmp.Diff(before, r.get(t, v.ID)); diff != "" {
		t.Errorf("refusals changed:\n%s", diff)
	}
	// As many as before are fine when one goes for one that comes.
	r.update(t, v.ID, vm.UpdateParams{Metadata: map[string]string{"more": "x", "key-0": ""}})
	_, err := r.manager.Update(t.Context(), "vm-none", vm.UpdateParams{})
	wantFault(t, err, api.CodeNotFound, "")
}

func TestSlugTakeover(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := r.create(t, vm.CreateParams{Slug: "web"})
	_, err := r.manager.Create(t.Context(), vm.CreateParams{ReassignSlug: true})
	wantFault(t, err, api.CodeBadRequest, "reassignSlug")

	// A create that fails takes nothing away.
	r.node.FailNext("Restore", errors.New("broken"))
	if _, err := r.manager.Create(t.Context(), vm.CreateParams{Slug: "web", ReassignSlug: true}); err == nil {
		t.Fatal("the create did not fail")
	}
	if got := r.get(t, "web"); got.ID != old.ID {
		t.Fatalf("the slug leads to %s", got.ID)
	}

	second := r.create(t, vm.CreateParams{Slug: "web", ReassignSlug: true})
	if second.Slug != "web" || r.get(t, "web").ID != second.ID {
		t.Fatalf("the slug leads to %s, want %s", r.get(t, "web").ID, second.ID)
	}
	if got := r.get(t, old.ID); got.Slug != "" || got.State != api.StateRunning {
		t.Fatalf("the former holder is %+v", got)
	}
	back := r.update(t, old.ID, vm.UpdateParams{Slug: new("web"), ReassignSlug: true})
	if back.Slug != "web" || r.get(t, second.ID).Slug != "" {
		t.Fatalf("after taking it back: %+v", back)
	}
	// Nobody has it, or the VM itself.
	r.update(t, old.ID, vm.UpdateParams{Slug: new("web"), ReassignSlug: true})
	r.create(t, vm.CreateParams{Slug: "free", ReassignSlug: true})
	list, _, err := r.manager.List(t.Context(), vm.Filter{Search: "web"})
	must(t, err)
	if len(list) != 1 || list[0].ID != old.ID {
		t.Errorf("a search for the slug finds %+v", list)
	}
}

func apart(labels map[string]string) []vm.AntiAffinity {
	return []vm.AntiAffinity{{Topology: "node", MatchLabels: labels}}
}

func TestPlacement(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	db := map[string]string{"app": "db", "tier": "1"}
	first := r.create(t, vm.CreateParams{Metadata: db, Placement: apart(db)})
	r.create(t, vm.CreateParams{Metadata: map[string]string{"app": "db"}, Placement: apart(map[string]string{"app": "web"})})
	_, err := r.manager.Create(t.Context(), vm.CreateParams{Slug: "second", Placement: apart(map[string]string{"tier": "1"})})
	wantFault(t, err, api.CodeConflict, "placement.antiAffinity[0]")
	if !fault.HasReason(err, api.ReasonPlacement) || !strings.Contains(err.Error(), first.ID) {
		t.Errorf("got %v", err)
	}
	// Both labels must match, in one VM.
	r.create(t, vm.CreateParams{Slug: "second", Placement: apart(map[string]string{"app": "db", "tier": "2"})})
	out, err := r.manager.Fork(t.Context(), first.ID, vm.ForkParams{Count: 1})
	must(t, err)
	if child := out.Children[0].VM; len(child.Placement) > 0 {
		t.Errorf("the child has the placement %+v", child.Placement)
	}
}

// TestPlacementIsAtomic: of many creates at once that exclude each other, one is
// made.
func TestPlacementIsAtomic(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	only := map[string]string{"only": "one"}
	errs := make(chan error, 20)
	for range cap(errs) {
		go func() {
			_, err := r.manager.Create(t.Context(), vm.CreateParams{Metadata: only, Placement: apart(only)})
			errs <- err
		}()
	}
	made := 0
	for range cap(errs) {
		err := <-errs
		switch {
		case err == nil:
			made++
		case !fault.HasReason(err, api.ReasonPlacement):
			t.Error(err)
		}
	}
	if made != 1 {
		t.Errorf("%d were made", made)
	}
}

func TestBadPlacement(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	many := map[string]string{}
	for i := range vm.MaxMatchLabels + 1 {
		many[fmt.Sprint(i)] = ""
	}
	long := strings.Repeat("x", vm.MaxMetadataLength+1)
	good := apart(map[string]string{"a": "b"})
	for name, c := range map[string]struct {
		rules []vm.AntiAffinity
		field string
	}{
		"too many rules": {append(make([]vm.AntiAffinity, vm.MaxAntiAffinity), good...), "placement.antiAffinity"},
		"topology":       {append(good, vm.AntiAffinity{Topology: "zone", MatchLabels: many}), "placement.antiAffinity[1].topology"},
		"no topology":    {[]vm.AntiAffinity{{MatchLabels: map[string]string{"a": "b"}}}, "placement.antiAffinity[0].topology"},
		"no labels":      {apart(nil), "placement.antiAffinity[0].selector.matchLabels"},
		"too many":       {apart(many), "placement.antiAffinity[0].selector.matchLabels"},
		"empty key":      {apart(map[string]string{"": "x"}), "placement.antiAffinity[0].selector.matchLabels"},
		"long key":       {apart(map[string]string{long: "x"}), "placement.antiAffinity[0].selector.matchLabels"},
		"long value":     {apart(map[string]string{"x": long}), "placement.antiAffinity[0].selector.matchLabels"},
	} {
		_, err := r.manager.Create(t.Context(), vm.CreateParams{Placement: c.rules})
		f := fault.As(err)
		if f == nil || f.Code != api.CodeBadRequest || f.Field != c.field || f.Remedy == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.wantNothing(t)
}

// TestChildrenInherit: children have their source's timers and begin them anew.
func TestChildrenInherit(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{
			AutomaticRestart: new(false), Metadata: map[string]string{"task": "7"},
			Timers: vm.TimerChanges{Idle: secs(1000), TTL: secs(100), MaxRunTotal: secs(5000)},
		})
		pass(60 * time.Second)
		out, err := r.manager.Fork(t.Context(), v.ID, vm.ForkParams{Count: 1})
		must(t, err)
		child := out.Children[0].VM
		if diff := cmp.Diff(v.Timers, child.Timers); diff != "" || child.AutomaticRestart || child.Metadata["task"] != "7" || child.RunTime != 0 {
			t.Errorf("the child is %+v\n%s", child, diff)
		}
		pass(60 * time.Second)
		r.wantGone(t, v.ID)
		r.want(t, child.ID, api.StateRunning, "")
		pass(40 * time.Second)
		r.wantGone(t, child.ID)
	})
}

// TestForkOfAPausedVM: the children continue from what was saved, and the source
// sleeps on.
func TestForkOfAPausedVM(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{Idle: secs(1000)}})
	write := func(id, text string) {
		t.Helper()
		_, err := r.node.Exec(t.Context(), id, command.Order{Command: "printf %s " + text + " > /dev/shm/memory"})
		must(t, err)
	}
	write(v.ID, "asleep")
	r.pause(t, v.ID)
	snapshots := func() int {
		held, err := r.node.Snapshots(t.Context())
		must(t, err)
		return len(held)
	}
	before := snapshots()
	r.node.FailNext("Restore", errors.New("broken"))
	out, err := r.manager.Fork(t.Context(), v.ID, vm.ForkParams{Count: 3, Slug: "try"})
	must(t, err)
	failed := 0
	for _, c := range out.Children {
		if c.Err != nil {
			failed++
			continue
		}
		res, err := r.node.Exec(t.Context(), c.VM.ID, command.Order{Command: "cat /dev/shm/memory"})
		must(t, err)
		if string(res.Stdout) != "asleep" || c.VM.ParentID != v.ID || c.VM.ForkedAt.IsZero() || c.VM.State != api.StateRunning {
			t.Errorf("the child %+v holds %q", c.VM, res.Stdout)
		}
		write(c.VM.ID, "awake")
	}
	if failed != 1 {
		t.Errorf("%d children failed, want one", failed)
	}
	r.want(t, v.ID, api.StatePaused, "")
	if after := snapshots(); after != before {
		t.Errorf("the node holds %d snapshots, before %d", after, before)
	}
	r.node.FailNext("Snapshot", errors.New("broken"))
	if _, err := r.manager.Fork(t.Context(), v.ID, vm.ForkParams{Count: 1}); err == nil {
		t.Error("the fork did not fail")
	}
	agree(context.WithoutCancel(t.Context()), t, r)
}
