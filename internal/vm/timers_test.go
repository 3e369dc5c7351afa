package vm_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/vm"
	"github.com/pandovm/pando/internal/vm/vmtest"
)

// timed runs a test on a clock of its own, which moves when everybody waits.
// The rig's manager watches.
func timed(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := openRig(t.Context(), t, filepath.Join(t.TempDir(), "pando.db"), vmtest.NewFake(baseID))
		defer r.close(t)
		defer r.watch(t)()
		test(t, r)
	})
}

// watch lets the manager act until stop is called.
func (r *rig) watch(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.manager.Watch(ctx) })
	return func() { cancel(); wg.Wait() }
}

// pass lets time pass, and what is due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func secs(n int64) *int64 { return new(n) }

func (r *rig) get(t *testing.T, ref string) vm.VM {
	t.Helper()
	v, err := r.manager.Get(t.Context(), ref)
	must(t, err)
	return v
}

func (r *rig) want(t *testing.T, ref string, state api.State, reason string) vm.VM {
	t.Helper()
	v := r.get(t, ref)
	if v.State != state || v.StateReason != reason {
		t.Fatalf("the vm is %s (%s), want %s (%s)", v.State, v.StateReason, state, reason)
	}
	return v
}

func (r *rig) wantGone(t *testing.T, id string) {
	t.Helper()
	if _, err := r.manager.Get(t.Context(), id); fault.As(err) == nil || fault.As(err).Code != api.CodeNotFound {
		t.Fatalf("the vm is still there: %v", err)
	}
	if p, _ := r.node.Presence(t.Context(), id); p != vm.PresenceAbsent {
		t.Fatalf("the vm is %s on the node", p)
	}
}

func (r *rig) update(t *testing.T, ref string, p vm.UpdateParams) vm.VM {
	t.Helper()
	v, err := r.manager.Update(t.Context(), ref, p)
	must(t, err)
	return v
}

func (r *rig) start(t *testing.T, ref string) vm.VM {
	t.Helper()
	v, err := r.manager.Start(t.Context(), ref)
	must(t, err)
	return v
}

func (r *rig) pause(t *testing.T, ref string) {
	t.Helper()
	_, err := r.manager.Pause(t.Context(), ref)
	must(t, err)
}

func (r *rig) stop(t *testing.T, ref string) vm.VM {
	t.Helper()
	v, err := r.manager.Stop(t.Context(), ref)
	must(t, err)
	return v
}

func wantDue(t *testing.T, d vm.Due, at time.Time, timer string) {
	t.Helper()
	if !d.At.Equal(at) || d.Timer != timer {
		t.Fatalf("due at %v by %q, want %v by %q", d.At, d.Timer, at, timer)
	}
}

func TestIdlePauses(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{Idle: secs(60)}})
		wantDue(t, r.manager.Outlook(v).Pause, time.Now().Add(time.Minute), "idleTimeoutSeconds")
		pass(time.Minute - 1)
		r.want(t, v.ID, api.StateRunning, "")
		pass(1)
		v = r.want(t, v.ID, api.StatePaused, "idle for 60 s")
		wantDue(t, r.manager.Outlook(v).Pause, time.Time{}, "")
		pass(time.Hour)
		v = r.start(t, v.ID)
		wantDue(t, r.manager.Outlook(v).Pause, time.Now().Add(time.Minute), "idleTimeoutSeconds")
		r.want(t, v.ID, api.StateRunning, "")
		pass(time.Minute)
		r.want(t, v.ID, api.StatePaused, "idle for 60 s")
	})
}

func TestUseHoldsUpIdle(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{Idle: secs(60)}})
		pass(50 * time.Second)
		first, second := r.manager.Busy(v.ID), r.manager.Busy(v.ID)
		wantDue(t, r.manager.Outlook(r.get(t, v.ID)).Pause, time.Time{}, "")
		pass(time.Hour)
		first()
		first() // Idempotent: the second user is still there.
		pass(time.Hour)
		r.want(t, v.ID, api.StateRunning, "")
		second()
		wantDue(t, r.manager.Outlook(r.get(t, v.ID)).Pause, time.Now().Add(time.Minute), "idleTimeoutSeconds")
		pass(59 * time.Second)
		r.manager.Active(v.ID)
		pass(59 * time.Second)
		r.want(t, v.ID, api.StateRunning, "")
		pass(time.Second)
		r.want(t, v.ID, api.StatePaused, "idle for 60 s")
	})
}

