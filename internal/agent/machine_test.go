package agent

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Adding entropy harms no machine: this one gets some.
func TestReseed(t *testing.T) {
	t.Parallel()
	m := new(Machine)
	if err := m.Reseed([]byte("sixty-four bytes of entropy, more or less, as the host made them")); err != nil {
		t.Error(err)
	}
	if err := m.Reseed([]byte("short")); err == nil {
		t.Error("5 bytes of entropy were accepted")
	}
}

func TestMachineFacts(t *testing.T) {
	t.Parallel()
	m := new(Machine)
	want, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if got := m.KernelRelease(); err != nil || got != strings.TrimSpace(string(want)) {
		t.Errorf("kernel %q, want %q, %v", got, want, err)
	}
	if d := time.Since(m.Now()); d < 0 || d > time.Minute {
		t.Errorf("the clock is %v off", d)
	}
	if err := m.SetClock(time.Unix(-1, -1).Add(-1 << 62)); err == nil {
		t.Error("a time before 1970 was accepted")
	}
}

func TestSettledWithoutSystemd(t *testing.T) {
	t.Parallel()
	m := Machine{Root: t.TempDir()}
	if settled, state, failed, err := m.Settled(t.Context()); !settled || state != "running" || failed != nil || err != nil {
		t.Errorf("%v %q %v %v", settled, state, failed, err)
	}
}

// systemctl is played by scripts that print what the real one does.
func TestSettledWithSystemd(t *testing.T) {
	for name, c := range map[string]struct {
		script  string
		settled bool
		state   string
		failed  string
	}{
		"running":  {"echo running", true, "running", ""},
		"degraded": {"case $1 in is-*) echo degraded; exit 1;; esac; echo 'a.service loaded failed failed A'; echo 'b.mount loaded failed failed B'", true, "degraded", "a.service b.mount"},
		"starting": {"echo starting; exit 1", false, "starting", ""},
		"silent":   {"exit 1", false, "starting", ""},
		"stopping": {"echo stopping; exit 1", false, "stopping", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree(t, map[string]string{"run/systemd/system": "/", "bin/systemctl": "#!/bin/sh\n" + c.script + "\n"})
			if err := os.Chmod(root+"/bin/systemctl", 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", root+"/bin:/bin")
			m := Machine{Root: root}
			settled, state, failed, err := m.Settled(t.Context())
			if err != nil || settled != c.settled || state != c.state || strings.Join(failed, " ") != c.failed {
				t.Errorf("%v %q %v %v", settled, state, failed, err)
			}
			if err := m.Poweroff(t.Context()); err != nil {
				t.Errorf("power off: %v", err)
			}
		})
	}
}

func TestResideInMemory(t *testing.T) {
	t.Parallel()
	ResideInMemory() // nothing to see, but that it does no harm
}
