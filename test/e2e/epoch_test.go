package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
)

// guestClock asks the guest for its wall clock and returns how far it is off,
// at most: the time that asking took is counted against the guest.
func guestClock(t *testing.T, l *testlab.Lab, vm string) time.Duration {
	t.Helper()
	before := time.Now()
	// Busybox's date knows no fraction of a second: the modification time of a
	// new file has one.
	out := l.Run(vm, "touch /dev/shm/now; stat -c %y /dev/shm/now")
	after := time.Now()
	at, err := time.Parse("2006-01-02 15:04:05.999999999 -0700", strings.TrimSpace(out))
	if err != nil {
		at, err = time.Parse("2006-01-02 15:04:05.999999999", strings.TrimSpace(out))
	}
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case at.Before(before):
		return before.Sub(at)
	case at.After(after):
		return at.Sub(after)
	}
	return 0
}

// The first command after a pause sees the right time, and the pause did not
// pass in the guest's monotonic clock.
func TestClockAfterAPause(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	uptime := func(id string) float64 {
		t.Helper()
		text, _, _ := strings.Cut(l.Run(id, "cat /proc/uptime"), " ")
		up, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return up
	}
	was := uptime(v.ID)
	if _, err := l.Client.VMs.Pause(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	const asleep = 20 * time.Second
	time.Sleep(asleep)
	if _, err := l.Client.VMs.Start(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	if off := guestClock(t, l, v.ID); off > 100*time.Millisecond {
		t.Errorf("after a pause of %s the clock is off by %s", asleep, off)
	}
	if passed := uptime(v.ID) - was; passed > asleep.Seconds()/2 {
		t.Errorf("the pause passed in the guest: uptime rose by %.1f s", passed)
	}
	for _, c := range l.Fork(v.ID, 2) {
		if off := guestClock(t, l, c.ID); off > 100*time.Millisecond {
			t.Errorf("the clock of a fork is off by %s", off)
		}
	}
}

const whoAmI = "hostname; cat /etc/hostname /etc/machine-id /proc/sys/kernel/random/boot_id"

func TestForksHaveAnIdentityOfTheirOwn(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	source := l.Create(testlab.Busybox)
	seen := map[string]string{}
	for _, v := range append(l.Fork(source.ID, 2), source, l.Create(testlab.Busybox)) {
		lines := strings.Fields(l.Run(v.ID, whoAmI))
		if len(lines) != 4 || lines[0] != lines[1] {
			t.Fatalf("%s says it is %q", v.ID, lines)
		}
		for _, line := range lines[1:] {
			if other := seen[line]; other != "" {
				t.Errorf("%s and %s share %s", v.ID, other, line)
			}
			seen[line] = v.ID
		}
	}
	one := 1
	res, err := l.Client.VMs.Fork(t.Context(), source.ID, api.ForkVMRequest{Count: &one, Identity: api.IdentityKeep})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := l.Run(res.Forks[0].VM.ID, whoAmI), l.Run(source.ID, whoAmI); got != want {
		t.Errorf("a fork that keeps the identity says %q, its source %q", got, want)
	}
}

// Written before each of 20 pauses, in memory, on disk with and without sync:
// nothing is ever lost, and the same guest keeps its identity.
func TestTwentyPauses(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	identity := l.Run(v.ID, whoAmI)
	for i := range 20 {
		l.Run(v.ID, fmt.Sprintf("echo %d > /dev/shm/mark-%d; echo %d > /synced-%d; sync; echo %d > /unsynced-%d", i, i, i, i, i, i))
		if _, err := l.Client.VMs.Pause(t.Context(), v.ID); err != nil {
			t.Fatalf("pause %d: %v", i, err)
		}
		if _, err := l.Client.VMs.Start(t.Context(), v.ID); err != nil {
			t.Fatalf("start %d: %v", i, err)
		}
	}
	for i := range 20 {
		want := fmt.Sprintf("%d\n%d\n%d\n", i, i, i)
		if got := l.Run(v.ID, fmt.Sprintf("cat /dev/shm/mark-%d /synced-%d /unsynced-%d", i, i, i)); got != want {
			t.Errorf("mark %d reads %q", i, got)
		}
	}
	if got := l.Run(v.ID, whoAmI); got != identity {
		t.Errorf("the identity changed from %q to %q", identity, got)
	}
	l.Run(v.ID, "echo 3 > /proc/sys/vm/drop_caches; cat /synced-* /unsynced-* > /dev/null")
	got, err := l.Client.VMs.Get(t.Context(), v.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.Generation != 21 {
		t.Errorf("after 20 resumes the generation is %d", got.Generation)
	}
}
