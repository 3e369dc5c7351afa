package vm_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/store"
	"github.com/pandovm/pando/internal/vm"
	"github.com/pandovm/pando/internal/vm/vmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const baseID = "sh-base"

// rig is a manager on a real store and a fake node.
type rig struct {
	manager *vm.Manager
	store   *store.Store
	node    *vmtest.Fake
}

// images knows one image: the empty name and "pando/debian" mean the base snapshot.
type images struct{ base snapshot.Snapshot }

func (i images) Resolve(_ context.Context, ref string) (snapshot.Snapshot, bool, error) {
	return i.base, ref == "" || ref == i.base.Slug, nil
}

type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := openRig(t.Context(), t, filepath.Join(t.TempDir(), "pando.db"), vmtest.NewFake(baseID))
	t.Cleanup(func() { r.close(t) })
	return r
}

func openRig(ctx context.Context, t fataler, path string, node *vmtest.Fake) *rig {
	t.Helper()
	s, err := store.Open(ctx, path, time.Now)
	must(t, err)
	base := baseSnapshot()
	if _, err := s.FindSnapshot(ctx, baseID); err != nil {
		must(t, s.InsertSnapshot(ctx, base))
	}
	m := vm.NewManager(vm.Deps{
		VMs: s, Snapshots: s, Journal: s, Node: node, Images: images{base},
		Now: time.Now, Log: discardLog(),
	})
	return &rig{manager: m, store: s, node: node}
}

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func baseSnapshot() snapshot.Snapshot {
	return snapshot.Snapshot{
		ID: baseID, Slug: "pando/debian", Public: true, Image: "pando/debian", Durable: true,
		Resources: api.Resources{CPU: 2, Memory: 2048, Storage: 16384}, CreatedAt: time.Now(), UpdatedAt: time.Now(),
	}
}

func (r *rig) close(t fataler) {
	r.manager.Close()
	must(t, r.store.Close())
}

func must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) create(t *testing.T, p vm.CreateParams) vm.VM {
	t.Helper()
	v, err := r.manager.Create(t.Context(), p)
	must(t, err)
	return v
}

func wantFault(t *testing.T, err error, code api.Code, field string) {
	t.Helper()
	f := fault.As(err)
	if f == nil || f.Code != code || f.Field != field {
		t.Fatalf("error is %v, want code %s and field %q", err, code, field)
	}
	if f.Remedy == "" {
		t.Fatalf("error %v has no remedy", err)
	}
}

func (r *rig) wantNothing(t *testing.T) {
	t.Helper()
	all, _, err := r.manager.List(t.Context(), vm.Filter{})
	must(t, err)
	onNode, err := r.node.VMs(t.Context())
	must(t, err)
	if len(all) > 0 || len(onNode) > 0 {
		t.Fatalf("records %v and vms %v are left", all, onNode)
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(t, vm.CreateParams{Slug: "first", Metadata: map[string]string{"a": "b"}})
	if v.State != api.StateRunning || v.Generation != 1 || v.Image != "pando/debian" || v.Resources.CPU != 2 || v.AgentVersion != "fake" {
		t.Fatalf("created %+v", v)
	}
	if _, err := r.manager.Create(t.Context(), vm.CreateParams{Slug: "first"}); !fault.HasReason(err, api.ReasonSlugTaken) {
		t.Fatalf("second create with the slug: %v", err)
	}
	bySlug, err := r.manager.Get(t.Context(), "first")
	must(t, err)
	if bySlug.ID != v.ID {
		t.Fatalf("slug leads to %s, want %s", bySlug.ID, v.ID)
	}
}

func TestBadInputChangesNothing(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	for name, c := range map[string]struct {
		params vm.CreateParams
		code   api.Code
		field  string
	}{
		"slug with capitals":   {vm.CreateParams{Slug: "Bad"}, api.CodeBadRequest, "slug"},
		"slug with two dashes": {vm.CreateParams{Slug: "a--b"}, api.CodeBadRequest, "slug"},
		"slug with a slash":    {vm.CreateParams{Slug: "a/b"}, api.CodeBadRequest, "slug"},
		"long slug":            {vm.CreateParams{Slug: long}, api.CodeBadRequest, "slug"},
		"long name":            {vm.CreateParams{DisplayName: long}, api.CodeBadRequest, "displayName"},
		"long metadata":        {vm.CreateParams{Metadata: map[string]string{"k": long}}, api.CodeBadRequest, "metadata"},
		"empty metadata key":   {vm.CreateParams{Metadata: map[string]string{"": "v"}}, api.CodeBadRequest, "metadata"},
		"odd identity":         {vm.CreateParams{Identity: "borrow"}, api.CodeBadRequest, "identity"},
		"unknown snapshot":     {vm.CreateParams{SnapshotRef: "sh-none"}, api.CodeNotFound, "snapshotId"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			_, err := r.manager.Create(t.Context(), c.params)
			wantFault(t, err, c.code, c.field)
			r.wantNothing(t)
		})
	}
}

