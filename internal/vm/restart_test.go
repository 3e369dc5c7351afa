package vm_test

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/vm"
	"github.com/pandovm/pando/internal/vm/vmtest"
)

const killed = "qemu was killed (signal 9)"

func TestRestartAfterFailuresOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cause  vm.Cause
		off    bool
		state  api.State
		reason string
	}{
		"crash":                {vm.CauseCrashed, false, api.StateRunning, "restarted: seen"},
		"panic":                {vm.CausePanicked, false, api.StateRunning, "restarted: seen"},
		"poweroff":             {vm.CausePoweredOff, false, api.StateStopped, "seen"},
		"crash, not wanted":    {vm.CauseCrashed, true, api.StateStopped, "seen"},
		"panic, not wanted":    {vm.CausePanicked, true, api.StateStopped, "seen"},
		"poweroff, not wanted": {vm.CausePoweredOff, true, api.StateStopped, "seen"},
	} {
		t.Run(name, func(t *testing.T) {
			timed(t, func(t *testing.T, r *rig) {
				p := vm.CreateParams{}
				if c.off {
					p.AutomaticRestart = new(false)
				}
				v := r.create(t, p)
				pass(time.Second)
				r.node.End(v.ID, c.cause, "seen")
				synctest.Wait()
				r.want(t, v.ID, c.state, c.reason)
				pass(24 * time.Hour)
				v = r.want(t, v.ID, c.state, c.reason)
				if p, _ := r.node.Presence(t.Context(), v.ID); string(p) != string(c.state) {
					t.Errorf("on the node it is %s", p)
				}
			})
		})
	}
}

func TestNoRestartAfterAnOrder(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		stopped, paused := r.create(t, vm.CreateParams{}), r.create(t, vm.CreateParams{Timers: vm.TimerChanges{Idle: secs(10)}})
		r.stop(t, stopped.ID)
		pass(24 * time.Hour)
		r.want(t, stopped.ID, api.StateStopped, "stopped by request")
		r.want(t, paused.ID, api.StatePaused, "idle for 10 s")
	})
}

// TestRestartsBackOff: the first restart is at once, each further one later, and
// the fifth is the last.
func TestRestartsBackOff(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{})
		for _, delay := range []time.Duration{0, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second} {
			r.node.Crash(v.ID)
			synctest.Wait()
			if delay > 0 {
				pass(delay - 1)
				r.want(t, v.ID, api.StateStopped, killed)
				pass(1)
			}
			r.want(t, v.ID, api.StateRunning, "restarted: "+killed)
			pass(time.Minute)
		}
		r.node.Crash(v.ID)
		pass(24 * time.Hour)
		r.want(t, v.ID, api.StateStopped, killed+"; given up after 5 restarts in a row")
		// Whoever starts it gives it a new chance.
		r.start(t, v.ID)
		r.want(t, v.ID, api.StateRunning, "")
		r.node.Crash(v.ID)
		synctest.Wait()
		r.want(t, v.ID, api.StateRunning, "restarted: "+killed)
	})
}

// TestSoundRunIsNoRow: crashes that are far apart are not counted together.
func TestSoundRunIsNoRow(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{})
		for range 20 {
			pass(5 * time.Minute)
			r.node.Crash(v.ID)
			synctest.Wait()
			r.want(t, v.ID, api.StateRunning, "restarted: "+killed)
		}
	})
}

func TestRestartThatFails(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{})
		r.node.FailNext("Boot", errors.New("no answer"))
		r.node.Crash(v.ID)
		synctest.Wait()
		r.want(t, v.ID, api.StateStopped, killed)
		pass(2 * time.Second)
		r.want(t, v.ID, api.StateRunning, "restarted: "+killed)
	})
}