// TestSettingsAreNoUse: whoever applies the same settings over and over does not
// keep the VM awake, and neither does whoever looks at it.
func TestSettingsAreNoUse(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{Idle: secs(60)}})
		for range 5 {
			pass(10 * time.Second)
			r.update(t, v.ID, vm.UpdateParams{Timers: vm.TimerChanges{Idle: secs(60)}, Metadata: map[string]string{"a": "b"}})
			r.get(t, v.ID)
		}
		pass(10 * time.Second)
		r.want(t, v.ID, api.StatePaused, "idle for 60 s")
	})
}

func TestIdleChanges(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{Idle: secs(60)}})
		r.update(t, v.ID, vm.UpdateParams{Timers: vm.TimerChanges{Idle: secs(-1)}})
		pass(time.Hour)
		r.want(t, v.ID, api.StateRunning, "")
		r.manager.Active(v.ID)
		r.update(t, v.ID, vm.UpdateParams{Timers: vm.TimerChanges{Idle: secs(120)}})
		pass(119 * time.Second)
		r.want(t, v.ID, api.StateRunning, "")
		r.update(t, v.ID, vm.UpdateParams{Timers: vm.TimerChanges{Idle: secs(30)}})
		synctest.Wait()
		r.want(t, v.ID, api.StatePaused, "idle for 30 s")
	})
}

func TestExecIsUse(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{Idle: secs(60)}})
		for range 10 {
			pass(50 * time.Second)
			_, err := r.manager.Awake(t.Context(), v.ID)
			must(t, err)
		}
		r.want(t, v.ID, api.StateRunning, "")
	})
}

func TestMaxRun(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{MaxRun: secs(100), Idle: secs(1000)}})
		defer r.manager.Busy(v.ID)() // Use does not hold it up.
		wantDue(t, r.manager.Outlook(v).Pause, time.Now().Add(100*time.Second), "maxRunSeconds")
		pass(100 * time.Second)
		r.want(t, v.ID, api.StatePaused, "ran for 100 s (maxRunSeconds)")
		pass(time.Hour)
		r.start(t, v.ID)
		pass(99 * time.Second)
		r.want(t, v.ID, api.StateRunning, "")
		pass(time.Second)
		r.want(t, v.ID, api.StatePaused, "ran for 100 s (maxRunSeconds)")
	})
}

func TestMaxRunTotal(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{MaxRunTotal: secs(100)}})
		pass(60 * time.Second)
		r.pause(t, v.ID)
		pass(time.Hour)
		v = r.start(t, v.ID)
		wantDue(t, r.manager.Outlook(v).Pause, time.Now().Add(40*time.Second), "maxRunTotalSeconds")
		pass(40 * time.Second)
		const reason = "ran for 100 s in all its runs (maxRunTotalSeconds)"
		r.want(t, v.ID, api.StatePaused, reason)
		for name, use := range map[string]func() error{
			"start": func() error { _, err := r.manager.Start(t.Context(), v.ID); return err },
			"wake":  func() error { _, err := r.manager.Awake(t.Context(), v.ID); return err },
		} {
			err := use()
			wantFault(t, err, api.CodeConflict, "maxRunTotalSeconds")
			if !fault.HasReason(err, api.ReasonRunBudgetSpent) {
				t.Errorf("%s: %v", name, err)
			}
		}
		r.want(t, v.ID, api.StatePaused, reason)
		r.update(t, v.ID, vm.UpdateParams{Timers: vm.TimerChanges{MaxRunTotal: secs(130)}})
		r.start(t, v.ID)
		pass(30 * time.Second)
		r.want(t, v.ID, api.StatePaused, "ran for 130 s in all its runs (maxRunTotalSeconds)")
		r.update(t, v.ID, vm.UpdateParams{Timers: vm.TimerChanges{MaxRunTotal: secs(-1)}})
		r.start(t, v.ID)
		pass(time.Hour)
		r.want(t, v.ID, api.StateRunning, "")
	})
}