func TestBadForksAndStates(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(t, vm.CreateParams{})
	for _, count := range []int{0, 101, -1} {
		_, err := r.manager.Fork(t.Context(), v.ID, vm.ForkParams{Count: count})
		wantFault(t, err, api.CodeBadRequest, "count")
	}
	_, err := r.manager.Stop(t.Context(), v.ID)
	must(t, err)
	for name, call := range map[string]func() error{
		"fork":     func() error { _, err := r.manager.Fork(t.Context(), v.ID, vm.ForkParams{Count: 1}); return err },
		"awake":    func() error { _, err := r.manager.Awake(t.Context(), v.ID); return err },
		"pause":    func() error { _, err := r.manager.Pause(t.Context(), v.ID); return err },
		"snapshot": func() error { _, _, err := r.manager.Snapshot(t.Context(), v.ID, vm.SnapshotParams{}); return err },
	} {
		err := call()
		wantFault(t, err, api.CodeConflict, "")
		if !fault.HasReason(err, api.ReasonWrongState) {
			t.Errorf("%s of a stopped vm: %v", name, err)
		}
	}
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	broken := errors.New("broken")
	r.node.FailNext("Restore", broken)
	if _, err := r.manager.Create(t.Context(), vm.CreateParams{Slug: "again"}); !errors.Is(err, broken) {
		t.Fatalf("error is %v", err)
	}
	r.wantNothing(t)
	r.create(t, vm.CreateParams{Slug: "again"})
}

func TestFork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(t, vm.CreateParams{Metadata: map[string]string{"task": "7"}})
	out, err := r.manager.Fork(t.Context(), v.ID, vm.ForkParams{Count: 3, Slug: "try"})
	must(t, err)
	for i, c := range out.Children {
		must(t, c.Err)
		if c.VM.ParentID != v.ID || c.VM.ForkedAt.IsZero() || c.VM.State != api.StateRunning || c.VM.Metadata["task"] != "7" {
			t.Errorf("child %d is %+v", i, c.VM)
		}
	}
	if out.Children[2].VM.Slug != "try-3" {
		t.Errorf("third child is called %q", out.Children[2].VM.Slug)
	}
	second, err := r.manager.Fork(t.Context(), "try-1", vm.ForkParams{Count: 1})
	must(t, err)
	if got := second.Children[0].VM.Ancestry; len(got) != 2 || got[0] != out.Children[0].VM.ID || got[1] != v.ID {
		t.Errorf("ancestry of the grandchild is %v", got)
	}
	if _, err := r.manager.Fork(t.Context(), v.ID, vm.ForkParams{Count: 4, Slug: "try"}); !fault.HasReason(err, api.ReasonSlugTaken) {
		t.Fatalf("fork with taken slugs: %v", err)
	}
	all, _, err := r.manager.List(t.Context(), vm.Filter{})
	must(t, err)
	if len(all) != 5 {
		t.Errorf("%d vms are listed, want 5", len(all))
	}
}

func TestForkOfOneChildFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(t, vm.CreateParams{})
	broken := errors.New("broken")
	r.node.FailNext("Child", broken)
	out, err := r.manager.Fork(t.Context(), v.ID, vm.ForkParams{Count: 2})
	must(t, err)
	if !errors.Is(out.Children[0].Err, broken) || out.Children[1].Err != nil {
		t.Fatalf("children are %+v", out.Children)
	}
	all, _, err := r.manager.List(t.Context(), vm.Filter{})
	must(t, err)
	if len(all) != 2 {
		t.Fatalf("%d vms are listed, want the source and one child", len(all))
	}
}

