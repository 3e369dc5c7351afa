package e2e

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
	pando "github.com/pandovm/pando/sdk"
)

func update(t *testing.T, l *testlab.Lab, ref string, r api.UpdateVMRequest) api.VM {
	t.Helper()
	v, err := l.Client.VMs.Update(t.Context(), ref, r)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func awaitGone(t *testing.T, l *testlab.Lab, id string) {
	t.Helper()
	await(t, id+" to be gone", func() bool {
		_, err := l.Client.VMs.Get(t.Context(), id)
		var e *api.Error
		return errors.As(err, &e) && e.Code == api.CodeNotFound
	})
}

// A guest that fails is booted again from its disk; one that was shut down stays down.
func TestAutomaticRestart(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	l.Run(v.ID, "echo kept > /disk; echo lost > /dev/shm/memory; sync")
	fails := map[string]func(){
		"signal 9": func() { kill(t, l.QEMU(v.ID)) },
		"panicked": func() {
			// It never answers.
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, _ = l.Client.VMs.Exec(ctx, v.ID, api.ExecRequest{Command: "sleep 1; echo c > /proc/sysrq-trigger", LinuxUser: new("root")})
		},
	}
	for reason, fail := range fails {
		generation := l.Get(v.ID).Generation
		fail()
		var got api.VM
		await(t, "the restart", func() bool {
			got = l.Get(v.ID)
			return got.State == api.StateRunning && got.Generation > generation
		})
		if !strings.HasPrefix(got.StateReason, "restarted: ") || !strings.Contains(got.StateReason, reason) {
			t.Errorf("the reason is %q, want %q in it", got.StateReason, reason)
		}
		if got := l.Run(v.ID, "cat /disk; ls /dev/shm"); got != "kept\n" {
			t.Errorf("after %q the files hold %q", reason, got)
		}
	}
	l.Run(v.ID, "(sleep 1; poweroff -f) >/dev/null 2>&1 &")
	generation := l.Get(v.ID).Generation
	awaitState(t, l, v.ID, api.StateStopped)
	// The daemon takes the same decision when it looks again.
	l.Restart(syscall.SIGKILL)
	if got := l.Get(v.ID); got.State != api.StateStopped || got.Generation != generation || !strings.Contains(got.StateReason, "powered off") {
		t.Errorf("after a poweroff: %s (%s), generation %d", got.State, got.StateReason, got.Generation)
	}
}

// A VM whose process dies together with the daemon is started by the next one;
// one that was shut down meanwhile is not.
func TestRestartAfterTheHostWentDown(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	lost, off := l.Create(testlab.Busybox), l.Create(testlab.Busybox)
	l.Run(lost.ID, "echo kept > /disk; sync")
	pid := l.QEMU(off.ID)
	l.Run(off.ID, "(sleep 3; poweroff -f) >/dev/null 2>&1 &")
	victim := l.QEMU(lost.ID)
	l.Signal(syscall.SIGKILL)
	kill(t, victim)
	await(t, "the poweroff", func() bool { return syscall.Kill(pid, 0) != nil })
	l.Start()
	got := awaitState(t, l, lost.ID, api.StateRunning)
	if !strings.HasPrefix(got.StateReason, "restarted: ") {
		t.Errorf("the reason is %q", got.StateReason)
	}
	if got := l.Run(lost.ID, "cat /disk"); got != "kept\n" {
		t.Errorf("the disk holds %q", got)
	}
	if got := l.Get(off.ID); got.State != api.StateStopped {
		t.Errorf("the vm that was shut down is %s (%s)", got.State, got.StateReason)
	}
}

// Nobody uses it, so it pauses; somebody does, so it wakes, with everything in
// its memory, and a command that lasts keeps it awake.
func TestIdleAndWake(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.CreateWith(api.CreateVMRequest{SnapshotID: new(testlab.Busybox), IdleTimeoutSeconds: new(int64(2))})
	l.Run(v.ID, "echo asleep > /dev/shm/memory; sleep 6; echo awake >> /dev/shm/memory")
	if got := l.Get(v.ID); got.Generation != 1 {
		t.Errorf("it was paused under a command that ran: generation %d", got.Generation)
	}
	paused := awaitState(t, l, v.ID, api.StatePaused)
	if paused.StateReason != "idle for 2 s" || paused.NextPauseAt != nil {
		t.Errorf("the paused vm is %+v", paused)
	}
	if p := l.Processes(); len(p) != 0 {
		t.Errorf("a paused vm has processes %v", p)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			res, err := l.Client.VMs.Exec(t.Context(), v.ID, api.ExecRequest{Command: "cat /dev/shm/memory"})
			if err != nil || res.Stdout != "asleep\nawake\n" {
				t.Errorf("a waking command: %v, %q", err, res.Stdout)
			}
		})
	}
	wg.Wait()
	if got := l.Get(v.ID); got.Generation != paused.Generation+1 {
		t.Errorf("waking it took the generation from %d to %d", paused.Generation, got.Generation)
	}
	update(t, l, v.ID, api.UpdateVMRequest{IdleTimeoutSeconds: new(int64(-1))})
}

