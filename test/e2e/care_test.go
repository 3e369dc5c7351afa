package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
	pando "github.com/pandovm/pando/sdk"
)

// commandsGroup finds the cgroup of all commands, whatever the guest's init.
const commandsGroup = `cd /sys/fs/cgroup/commands.slice/run 2>/dev/null || cd /sys/fs/cgroup/pando-commands/run`

// outcome runs a command as user, the default one if it is empty, and returns what
// became of it.
func outcome(t *testing.T, l *testlab.Lab, vm, user, command string) api.ExecResponse {
	t.Helper()
	patience := int64(4 * time.Minute / time.Millisecond)
	r := api.ExecRequest{Command: command, TimeoutMs: &patience}
	if user != "" {
		r.LinuxUser = &user
	}
	res, err := l.Client.VMs.Exec(t.Context(), vm, r)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return res
}

// wantAnswer checks that the VM answers and that its agent has not been
// replaced by another process.
func wantAnswer(t *testing.T, l *testlab.Lab, vm, agent string) {
	t.Helper()
	if got := l.Run(vm, "pidof pando-agent"); got != agent {
		t.Errorf("the agent is process %q, was %q", got, agent)
	}
}

// killCommands ends everything that earlier commands have left running.
func killCommands(t *testing.T, l *testlab.Lab, vm string) {
	t.Helper()
	const own = `own=$(sed 's,.*/,,' /proc/self/cgroup)`
	l.Run(vm, commandsGroup+`; `+own+`; for g in [0-9]*; do [ "$g" = "$own" ] || echo 1 >"$g/cgroup.kill"; done`)
}

func TestForkBomb(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	agent := l.Run(v.ID, "pidof pando-agent")
	for _, user := range []string{"", "root"} {
		outcome(t, l, v.ID, user, "b() { b | b & }; b")
		for range 5 {
			wantAnswer(t, l, v.ID, agent)
		}
		// Each user still gets commands of its own, beside the bomb.
		for _, other := range []string{"", "root"} {
			if r := outcome(t, l, v.ID, other, "echo here"); r.Stdout != "here\n" {
				t.Errorf("beside the bomb of %q, %q gets %+v", user, other, r)
			}
		}
		killCommands(t, l, v.ID)
		wantAnswer(t, l, v.ID, agent)
	}
	const left = `; for g in [0-9]*; do cat $g/pids.current; done | awk '{ n += $1 } END { print n }'`
	if n, err := strconv.Atoi(strings.TrimSpace(l.Run(v.ID, commandsGroup+left))); err != nil || n > 10 {
		t.Errorf("%d processes are left of the bombs, %v", n, err)
	}
}

// hog takes memory until it is stopped.
const hog = `awk 'BEGIN { while (1) a[i++] = sprintf("%1000d", i) }'`

func TestMemoryHog(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	agent := l.Run(v.ID, "pidof pando-agent")
	for _, user := range []string{"", "root"} {
		r := outcome(t, l, v.ID, user, "exec "+hog)
		if r.StatusCode == nil || *r.StatusCode != 137 || !r.OOMKilled || r.OOMProcess != "awk" {
			t.Errorf("a hog of %q ends with %+v", user, r)
		}
		wantAnswer(t, l, v.ID, agent)
	}
	// The shell outlives what it started, and goes on.
	r := outcome(t, l, v.ID, "", hog+"; echo $?")
	if r.StatusCode == nil || *r.StatusCode != 0 || r.Stdout != "137\n" || !r.OOMKilled || r.OOMProcess != "awk" {
		t.Errorf("a shell with a hog ends with %+v", r)
	}
	if r := outcome(t, l, v.ID, "", "true"); r.OOMKilled || r.OOMProcess != "" {
		t.Errorf("the command after a hog ends with %+v", r)
	}
	// Several hogs together take what all commands may have.
	outcome(t, l, v.ID, "", "for i in 1 2 3; do "+hog+" & done >/dev/null 2>&1")
	for range 5 {
		wantAnswer(t, l, v.ID, agent)
	}
	killCommands(t, l, v.ID)
}

func TestProcessorHogs(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	agent := l.Run(v.ID, "pidof pando-agent")
	outcome(t, l, v.ID, "", "for i in 1 2 3 4 5 6 7 8; do while :; do :; done & done >/dev/null 2>&1")
	for range 5 {
		wantAnswer(t, l, v.ID, agent)
	}
	killCommands(t, l, v.ID)
}