func TestFailedPauseLeavesItRunning(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(t, vm.CreateParams{})
	full := fault.Conflict(api.ReasonDiskFull, "full")
	r.node.FailNext("Pause", full)
	if _, err := r.manager.Pause(t.Context(), v.ID); !fault.HasReason(err, api.ReasonDiskFull) {
		t.Fatalf("error is %v", err)
	}
	v, err := r.manager.Get(t.Context(), v.ID)
	must(t, err)
	if v.State != api.StateRunning {
		t.Fatalf("the vm is %s", v.State)
	}
}

func TestFailedStartGoesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(t, vm.CreateParams{})
	_, err := r.manager.Pause(t.Context(), v.ID)
	must(t, err)
	r.node.FailNext("Resume", errors.New("no answer"))
	if _, err := r.manager.Start(t.Context(), v.ID); err == nil {
		t.Fatal("the start did not fail")
	}
	v, err = r.manager.Start(t.Context(), v.ID)
	must(t, err)
	if v.State != api.StateRunning || v.Generation != 3 {
		t.Fatalf("after the second start: %+v", v)
	}
}

func TestCrashIsRecorded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.manager.Watch(ctx) }()
	v := r.create(t, vm.CreateParams{AutomaticRestart: new(false)})
	r.node.Crash(v.ID)
	for v.State != api.StateStopped {
		var err error
		v, err = r.manager.Get(t.Context(), v.ID)
		must(t, err)
	}
	if !strings.Contains(v.StateReason, "signal 9") || !v.RunningSince.IsZero() {
		t.Errorf("after the crash: %+v", v)
	}
	cancel()
	<-done
}

func TestSnapshotBecomesDurable(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(t, vm.CreateParams{})
	s, _, err := r.manager.Snapshot(t.Context(), v.ID, vm.SnapshotParams{Slug: "ready"})
	must(t, err)
	for !s.Durable {
		s, err = r.store.FindSnapshot(t.Context(), "ready")
		must(t, err)
	}
	w := r.create(t, vm.CreateParams{SnapshotRef: "ready"})
	if w.SnapshotID != s.ID || w.SnapshotSlug != "ready" || len(w.Ancestry) != 1 {
		t.Errorf("created from the snapshot: %+v", w)
	}
}

func TestSnapshotThatCannotBecomeDurableIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(t, vm.CreateParams{})
	r.node.FailNext("AwaitDurable", errors.New("disk failed"))
	s, _, err := r.manager.Snapshot(t.Context(), v.ID, vm.SnapshotParams{})
	must(t, err)
	for {
		_, err := r.store.FindSnapshot(t.Context(), s.ID)
		if f := fault.As(err); f != nil && f.Code == api.CodeNotFound {
			return
		}
		must(t, err)
	}
}

// A daemon that was killed at any moment leaves records and VMs that the next
// one brings in line.
func TestRecover(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := t.Context()
	lost := r.create(t, vm.CreateParams{Slug: "lost"})
	must(t, r.node.Delete(ctx, lost.ID))
	paused := r.create(t, vm.CreateParams{Slug: "paused"})
	must(t, r.node.Pause(ctx, paused.ID))
	half := vm.VM{ID: "vm-half", State: api.StateStarting, Generation: 1, CreatedAt: time.Now(), UpdatedAt: time.Now()}
	must(t, r.store.InsertVM(ctx, half))
	doomed := r.create(t, vm.CreateParams{Slug: "doomed"})
	must(t, r.store.BeginIntent(ctx, vm.Intent{ID: "delete/" + doomed.ID, Kind: vm.IntentDelete, VMID: doomed.ID, CreatedAt: time.Now()}))
	_, err := r.node.Restore(ctx, vm.Restore{VMID: "vm-stranger", SnapshotID: baseID})
	must(t, err)
	must(t, r.store.InsertSnapshot(ctx, snapshot.Snapshot{ID: "sh-half", CreatedAt: time.Now(), UpdatedAt: time.Now()}))

	must(t, r.manager.Recover(ctx))

	for slug, want := range map[string]api.State{"lost": api.StateStopped, "paused": api.StatePaused} {
		v, err := r.manager.Get(ctx, slug)
		must(t, err)
		if v.State != want {
			t.Errorf("%s is %s, want %s", slug, v.State, want)
		}
	}
	for _, gone := range []string{"vm-half", "doomed"} {
		if _, err := r.manager.Get(ctx, gone); fault.As(err) == nil {
			t.Errorf("%s is still there", gone)
		}
	}
	if p, _ := r.node.Presence(ctx, "vm-stranger"); p != vm.PresenceAbsent {
		t.Errorf("the vm without a record is %s", p)
	}
	if _, err := r.store.FindSnapshot(ctx, "sh-half"); fault.As(err) == nil {
		t.Error("the snapshot that never became durable is still listed")
	}
	open, err := r.store.OpenIntents(ctx)
	must(t, err)
	if len(open) > 0 {
		t.Errorf("intents %v are open", open)
	}
}