// The timers go on under the next daemon, and those that passed meanwhile act.
func TestTimersOutliveTheDaemon(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	idle, ttl, stopped, saved := l.Create(testlab.Busybox), l.Create(testlab.Busybox), l.Create(testlab.Busybox), l.Create(testlab.Busybox)
	snap, err := l.Client.VMs.Snapshot(t.Context(), saved.ID, api.CreateSnapshotRequest{TTLSeconds: new(int64(3600))})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the snapshot to be durable", func() bool {
		s, err := l.Client.Snapshots.Get(t.Context(), snap.SnapshotID)
		return err == nil && s.Durable
	})
	if _, err := l.Client.VMs.Stop(t.Context(), stopped.ID); err != nil {
		t.Fatal(err)
	}
	// Far enough away to be set before the daemon ends.
	update(t, l, idle.ID, api.UpdateVMRequest{IdleTimeoutSeconds: new(int64(20))})
	update(t, l, stopped.ID, api.UpdateVMRequest{AutoDeleteSeconds: new(int64(20))})
	age := int64(time.Since(ttl.CreatedAt).Seconds())
	update(t, l, ttl.ID, api.UpdateVMRequest{TTLSeconds: new(age + 20)})
	if _, err := l.Client.Snapshots.Update(t.Context(), snap.SnapshotID, api.UpdateSnapshotRequest{TTLSeconds: new(age + 20)}); err != nil {
		t.Fatal(err)
	}
	l.Restart(syscall.SIGKILL)
	if got := awaitState(t, l, idle.ID, api.StatePaused); got.StateReason != "idle for 20 s" {
		t.Errorf("the reason is %q", got.StateReason)
	}
	awaitGone(t, l, ttl.ID)
	awaitGone(t, l, stopped.ID)
	await(t, "the snapshot to be gone", func() bool {
		_, err := l.Client.Snapshots.Get(t.Context(), snap.SnapshotID)
		var e *api.Error
		return errors.As(err, &e) && e.Code == api.CodeNotFound
	})
	if got := l.Get(saved.ID); got.State != api.StateRunning {
		t.Errorf("the vm without timers is %s (%s)", got.State, got.StateReason)
	}
}

func TestEphemeralAndBudget(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	ctx := t.Context()
	v := l.CreateWith(api.CreateVMRequest{SnapshotID: new(testlab.Busybox), AutoDeleteSeconds: new(int64(0)), MaxRunTotalSeconds: new(int64(3))})
	paused := awaitState(t, l, v.ID, api.StatePaused)
	if !strings.Contains(paused.StateReason, "maxRunTotalSeconds") {
		t.Errorf("the reason is %q", paused.StateReason)
	}
	_, err := l.Client.VMs.Start(ctx, v.ID)
	wantError(t, err, api.CodeConflict, api.ReasonRunBudgetSpent)
	_, err = l.Client.VMs.Exec(ctx, v.ID, api.ExecRequest{Command: "true"})
	wantError(t, err, api.CodeConflict, api.ReasonRunBudgetSpent)
	update(t, l, v.ID, api.UpdateVMRequest{MaxRunTotalSeconds: new(int64(3600))})
	l.Run(v.ID, "(sleep 1; poweroff -f) >/dev/null 2>&1 &")
	awaitGone(t, l, v.ID)
	if p := l.Processes(); len(p) != 0 {
		t.Errorf("processes %v are left", p)
	}
}

// The children of a paused VM go on from where it stopped, and it sleeps on.
func TestForkOfAPausedVM(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	l.Run(v.ID, "echo before > /dev/shm/memory; echo before > /disk")
	if _, err := l.Client.VMs.Pause(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	out, err := l.Client.VMs.Fork(t.Context(), v.ID, api.ForkVMRequest{Count: new(2)})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range out.Forks {
		if f.Error != nil {
			t.Fatal(f.Error)
		}
		if got := l.Run(f.VM.ID, "cat /dev/shm/memory /disk; echo child > /dev/shm/memory; echo child > /disk"); got != "before\nbefore\n" {
			t.Errorf("a child holds %q", got)
		}
	}
	if got := l.Get(v.ID); got.State != api.StatePaused {
		t.Errorf("the source is %s", got.State)
	}
	if err := l.Client.VMs.Delete(t.Context(), out.Forks[0].VM.ID); err != nil {
		t.Fatal(err)
	}
	if got := l.Run(v.ID, "cat /dev/shm/memory /disk"); got != "before\nbefore\n" {
		t.Errorf("the source holds %q", got)
	}
	list, err := l.Client.Snapshots.List(t.Context(), pando.SnapshotFilter{})
	if err != nil || list.TotalCount != 0 {
		t.Errorf("snapshots are left: %+v, %v", list, err)
	}
}