func TestDescriptorsRunOut(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	agent := l.Run(v.ID, "pidof pando-agent")
	// One file by many names, each of them held open; ten programs of that kind.
	const open = `awk 'BEGIN { f = "/dev/null"; while ((getline line < f) >= 0) { n++; sub("/dev", "/dev/.", f) } print n; system("sleep 1000") }'`
	outcome(t, l, v.ID, "", "for i in 1 2 3 4 5 6 7 8 9 10; do "+open+" & done >/tmp/opened 2>&1")
	l.Run(v.ID, "until [ $(grep -c ^[0-9] /tmp/opened) -eq 10 ]; do sleep 0.2; done")
	wantAnswer(t, l, v.ID, agent)
	if r := outcome(t, l, v.ID, "", "echo here; cat /etc/hostname >/dev/null"); r.Stdout != "here\n" || *r.StatusCode != 0 {
		t.Errorf("beside open files: %+v", r)
	}
	killCommands(t, l, v.ID)
}

// A guest whose disk is full is still paused, resumed and forked, and forks are
// told apart: there is no room for a new file, but for new content of the old.
func TestGuestDiskFull(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	l.Run(v.ID, "n=512; while [ $n -gt 0 ]; do fallocate -l ${n}M /fill$n || true; n=$((n / 2)); done 2>/dev/null; cat /dev/zero >/fill 2>/dev/null; sync; ! cp /bin/busybox /more 2>/dev/null")
	child := l.Fork(v.ID, 1)[0]
	seen := map[string]bool{}
	for _, id := range []string{v.ID, child.ID} {
		for s := range strings.FieldsSeq(l.Run(id, "cat /etc/hostname /proc/sys/kernel/random/boot_id")) {
			if seen[s] {
				t.Errorf("source and child share %s", s)
			}
			seen[s] = true
		}
	}
	if _, err := l.Client.VMs.Pause(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Client.VMs.Start(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	l.Run(v.ID, "rm /fill*; cp /bin/busybox /more")
}

// maxAgent bounds the agent's memory, in KiB.
const maxAgent = 32 << 10

func TestHundredCommands(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			want := strings.Repeat(strconv.Itoa(i), 100) + "\n"
			r := api.ExecRequest{Command: fmt.Sprintf("cat; echo %d >&2; exit %d", i, i), Stdin: pando.Stdin([]byte(want)), TimeoutMs: new(int64(240000))}
			res, err := l.Client.VMs.Exec(t.Context(), v.ID, r)
			if err != nil {
				t.Errorf("command %d: %v", i, err)
				return
			}
			if res.Stdout != want || res.Stderr != strconv.Itoa(i)+"\n" || res.StatusCode == nil || *res.StatusCode != i {
				t.Errorf("command %d gives %+v", i, res)
			}
		})
	}
	wg.Wait()
	peak := strings.Fields(l.Run(v.ID, "grep VmHWM /proc/$(pidof pando-agent)/status"))
	t.Logf("the agent's peak: %v", peak)
	if n, err := strconv.Atoi(peak[1]); err != nil || n > maxAgent {
		t.Errorf("the agent used %v, want at most %d kB", peak, maxAgent)
	}
}

// makeOrphans leaves processes behind in all the ways there are, and waits until none
// of them is a zombie.
const makeOrphans = `
for i in 1 2 3 4 5 6 7 8 9 10; do
	(sleep 0.1 &)
	(setsid sleep 0.1 &)
	sh -c 'sh -c "sleep 0.1 & sleep 0.1 & exit" & exit'
	sleep 0.1 &
done
exec >/dev/null 2>&1
kill -9 $$`

func TestNoZombies(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	for _, image := range []string{testlab.Busybox, testlab.Debian} {
		v := l.Create(image)
		for _, user := range []string{"", "root"} {
			outcome(t, l, v.ID, user, makeOrphans)
			timeout := int64(100)
			if user == "" {
				user = "agent"
			}
			if _, err := l.Client.VMs.Exec(t.Context(), v.ID, api.ExecRequest{
				Command: "sleep 1000 & setsid sleep 1000 & sleep 1000", LinuxUser: &user, TimeoutMs: &timeout,
			}); err != nil {
				t.Fatal(err)
			}
		}
		const zombies = `grep -l "^State:.Z" /proc/[0-9]*/status 2>/dev/null`
		l.Run(v.ID, "until [ -z \"$("+zombies+")\" ]; do sleep 0.2; done")
		if left := l.Run(v.ID, "pgrep sleep || true"); left != "" {
			t.Errorf("%s: processes %q are left of a command that ran out of time", image, left)
		}
	}
}