// Whatever the sequence of operations and failures, every VM can be deleted
// and the store agrees with the node.
func TestRandomOperationsNeverTrapAVM(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := t.Context()
	rapid.Check(t, func(rt *rapid.T) {
		v, err := r.manager.Create(ctx, vm.CreateParams{})
		must(rt, err)
		ids := []string{v.ID}
		for range rapid.IntRange(1, 20).Draw(rt, "operations") {
			id := rapid.SampledFrom(ids).Draw(rt, "vm")
			if rapid.IntRange(0, 4).Draw(rt, "fail") == 0 {
				r.node.FailNext(rapid.SampledFrom([]string{"Resume", "Boot", "Pause", "Stop", "Snapshot", "Fork", "Child"}).Draw(rt, "failure"), errors.New("injected"))
			}
			switch rapid.SampledFrom([]string{"start", "pause", "stop", "fork", "snapshot", "awake"}).Draw(rt, "operation") {
			case "start":
				_, _ = r.manager.Start(ctx, id)
			case "pause":
				_, _ = r.manager.Pause(ctx, id)
			case "stop":
				_, _ = r.manager.Stop(ctx, id)
			case "snapshot":
				_, _, _ = r.manager.Snapshot(ctx, id, vm.SnapshotParams{})
			case "awake":
				_, _ = r.manager.Awake(ctx, id)
			case "fork":
				out, _ := r.manager.Fork(ctx, id, vm.ForkParams{Count: 2})
				for _, c := range out.Children {
					if c.Err == nil {
						ids = append(ids, c.VM.ID)
					}
				}
			}
			agree(ctx, rt, r)
		}
		for _, id := range ids {
			must(rt, r.manager.Delete(ctx, id))
		}
		agree(ctx, rt, r)
	})
}

// agree checks that store and node know the same VMs in the same states.
func agree(ctx context.Context, t fataler, r *rig) {
	t.Helper()
	records, _, err := r.manager.List(ctx, vm.Filter{})
	must(t, err)
	onNode, err := r.node.VMs(ctx)
	must(t, err)
	if len(records) != len(onNode) {
		t.Fatalf("%d records, %d vms on the node", len(records), len(onNode))
	}
	for _, v := range records {
		p, err := r.node.Presence(ctx, v.ID)
		must(t, err)
		if string(p) != string(v.State) {
			t.Fatalf("%s is %s in the store and %s on the node", v.ID, v.State, p)
		}
	}
}

// A start during a pause waits for it, and two deletes are not in each other's way.
func TestOperationsQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(t, vm.CreateParams{})
	errs := make(chan error, 8)
	for range 4 {
		go func() { _, err := r.manager.Pause(t.Context(), v.ID); errs <- err }()
		go func() { _, err := r.manager.Start(t.Context(), v.ID); errs <- err }()
	}
	for range 8 {
		must(t, <-errs)
	}
	must(t, r.manager.Delete(t.Context(), v.ID))
	if err := r.manager.Delete(t.Context(), v.ID); fault.As(err) == nil || fault.As(err).Code != api.CodeNotFound {
		t.Fatalf("second delete: %v", err)
	}
	r.wantNothing(t)
}
