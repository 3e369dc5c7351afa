package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
	pando "github.com/pandovm/pando/sdk"
)

func TestExec(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	exec := func(r api.ExecRequest) api.ExecResponse {
		t.Helper()
		res, err := l.Client.VMs.Exec(t.Context(), v.ID, r)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	for name, c := range map[string]struct {
		request        api.ExecRequest
		stdout, stderr string
		code           int
	}{
		"streams apart":      {api.ExecRequest{Command: "echo out; echo err >&2; exit 3"}, "out\n", "err\n", 3},
		"environment":        {api.ExecRequest{Command: `echo "$A"`, Env: map[string]string{"A": "b c"}}, "b c\n", "", 0},
		"stdin":              {api.ExecRequest{Command: "tr a-z A-Z", Stdin: pando.Stdin([]byte("hello"))}, "HELLO", "", 0},
		"no stdin":           {api.ExecRequest{Command: "cat"}, "", "", 0},
		"default user":       {api.ExecRequest{Command: "id -u; pwd"}, "1000\n/home/agent\n", "", 0},
		"root":               {api.ExecRequest{Command: "id -u", LinuxUser: new("root")}, "0\n", "", 0},
		"here document":      {api.ExecRequest{Command: "cat <<X\na\nX\n"}, "a\n", "", 0},
		"exec in command":    {api.ExecRequest{Command: "exec sh -c 'exit 4'"}, "", "", 4},
		"set -e":             {api.ExecRequest{Command: "set -e; false; echo no"}, "", "", 1},
		"killed by signal":   {api.ExecRequest{Command: "kill -9 $$"}, "", "", 137},
		"a background child": {api.ExecRequest{Command: "sleep 1000 >/dev/null 2>&1 & echo started"}, "started\n", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			res := exec(c.request)
			if res.Stdout != c.stdout || res.Stderr != c.stderr || res.StatusCode == nil || *res.StatusCode != c.code {
				t.Errorf("got %+v, want %q, %q and code %d", res, c.stdout, c.stderr, c.code)
			}
		})
	}
}

func TestExecTimeoutKillsTheGroup(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	patience := int64(500)
	res, err := l.Client.VMs.Exec(t.Context(), v.ID, api.ExecRequest{
		Command: "sleep 4242 & sh -c 'trap \"\" TERM; sleep 4243; sleep 4244' & echo begun; wait", TimeoutMs: &patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != nil || !res.TimedOut || res.Stdout != "begun\n" {
		t.Errorf("got %+v", res)
	}
	if left := l.Run(v.ID, "ps | grep 'sleep 424[234]' | grep -v grep || true"); left != "" {
		t.Errorf("processes outlived the timeout: %s", left)
	}
}

func TestConcurrentCommands(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	outputs := make(chan string, 100)
	errs := make(chan error, 100)
	for range 100 {
		go func() {
			res, err := l.Client.VMs.Exec(t.Context(), v.ID, api.ExecRequest{Command: "echo $$"})
			outputs <- res.Stdout
			errs <- err
		}()
	}
	pids := map[string]bool{}
	for range 100 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
		pids[<-outputs] = true
	}
	if len(pids) != 100 {
		t.Errorf("100 commands had %d different shells", len(pids))
	}
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	l.Run(v.ID, "echo disk > /disk; echo memory > /dev/shm/memory")
	ctx := t.Context()
	step := func(name string, act func() (api.VM, error), want api.State) {
		t.Helper()
		got, err := act()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.State != want {
			t.Fatalf("after %s the vm is %s, want %s", name, got.State, want)
		}
	}
	step("pause", func() (api.VM, error) { return l.Client.VMs.Pause(ctx, v.ID) }, api.StatePaused)
	if p := l.Processes(); len(p) != 0 {
		t.Errorf("a paused vm has processes %v", p)
	}
	step("start", func() (api.VM, error) { return l.Client.VMs.Start(ctx, v.ID) }, api.StateRunning)
	if got := l.Run(v.ID, "cat /disk /dev/shm/memory"); got != "disk\nmemory\n" {
		t.Errorf("after the resume the files hold %q", got)
	}
	step("stop", func() (api.VM, error) { return l.Client.VMs.Stop(ctx, v.ID) }, api.StateStopped)
	step("boot", func() (api.VM, error) { return l.Client.VMs.Start(ctx, v.ID) }, api.StateRunning)
	if got := l.Run(v.ID, "cat /disk; ls /dev/shm"); got != "disk\n" {
		t.Errorf("after the boot the files hold %q", got)
	}
}

func TestGuestPowerOffAndReboot(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	l.Run(v.ID, "echo kept > /disk; echo lost > /dev/shm/memory; sync")
	before := l.Run(v.ID, "cat /proc/sys/kernel/random/boot_id")
	l.Run(v.ID, "(sleep 1; reboot -f) >/dev/null 2>&1 &")
	await(t, "the reboot", func() bool {
		res, err := l.Client.VMs.Exec(t.Context(), v.ID, api.ExecRequest{Command: "cat /proc/sys/kernel/random/boot_id"})
		return err == nil && res.Stdout != "" && res.Stdout != before
	})
	if got := l.Run(v.ID, "cat /disk; ls /dev/shm"); got != "kept\n" {
		t.Errorf("after the reboot the files hold %q", got)
	}
	l.Run(v.ID, "(sleep 1; poweroff -f) >/dev/null 2>&1 &")
	stopped := awaitState(t, l, v.ID, api.StateStopped)
	if !strings.Contains(stopped.StateReason, "powered off") {
		t.Errorf("the reason is %q", stopped.StateReason)
	}
}

func TestKilledQEMUIsReported(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	if _, err := l.Client.VMs.Update(t.Context(), v.ID, api.UpdateVMRequest{AutomaticRestart: new(false)}); err != nil {
		t.Fatal(err)
	}
	l.Run(v.ID, "echo kept > /disk; sync")
	kill(t, l.QEMU(v.ID))
	stopped := awaitState(t, l, v.ID, api.StateStopped)
	if !strings.Contains(stopped.StateReason, "signal 9") {
		t.Errorf("the reason is %q", stopped.StateReason)
	}
	_, err := l.Client.VMs.Exec(t.Context(), v.ID, api.ExecRequest{Command: "true"})
	wantError(t, err, api.CodeConflict, api.ReasonWrongState)
	if _, err := l.Client.VMs.Start(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	if got := l.Run(v.ID, "cat /disk"); got != "kept\n" {
		t.Errorf("after the crash the disk holds %q", got)
	}
}

//go:fix inline
func wantError(t *testing.T, err error, code api.Code, reason api.Reason) *api.Error {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) {
		t.Fatalf("error is %v, want %s", err, code)
	}
	if e.Code != code || e.Reason != reason || e.Message == "" {
		t.Fatalf("error is %+v, want code %s and reason %q", e, code, reason)
	}
	return e
}

// await polls until done; the test's own deadline ends it.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func awaitState(t *testing.T, l *testlab.Lab, id string, want api.State) api.VM {
	t.Helper()
	var v api.VM
	await(t, string(want), func() bool {
		var err error
		if v, err = l.Client.VMs.Get(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return v.State == want
	})
	return v
}