func TestRestartIsCalledOff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		act    func(t *testing.T, r *rig, id string)
		state  api.State
		reason string
	}{
		"by a stop": {func(t *testing.T, r *rig, id string) { t.Helper(); r.stop(t, id) }, api.StateStopped, killed},
		"by the settings": {func(t *testing.T, r *rig, id string) {
			t.Helper()
			r.update(t, id, vm.UpdateParams{AutomaticRestart: new(false)})
		}, api.StateStopped, killed},
		"by a start": {func(t *testing.T, r *rig, id string) { t.Helper(); r.start(t, id) }, api.StateRunning, ""},
	} {
		t.Run(name, func(t *testing.T) {
			timed(t, func(t *testing.T, r *rig) {
				v := r.create(t, vm.CreateParams{})
				r.node.Crash(v.ID)
				synctest.Wait()
				r.node.Crash(v.ID)
				synctest.Wait()
				r.want(t, v.ID, api.StateStopped, killed)
				c.act(t, r, v.ID)
				generation := r.get(t, v.ID).Generation
				pass(time.Hour)
				if got := r.want(t, v.ID, c.state, c.reason); got.Generation != generation {
					t.Errorf("it was started again: generation %d, before %d", got.Generation, generation)
				}
			})
		})
	}
}

func TestRestartHonoursTheBudget(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{MaxRunTotal: secs(100)}})
		r.node.Crash(v.ID)
		synctest.Wait()
		r.want(t, v.ID, api.StateRunning, "restarted: "+killed)
		r.node.FailNext("Pause", errors.New("disk full"))
		pass(110 * time.Second) // Spent, and still running because it could not be paused.
		r.node.Crash(v.ID)
		synctest.Wait()
		r.want(t, v.ID, api.StateStopped, killed+"; not restarted because maxRunTotalSeconds is spent")
	})
}

// TestEphemeralCrash: a crash that is followed by a restart is no stop.
func TestEphemeralCrash(t *testing.T) {
	t.Parallel()
	timed(t, func(t *testing.T, r *rig) {
		v := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{AutoDelete: secs(0)}})
		for range 5 {
			r.node.Crash(v.ID)
			pass(20 * time.Second)
			r.want(t, v.ID, api.StateRunning, "restarted: "+killed)
		}
		r.node.Crash(v.ID)
		synctest.Wait()
		r.wantGone(t, v.ID)
		w := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{AutoDelete: secs(0)}, AutomaticRestart: new(false)})
		r.node.Crash(w.ID)
		synctest.Wait()
		r.wantGone(t, w.ID)
	})
}

// TestRestartSurvivesTheDaemon: a restart that was waiting happens under the
// next daemon.
func TestRestartSurvivesTheDaemon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path, node := filepath.Join(t.TempDir(), "pando.db"), vmtest.NewFake(baseID)
		r := openRig(t.Context(), t, path, node)
		stop := r.watch(t)
		v := r.create(t, vm.CreateParams{})
		for range 2 {
			node.Crash(v.ID)
			synctest.Wait()
		}
		r.want(t, v.ID, api.StateStopped, killed)
		stop()
		r.close(t)
		r = openRig(t.Context(), t, path, node)
		defer r.close(t)
		must(t, r.manager.Recover(t.Context()))
		defer r.watch(t)()
		pass(2 * time.Second)
		r.want(t, v.ID, api.StateRunning, "restarted: "+killed)
	})
}

// TestLossOfTheHost: what was running when the host went down is started by the
// next daemon, unless it must not be.
func TestLossOfTheHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path, node := filepath.Join(t.TempDir(), "pando.db"), vmtest.NewFake(baseID)
		r := openRig(t.Context(), t, path, node)
		lost := r.create(t, vm.CreateParams{Timers: vm.TimerChanges{AutoDelete: secs(0)}})
		off := r.create(t, vm.CreateParams{AutomaticRestart: new(false)})
		stopped := r.create(t, vm.CreateParams{})
		r.stop(t, stopped.ID)
		r.close(t)
		for _, v := range []vm.VM{lost, off, stopped} {
			node.Lose(v.ID)
		}
		r = openRig(t.Context(), t, path, node)
		defer r.close(t)
		must(t, r.manager.Recover(t.Context()))
		const seen = "its process was killed, or the host went down, while no daemon ran"
		r.want(t, lost.ID, api.StateStopped, seen)
		defer r.watch(t)()
		synctest.Wait()
		r.want(t, lost.ID, api.StateRunning, "restarted: "+seen)
		r.want(t, off.ID, api.StateStopped, seen)
		r.want(t, stopped.ID, api.StateStopped, "stopped by request")
	})
}
