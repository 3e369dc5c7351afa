package jail_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pandovm/pando/internal/jail"
)

const (
	testUID = 64123
	testGID = 64124
)

// shell is a script that a static shell runs in a jail.
type shell struct {
	script  string
	mounts  []jail.Mount
	limits  jail.Limits
	cgroup  string
	devices []string
}

// run returns what the script printed, after it has ended.
func (s shell) run(t *testing.T, j *jail.Jail) string {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	p, err := j.Start(t.Context(), jail.Spec{
		Argv: []string{"/bin/busybox", "sh", "-c", s.script}, Env: []string{"PATH=/bin:/usr/bin"},
		UID: testUID, GID: testGID, Mounts: s.mounts, Limits: s.limits, Cgroup: s.cgroup, Devices: s.devices,
		Stdout: write, Stderr: write,
	})
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.WaitExit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !exit.Known {
		t.Errorf("exit of a child = %v, want a known one", exit)
	}
	return string(out)
}

func newJail(t *testing.T) *jail.Jail {
	t.Helper()
	launcher, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cgroups, err := jail.DetectCgroups()
	if err != nil {
		t.Fatal(err)
	}
	return jail.New(launcher, cgroups)
}

func TestProgramSeesOnlyWhatItWasGiven(t *testing.T) {
	t.Parallel()
	given := t.TempDir()
	other := t.TempDir()
	for _, dir := range []string{given, other} {
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte("content of "+dir), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := shell{
		script: `echo root: $(busybox ls -A /); cat "` + given + `/file"; echo; cat "` + other + `/file" /etc/shadow /etc/passwd /proc/self/status; busybox ls /sys /etc; busybox id; busybox hostname; busybox ifconfig -a`,
		mounts: []jail.Mount{{Source: given, Target: given}},
	}.run(t, newJail(t))
	t.Log(out)
}

func BenchmarkStart(b *testing.B) {
	launcher, _ := os.Executable()
	cgroups, _ := jail.DetectCgroups()
	j := jail.New(launcher, cgroups)
	var total time.Duration
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprintf("bench-%d", i)
		t0 := time.Now()
		p, err := j.Start(context.Background(), jail.Spec{Argv: []string{"/bin/busybox", "sleep", "100"}, UID: testUID, GID: testGID, Cgroup: name})
		total += time.Since(t0)
		if err != nil {
			b.Fatal(err)
		}
		_ = p.Kill()
		_ = p.Wait(context.Background())
		if err := j.Remove(name); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(total.Microseconds())/float64(b.N)/1000, "ms/start")
	_ = strings.TrimSpace
}