func TestAutoDelete(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{AutoDelete: secs(100)}})
		pass(time.Hour)
		wantDue(t, r.manager.Outlook(v).Delete, time.Time{}, "")
		r.pause(t, v.ID)
		pass(60 * time.Second)
		r.stop(t, v.ID) // It has not run since the pause.
		wantDue(t, r.manager.Outlook(r.get(t, v.ID)).Delete, time.Now().Add(40*time.Second), "autoDeleteSeconds")
		r.start(t, v.ID)
		pass(time.Hour)
		r.stop(t, v.ID)
		pass(99 * time.Second)
		r.want(t, v.ID, api.StateStopped, "stopped by request")
		pass(time.Second)
		r.wantGone(t, v.ID)
	})
}

func TestEphemeral(t *testing.T) {
	t.Parallel()
	ends := map[string]func(t *testing.T, r *rig, id string){
		"stop":     func(t *testing.T, r *rig, id string) { t.Helper(); r.stop(t, id) },
		"poweroff": func(_ *testing.T, r *rig, id string) { r.node.End(id, vm.CausePoweredOff, "the guest powered off") },
		"stop of a paused": func(t *testing.T, r *rig, id string) {
			t.Helper()
			r.pause(t, id)
			pass(24 * time.Hour)
			r.want(t, id, api.StatePaused, "")
			r.stop(t, id)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			timed(t, func(t *testing.T, r *rig) {
				v := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{AutoDelete: secs(0)}})
				end(t, r, v.ID)
				synctest.Wait()
				r.wantGone(t, v.ID)
				_, err := r.manager.Start(t.Context(), v.ID)
				wantFault(t, err, api.CodeNotFound, "")
			})
		})
	}
}

func TestStoppedVMMadeEphemeral(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		stopped, paused := r.create(t, vm.CreateParams{}), r.create(t, vm.CreateParams{})
		r.stop(t, stopped.ID)
		r.pause(t, paused.ID)
		for _, id := range []string{stopped.ID, paused.ID} {
			if got := r.update(t, id, vm.UpdateParams{Timers: vm.TimerChanges{AutoDelete: secs(0)}}); got.ID != id {
				t.Errorf("the update returned %+v", got)
			}
		}
		r.wantGone(t, stopped.ID)
		r.want(t, paused.ID, api.StatePaused, "")
	})
}

func TestTTL(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{TTL: secs(100)}})
		w := r.create(t, vm.CreateParams{})
		wantDue(t, r.manager.Outlook(v).Delete, time.Now().Add(100*time.Second), "ttlSeconds")
		defer r.manager.Busy(v.ID)()
		pass(50 * time.Second)
		r.pause(t, v.ID)
		r.start(t, v.ID)
		pass(49 * time.Second)
		r.want(t, v.ID, api.StateRunning, "")
		pass(time.Second)
		r.wantGone(t, v.ID)
		r.update(t, w.ID, vm.UpdateParams{Timers: vm.TimerChanges{TTL: secs(100)}})
		synctest.Wait()
		r.wantGone(t, w.ID)
	})
}

func TestSnapshotTimers(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{})
		unused, _, err := r.manager.Snapshot(t.Context(), v.ID, vm.SnapshotParams{AutoDelete: secs(100)})
		must(t, err)
		used, _, err := r.manager.Snapshot(t.Context(), v.ID, vm.SnapshotParams{AutoDelete: secs(100)})
		must(t, err)
		short, _, err := r.manager.Snapshot(t.Context(), v.ID, vm.SnapshotParams{TTL: secs(150), AutoDelete: secs(-1)})
		must(t, err)
		pass(60 * time.Second)
		r.create(t, vm.CreateParams{SnapshotRef: used.ID})
		r.create(t, vm.CreateParams{SnapshotRef: short.ID})
		alive := func(want ...string) {
			t.Helper()
			onNode, err := r.node.Snapshots(t.Context())
			must(t, err)
			for _, id := range []string{unused.ID, used.ID, short.ID} {
				_, err := r.store.FindSnapshot(t.Context(), id)
				is := err == nil
				if should := slices.Contains(want, id); is != should || slices.Contains(onNode, id) != should {
					t.Errorf("%v after it began, the snapshot %s is there: %v, want %v", time.Since(v.CreatedAt), id, is, should)
				}
			}
		}
		pass(40 * time.Second)
		alive(used.ID, short.ID)
		pass(50 * time.Second)
		alive(used.ID)
		pass(10 * time.Second)
		alive()
	})
}

