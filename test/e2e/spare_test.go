package e2e

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
)

// A VM that was kept ready is like any other: its identity is its own, its
// clock right, and it forks, pauses and outlives the daemon.
func TestSpares(t *testing.T) {
	t.Parallel()
	l := testlab.New(t, "--spares", "1")
	seen := map[string]bool{}
	check := func(v api.VM) {
		t.Helper()
		lines := strings.Fields(l.Run(v.ID, whoAmI+"; head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \\n'"))
		if len(lines) != 5 || lines[0] != lines[1] {
			t.Fatalf("%s says it is %q", v.ID, lines)
		}
		for _, line := range lines[1:] {
			if seen[line] {
				t.Errorf("%s shares %s with another vm", v.ID, line)
			}
			seen[line] = true
		}
		if off := guestClock(t, l, v.ID); off > 100*time.Millisecond {
			t.Errorf("the clock of %s is off by %s", v.ID, off)
		}
	}
	check(l.Create(testlab.Busybox))
	var v api.VM
	await(t, "a vm that was a spare", func() bool {
		if v.ID != "" {
			check(v)
		}
		v = l.Create(testlab.Busybox)
		return strings.HasPrefix(filepath.Base(l.Home(v.ID)), "spare-")
	})
	check(v)
	l.Run(v.ID, "echo kept > /dev/shm/mark; echo kept > /mark")
	l.Restart(syscall.SIGKILL)
	for _, c := range l.Fork(v.ID, 2) {
		check(c)
	}
	if _, err := l.Client.VMs.Pause(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	l.Restart(syscall.SIGTERM)
	if _, err := l.Client.VMs.Start(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	if got := l.Run(v.ID, "cat /dev/shm/mark /mark"); got != "kept\nkept\n" {
		t.Errorf("the marks read %q", got)
	}
	if err := l.Client.VMs.Delete(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	l.Create(testlab.Busybox)
	await(t, "another spare", func() bool { return len(l.Spares()) > 0 })
	l.Restart(syscall.SIGTERM)
	if left := l.Spares(); len(left) != 0 {
		t.Errorf("spares %v outlived an orderly end", left)
	}
}
