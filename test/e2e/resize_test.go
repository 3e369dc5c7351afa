package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
)

// guestSize is what a guest itself sees.
type guestSize struct{ cpus, memoryMiB, diskMiB int }

func sizeIn(t *testing.T, l *testlab.Lab, vm string) guestSize {
	t.Helper()
	fields := strings.Fields(l.Run(vm, "nproc; awk '/^MemTotal/ {print int($2/1024)}' /proc/meminfo; df -m / | awk 'END {print $2}'"))
	numbers := make([]int, len(fields))
	for i, f := range fields {
		var err error
		if numbers[i], err = strconv.Atoi(f); err != nil {
			t.Fatalf("%s says %v", vm, fields)
		}
	}
	if len(numbers) != 3 {
		t.Fatalf("%s says %v", vm, fields)
	}
	return guestSize{numbers[0], numbers[1], numbers[2]}
}

func resize(t *testing.T, l *testlab.Lab, vm string, r api.ResizeVMRequest) api.VM {
	t.Helper()
	v, err := l.Client.VMs.Resize(t.Context(), vm, r)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// wantGuest checks that a guest has at least what was added to what it was.
func wantGuest(t *testing.T, l *testlab.Lab, vm, when string, want guestSize) {
	t.Helper()
	got := sizeIn(t, l, vm)
	if got.cpus != want.cpus || got.memoryMiB < want.memoryMiB || got.diskMiB < want.diskMiB {
		t.Errorf("%s: the guest sees %+v, want at least %+v", when, got, want)
	}
}

// A VM grows while it runs, and stays so wherever it goes.
func TestResize(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	was := sizeIn(t, l, v.ID)
	content := make([]byte, 1<<20)
	random := rand.New(rand.NewPCG(3, 4))
	for i := range content {
		content[i] = byte(random.Uint32())
	}
	l.RunInput(v.ID, "cat > /before", content[:1<<19])
	cpu, memory, storage := v.Resources.CPU+1, v.Resources.Memory+256, v.Resources.Storage+512
	got := resize(t, l, v.ID, api.ResizeVMRequest{CPU: &cpu, Memory: &memory, Storage: &storage})
	if want := (api.Resources{CPU: cpu, Memory: memory, Storage: storage}); got.Resources != want {
		t.Errorf("the resized vm has %+v, want %+v", got.Resources, want)
	}
	// A file system and a kernel keep some of what they get for themselves.
	want := guestSize{was.cpus + 1, was.memoryMiB + 240, was.diskMiB + 460}
	wantGuest(t, l, v.ID, "live", want)

	// More than the VM had before, in memory: some of it is in what was added.
	l.RunInput(v.ID, fmt.Sprintf("mount -o remount,size=%dm /dev/shm; cat > /dev/shm/unit", memory), content)
	l.Run(v.ID, "i=0; while [ $i -lt 150 ]; do (cat /dev/shm/unit; echo $i) > /dev/shm/part-$i; i=$((i+1)); done")
	parts := l.Run(v.ID, "cat /dev/shm/part-* | md5sum")
	before := sha256.Sum256(content[:1<<19])
	check := func(vm, when string) {
		t.Helper()
		wantGuest(t, l, vm, when, want)
		if sum, _, _ := strings.Cut(l.Run(vm, "echo 3 > /proc/sys/vm/drop_caches; sha256sum /before"), " "); sum != hex.EncodeToString(before[:]) {
			t.Errorf("%s: the file from before has changed", when)
		}
		if sum := l.Run(vm, "cat /dev/shm/part-* | md5sum"); sum != parts {
			t.Errorf("%s: the memory has changed", when)
		}
	}
	check(v.ID, "before anything")
	child := l.Fork(v.ID, 1)[0]
	if child.Resources != got.Resources {
		t.Errorf("the child has %+v", child.Resources)
	}
	l.Run(child.ID, "echo other > /dev/shm/part-0; echo other > /before")
	check(v.ID, "source after a fork")
	grandchild := l.Fork(child.ID, 1)[0]
	wantGuest(t, l, grandchild.ID, "grandchild", want)
	if text := l.Run(grandchild.ID, "cat /dev/shm/part-0 /before"); text != "other\nother\n" {
		t.Errorf("the grandchild reads %.40q", text)
	}
	for _, id := range []string{child.ID, grandchild.ID} {
		if err := l.Client.VMs.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	l.Restart(syscall.SIGKILL)
	check(v.ID, "after the daemon was killed")
	saved, err := l.Client.VMs.Snapshot(t.Context(), v.ID, api.CreateSnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	check(l.Create(saved.SnapshotID).ID, "created from a snapshot")

	// Asked for while it is paused, it is there when it wakes up.
	if _, err := l.Client.VMs.Pause(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	cpu, memory = cpu+1, memory+128
	resize(t, l, v.ID, api.ResizeVMRequest{CPU: &cpu, Memory: &memory})
	if _, err := l.Client.VMs.Start(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	want.cpus, want.memoryMiB = want.cpus+1, want.memoryMiB+120
	check(v.ID, "resumed")

	// And asked for while it is stopped, when it boots.
	if _, err := l.Client.VMs.Stop(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	cpu, memory = cpu+1, memory+64
	resize(t, l, v.ID, api.ResizeVMRequest{CPU: &cpu, Memory: &memory})
	if _, err := l.Client.VMs.Start(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	want.cpus, want.memoryMiB = want.cpus+1, want.memoryMiB+60
	wantGuest(t, l, v.ID, "booted", want)
}

// A guest that restarts itself has all that it was given.
func TestResizeSurvivesReboot(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	was := sizeIn(t, l, v.ID)
	cpu, memory := v.Resources.CPU+1, v.Resources.Memory+128
	resize(t, l, v.ID, api.ResizeVMRequest{CPU: &cpu, Memory: &memory})
	boot := l.Run(v.ID, "cat /proc/sys/kernel/random/boot_id")
	l.Run(v.ID, "(sleep 1; reboot -f) >/dev/null 2>&1 &")
	await(t, "the reboot", func() bool {
		res, err := l.Client.VMs.Exec(t.Context(), v.ID, api.ExecRequest{Command: "cat /proc/sys/kernel/random/boot_id"})
		return err == nil && res.Stdout != "" && res.Stdout != boot
	})
	wantGuest(t, l, v.ID, "rebooted", guestSize{was.cpus + 1, was.memoryMiB + 110, was.diskMiB})
	wantGuest(t, l, l.Fork(v.ID, 1)[0].ID, "child of a rebooted", guestSize{was.cpus + 1, was.memoryMiB + 110, was.diskMiB})
}

func TestResizeRefuses(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	stopped := l.Create(testlab.Busybox)
	if _, err := l.Client.VMs.Stop(t.Context(), stopped.ID); err != nil {
		t.Fatal(err)
	}
	r := v.Resources
	for name, c := range map[string]struct {
		vm      string
		request api.ResizeVMRequest
		code    api.Code
		reason  api.Reason
		field   string
	}{
		"fewer cpus":        {v.ID, api.ResizeVMRequest{CPU: new(r.CPU - 1)}, api.CodeBadRequest, "", "cpu"},
		"less memory":       {v.ID, api.ResizeVMRequest{Memory: new(r.Memory - 4)}, api.CodeBadRequest, "", "memory"},
		"a smaller disk":    {v.ID, api.ResizeVMRequest{Storage: new(r.Storage - 1)}, api.CodeBadRequest, "", "storage"},
		"too many cpus":     {v.ID, api.ResizeVMRequest{CPU: new(17)}, api.CodeBadRequest, "", "cpu"},
		"odd memory":        {v.ID, api.ResizeVMRequest{Memory: new(r.Memory + 1)}, api.CodeBadRequest, "", "memory"},
		"a stopped disk":    {stopped.ID, api.ResizeVMRequest{Storage: new(r.Storage + 1)}, api.CodeConflict, api.ReasonWrongState, ""},
		"the host's memory": {v.ID, api.ResizeVMRequest{Memory: new(64 << 10)}, api.CodeConflict, api.ReasonNoMemory, "memory"},
		"the host's disk":   {v.ID, api.ResizeVMRequest{Storage: new(8 << 20)}, api.CodeConflict, api.ReasonDiskFull, "storage"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := l.Client.VMs.Resize(t.Context(), c.vm, c.request)
			if e := wantError(t, err, c.code, c.reason); e.Field != c.field {
				t.Errorf("field is %q, want %q", e.Field, c.field)
			}
			if now, err := l.Client.VMs.Get(t.Context(), c.vm); err != nil || now.Resources != r {
				t.Errorf("it has %+v now (%v)", now.Resources, err)
			}
		})
	}
}