// TestFailedTimerTriesAgain: a pause that cannot save leaves the VM running and
// is tried again a minute later.
func TestFailedTimerTriesAgain(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{MaxRun: secs(10), TTL: secs(1000)}})
		r.node.FailNext("Pause", errors.New("the disk is full"))
		pass(10 * time.Second)
		r.want(t, v.ID, api.StateRunning, "the last pause failed")
		pass(59 * time.Second)
		r.want(t, v.ID, api.StateRunning, "the last pause failed")
		pass(time.Second)
		r.want(t, v.ID, api.StatePaused, "ran for 10 s (maxRunSeconds)")
		r.node.FailNext("Delete", errors.New("busy"))
		pass(time.Until(v.CreatedAt.Add(1000 * time.Second)))
		r.want(t, v.ID, api.StatePaused, "ran for 10 s (maxRunSeconds)")
		pass(time.Minute)
		r.wantGone(t, v.ID)
	})
}

// TestTimersSurviveTheDaemon: the next daemon derives the same moments from the
// records, also those that passed while none was there.
func TestTimersSurviveTheDaemon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path, node := filepath.Join(t.TempDir(), "pando.db"), vmtest.NewFake(baseID)
		var r *rig
		stop := func() {}
		reopen := func(down time.Duration) {
			if r != nil {
				stop()
				r.close(t)
			}
			pass(down)
			r = openRig(t.Context(), t, path, node)
			must(t, r.manager.Recover(t.Context()))
			stop = r.watch(t)
			synctest.Wait()
		}
		reopen(0)
		defer func() { stop(); r.close(t) }()
		for slug, timers := range map[string]vm.TimerChanges{
			"idle": {Idle: secs(100)}, "used": {Idle: secs(100)}, "run": {MaxRun: secs(100)}, "total": {MaxRunTotal: secs(100)},
			"rest": {AutoDelete: secs(100)}, "ttl": {TTL: secs(100)}, "late": {TTL: secs(200)},
		} {
			r.create(t, vm.CreateParams{Slug: slug, Timers: timers})
		}
		r.pause(t, "rest")
		_, _, err := r.manager.Snapshot(t.Context(), "late", vm.SnapshotParams{Slug: "saved", TTL: secs(100)})
		must(t, err)
		pass(60 * time.Second)
		r.manager.Active(r.get(t, "used").ID)
		synctest.Wait()
		reopen(60 * time.Second)
		r.want(t, "idle", api.StatePaused, "idle for 100 s")
		r.want(t, "used", api.StateRunning, "")
		r.want(t, "run", api.StatePaused, "ran for 100 s (maxRunSeconds)")
		r.want(t, "total", api.StatePaused, "ran for 100 s in all its runs (maxRunTotalSeconds)")
		for _, gone := range []string{"rest", "ttl"} {
			if _, err := r.manager.Get(t.Context(), gone); err == nil {
				t.Errorf("%s is still there", gone)
			}
		}
		if _, err := r.store.FindSnapshot(t.Context(), "saved"); err == nil {
			t.Error("the snapshot is still there")
		}
		// It was used at 60 s, which is known to half its timeout.
		pass(30 * time.Second)
		r.want(t, "used", api.StateRunning, "")
		pass(60 * time.Second)
		r.want(t, "used", api.StatePaused, "idle for 100 s")
		if _, err := r.manager.Get(t.Context(), "late"); err == nil {
			t.Error("late is still there")
		}
	})
}

// meddler calls a function in the moment in which a VM begins to pause.
type meddler struct {
	vm.Repository
	pausing func(id string)
}

func (m meddler) UpdateVM(ctx context.Context, id string, change func(*vm.VM) error) (vm.VM, error) {
	v, err := m.Repository.UpdateVM(ctx, id, change)
	if err == nil && v.State == api.StatePausing {
		m.pausing(id)
	}
	return v, err
}

// TestUseCallsAPauseOff: a command that has seen the VM running is not caught by
// the pause that begins beside it.
func TestUseCallsAPauseOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := openRig(t.Context(), t, filepath.Join(t.TempDir(), "pando.db"), vmtest.NewFake(baseID))
		var m *vm.Manager
		begun := 0
		m = vm.NewManager(vm.Deps{
			VMs: meddler{r.store, func(id string) {
				if begun++; begun == 1 {
					m.Active(id)
				}
			}},
			Snapshots: r.store, Journal: r.store, Node: r.node, Images: images{baseSnapshot()}, Now: time.Now, Log: discardLog(),
		})
		r.manager.Close()
		r.manager = m
		defer r.close(t)
		defer r.watch(t)()
		v := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{Idle: secs(60)}})
		pass(60 * time.Second)
		r.want(t, v.ID, api.StateRunning, "")
		if begun != 1 || v.Generation != r.get(t, v.ID).Generation {
			t.Fatalf("%d pauses began", begun)
		}
		pass(60 * time.Second)
		r.want(t, v.ID, api.StatePaused, "idle for 60 s")
	})
}

func TestManyWakersShareOneResume(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{Idle: secs(60)}})
		pass(time.Minute)
		r.want(t, v.ID, api.StatePaused, "idle for 60 s")
		errs := make(chan error, 50)
		for range cap(errs) {
			go func() { _, err := r.manager.Awake(t.Context(), v.ID); errs <- err }()
		}
		for range cap(errs) {
			must(t, <-errs)
		}
		if got := r.want(t, v.ID, api.StateRunning, ""); got.Generation != v.Generation+1 {
			t.Errorf("the generation rose from %d to %d", v.Generation, got.Generation)
		}
	})
}

func TestBadTimers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(t, vm.CreateParams{Slug: "kept"})
	const tooLong = 100*365*24*3600 + 1
	for field, c := range map[string]func(n int64) vm.TimerChanges{
		"idleTimeoutSeconds": func(n int64) vm.TimerChanges { return vm.TimerChanges{Idle: &n} },
		"autoDeleteSeconds":  func(n int64) vm.TimerChanges { return vm.TimerChanges{AutoDelete: &n} },
		"ttlSeconds":         func(n int64) vm.TimerChanges { return vm.TimerChanges{TTL: &n} },
		"maxRunSeconds":      func(n int64) vm.TimerChanges { return vm.TimerChanges{MaxRun: &n} },
		"maxRunTotalSeconds": func(n int64) vm.TimerChanges { return vm.TimerChanges{MaxRunTotal: &n} },
	} {
		for _, n := range []int64{-2, 0, tooLong} {
			if n == 0 && field == "autoDeleteSeconds" {
				continue
			}
			_, err := r.manager.Create(t.Context(), vm.CreateParams{Timers: c(n)})
			wantFault(t, err, api.CodeBadRequest, field)
			_, err = r.manager.Update(t.Context(), v.ID, vm.UpdateParams{Timers: c(n), Slug: new("changed")})
			wantFault(t, err, api.CodeBadRequest, field)
			if !strings.Contains(err.Error(), field) {
				t.Errorf("the error does not name %s: %v", field, err)
			}
		}
	}
	for _, n := range []int64{-2, 0, tooLong} {
		_, _, err := r.manager.Snapshot(t.Context(), v.ID, vm.SnapshotParams{AutoDelete: &n})
		wantFault(t, err, api.CodeBadRequest, "autoDeleteSeconds")
		_, _, err = r.manager.Snapshot(t.Context(), v.ID, vm.SnapshotParams{TTL: &n})
		wantFault(t, err, api.CodeBadRequest, "ttlSeconds")
	}
	if all, _, err := r.manager.List(t.Context(), vm.Filter{}); err != nil || len(all) != 1 || all[0].Slug != "kept" {
		t.Errorf("after the refusals there are %+v, %v", all, err)
	}
}
