package jail_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/jail"
)

const (
	testUID = 64123
	testGID = 64124
)

// folder makes one that the program's uid owns, with a file in it.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "file")} {
		if err := os.Chown(path, testUID, testGID); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFilesAreThoseGiven(t *testing.T) {
	t.Parallel()
	writable, readonly, hidden := folder(t), folder(t), folder(t)
	single := filepath.Join(folder(t), "file")
	elsewhere := "/some/where/else"
	s := look(t, newJail(t), func(spec *jail.Spec) {
		spec.Dir = writable
		spec.Mounts = append(spec.Mounts,
			jail.Mount{Source: writable, Target: writable, Writable: true},
			jail.Mount{Source: readonly, Target: readonly},
			jail.Mount{Source: single, Target: single},
			jail.Mount{Source: readonly, Target: elsewhere},
		)
	}, writable+"/file", writable, readonly+"/file", readonly, single, filepath.Dir(single), elsewhere+"/file",
		hidden+"/file", "/etc/shadow", "/etc/passwd", "/proc/self/status", "/sys", "/root", "/var", "/usr/bin/env", "/usr", "/", "/tmp", "/dev", "/etc")
	want := map[string]string{
		writable + "/file": "content", writable: "ok", readonly + "/file": "content", readonly: "ok",
		single: "content", filepath.Dir(single): "ok", elsewhere + "/file": "content",
		hidden + "/file": "ENOENT", "/etc/shadow": "ENOENT", "/etc/passwd": "ENOENT", "/proc/self/status": "ENOENT",
		"/sys": "ENOENT", "/root": "ENOENT", "/var": "ENOENT", "/usr/bin/env": "ok", "/usr": "ok",
		"/": "ok", "/tmp": "ok", "/dev": "ok", "/etc": "ok",
	}
	if diff := cmp.Diff(want, s.Read); diff != "" {
		t.Errorf("reads: %s", diff)
	}
	want = map[string]string{
		writable + "/file": "ok", writable: "ok", readonly + "/file": "EROFS", readonly: "EROFS",
		single: "EROFS", filepath.Dir(single): "EROFS", elsewhere + "/file": "EROFS",
		hidden + "/file": "ENOENT", "/etc/shadow": "ENOENT", "/etc/passwd": "ENOENT", "/proc/self/status": "ENOENT",
		"/sys": "ENOENT", "/root": "ENOENT", "/var": "ENOENT", "/usr/bin/env": "EACCES", "/usr": "EROFS",
		"/": "EROFS", "/tmp": "EROFS", "/dev": "EROFS", "/etc": "EROFS",
	}
	if diff := cmp.Diff(want, s.Written); diff != "" {
		t.Errorf("writes: %s", diff)
	}
	if s.Dir != writable {
		t.Errorf("working folder = %s, want %s", s.Dir, writable)
	}
	written := filepath.Join(writable, "written")
	var info unix.Stat_t
	if err := unix.Stat(written, &info); err != nil || info.Uid != testUID {
		t.Errorf("on the host, %s has uid %d, %v", written, info.Uid, err)
	}
	for _, name := range s.Root {
		if !slices.Contains([]string{"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "some", "tmp", "usr"}, name) {
			t.Errorf("the root has a %s", name)
		}
	}
}

func TestNoPrivilegeIsLeft(t *testing.T) {
	t.Parallel()
	for _, uid := range []int{testUID, 0} {
		t.Run(fmt.Sprint("uid ", uid), func(t *testing.T) {
			t.Parallel()
			s := look(t, newJail(t), func(spec *jail.Spec) { spec.UID, spec.Limits.Processes = uid, 77 }, "/etc/shadow")
			if got := [4]int{s.UID, s.EUID, s.GID, s.EGID}; got != [4]int{uid, uid, testGID, testGID} {
				t.Errorf("uid, euid, gid, egid = %v", got)
			}
			if len(s.Groups) > 0 {
				t.Errorf("groups = %v", s.Groups)
			}
			if s.Capabilities != [3]uint64{} || s.Bounding+s.Ambient > 0 {
				t.Errorf("capabilities = %x, %d bounding, %d ambient", s.Capabilities, s.Bounding, s.Ambient)
			}
			if !s.NoNewPrivs {
				t.Error("no_new_privs is not set")
			}
			if !s.NoHugePages {
				t.Error("huge pages are allowed")
			}
			if s.Gained == "ok" {
				t.Error("the program became root")
			}
			if diff := cmp.Diff([]int{0, 1, 2}, s.OpenFiles); diff != "" {
				t.Errorf("open files: %s", diff)
			}
			want := map[string]uint64{"core": 0, "nofile": 4096, "memlock": 8 << 20, "nproc": 77}
			if uid == 0 {
				want["nproc"] = s.Limits["nproc"]
			}
			if diff := cmp.Diff(want, s.Limits); diff != "" {
				t.Errorf("limits: %s", diff)
			}
		})
	}
}

func TestOtherDescriptorsOfTheDaemonStayOut(t *testing.T) {
	t.Parallel()
	leaked, err := unix.FcntlInt(0, unix.F_DUPFD, 100) // not close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leaked)
	s := look(t, newJail(t), nil)
	if diff := cmp.Diff([]int{0, 1, 2}, s.OpenFiles); diff != "" {
		t.Errorf("open files: %s", diff)
	}
}

func TestNamespacesAreItsOwn(t *testing.T) {
	t.Parallel()
	before, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	s := look(t, newJail(t), nil)
	if diff := cmp.Diff([]string{"lo loopback"}, s.Interfaces); diff != "" {
		t.Errorf("interfaces: %s", diff)
	}
	if s.Dialled != "ENETUNREACH" {
		t.Errorf("connect to loopback: %s", s.Dialled)
	}
	if s.Host != "pando" {
		t.Errorf("host name = %s", s.Host)
	}
	if s.Session != s.Process {
		t.Errorf("session %d of process %d", s.Session, s.Process)
	}
	if after, err := os.Hostname(); err != nil || after != before {
		t.Errorf("the host's name was %s and is %s, %v", before, after, err)
	}
}

func TestDevicesAreThoseGiven(t *testing.T) {
	t.Parallel()
	s := look(t, newJail(t), nil)
	want := map[string]string{"/dev/null": "ok", "/dev/urandom": "ok", "/dev/kvm": "ENOENT", "/dev/zero": "ENOENT", "/dev/full": "ENOENT"}
	if diff := cmp.Diff(want, s.Devices); diff != "" {
		t.Errorf("without devices: %s", diff)
	}
	s = look(t, newJail(t), func(spec *jail.Spec) { spec.Devices = []string{"/dev/zero", "/dev/full"} })
	want["/dev/zero"], want["/dev/full"] = "ok", "ok"
	if diff := cmp.Diff(want, s.Devices); diff != "" {
		t.Errorf("with devices: %s", diff)
	}
}

func TestEnvironmentIsExactlyTheGiven(t *testing.T) {
	t.Parallel()
	env := []string{"A=1", "EMPTY=", "EQUALS=a=b"}
	s := look(t, newJail(t), func(spec *jail.Spec) { spec.Env = env })
	if diff := cmp.Diff(env, s.Env); diff != "" {
		t.Error(diff)
	}
}

func TestExitIsReported(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]jail.Exit{
		"exit 0":     {Known: true},
		"exit 7":     {Known: true, Code: 7},
		"kill -9 $$": {Known: true, Signal: unix.SIGKILL},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			_, exit := runSpec(t, newJail(t), jail.Spec{Argv: []string{"/bin/busybox", "sh", "-c", script}, UID: testUID, GID: testGID})
			if exit != want {
				t.Errorf("exit = %+v (%v), want %+v", exit, exit, want)
			}
		})
	}
}

func TestStartSaysWhichStepFailed(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	for name, c := range map[string]struct {
		spec  jail.Spec
		step  string
		cause error
	}{
		"no program":   {jail.Spec{Argv: []string{"/usr/bin/no-such-program"}}, "execute program", unix.ENOENT},
		"no source":    {jail.Spec{Argv: []string{"/bin/busybox"}, Mounts: []jail.Mount{{Source: "/no/such", Target: "/x"}}}, "build root", unix.ENOENT},
		"no dir":       {jail.Spec{Argv: []string{"/bin/busybox"}, Dir: "/no/such"}, "build root", unix.ENOENT},
		"not a device": {jail.Spec{Argv: []string{"/bin/busybox"}, Devices: []string{"/dev/shm"}}, "build root", unix.ENODEV},
		"no device":    {jail.Spec{Argv: []string{"/bin/busybox"}, Devices: []string{"/dev/no-such"}}, "build root", unix.ENOENT},
		"not allowed":  {jail.Spec{Argv: []string{dir + "/file"}, UID: testUID, Mounts: []jail.Mount{{Source: dir, Target: dir}}}, "execute program", unix.EACCES},
		"below ro":     {jail.Spec{Argv: []string{"/bin/busybox"}, Mounts: []jail.Mount{{Source: dir, Target: "/usr/no/such"}}}, "build root", unix.EROFS},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := newJail(t).Start(t.Context(), c.spec)
			var failed *jail.StepError
			if !errors.As(err, &failed) || failed.Step != c.step || !errors.Is(err, c.cause) {
				t.Errorf("err = %v, want %s in %s", err, c.cause, c.step)
			}
		})
	}
}

func TestStartFailsWithoutALauncher(t *testing.T) {
	t.Parallel()
	spec := jail.Spec{Argv: []string{"/bin/busybox"}}
	if _, err := jail.New("/no/such/binary", jail.Cgroups{}).Start(t.Context(), spec); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v, want not exist", err)
	}
	// A launcher that ends without a word must not pass for a started program.
	if _, err := jail.New("/bin/true", jail.Cgroups{}).Start(t.Context(), spec); err == nil {
		t.Error("no error from a launcher that is none")
	}
}

func TestStartGivesUpWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	tired := errors.New("tired")
	cancel(tired)
	if _, err := newJail(t).Start(ctx, jail.Spec{Argv: []string{"/bin/busybox", "sleep", "100"}}); !errors.Is(err, tired) {
		t.Errorf("err = %v, want the cause", err)
	}
}

func TestStartLeavesNothingOpen(t *testing.T) { //nolint:paralleltest // counts the files of this process
	j := newJail(t)
	start := func(program string) {
		p, err := j.Start(t.Context(), jail.Spec{Argv: []string{program, "true"}, UID: testUID, GID: testGID})
		if err == nil {
			err = p.Wait(t.Context())
		}
		if (err != nil) != (program == "/no/such") {
			t.Fatal(err)
		}
	}
	start("/bin/busybox") // the runtime's poller opens its own on first use
	before := len(listDir(t, "/proc/self/fd"))
	for range 10 {
		start("/bin/busybox")
		start("/no/such")
	}
	if after := len(listDir(t, "/proc/self/fd")); after != before {
		t.Errorf("%d open files before, %d after", before, after)
	}
}

func listDir(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestWithoutRoot(t *testing.T) {
	t.Parallel()
	const uid = 64777
	lines := asOther(t, uid, jail.Spec{
		Argv: []string{"", probeArg, "/etc/passwd", "/proc/self/status", "/usr"}, Devices: []string{"/dev/zero"},
		UID: testUID, GID: testGID, Cgroup: "without-root", Limits: jail.Limits{MemoryBytes: 64 << 20, CPUs: 1, Processes: 50},
	})
	var s sight
	if err := json.Unmarshal([]byte(lines[0]), &s); err != nil {
		t.Fatalf("%v: %q", err, lines)
	}
	if s.Capabilities != [3]uint64{} || s.Bounding+s.Ambient > 0 || !s.NoNewPrivs {
		t.Errorf("privileges: %+v", s)
	}
	if level := jail.Level(lines[1]); level == jail.LevelBare && namespacesForbidden(t) {
		return
	} else if level != jail.LevelUser {
		t.Fatalf("level = %s on a host with user namespaces", level)
	}
	if s.Read["/etc/passwd"] != "ENOENT" || s.Read["/proc/self/status"] != "ENOENT" || s.Written["/usr"] != "EROFS" {
		t.Errorf("read %v, written %v", s.Read, s.Written)
	}
	if s.Devices["/dev/zero"] != "ok" || s.Devices["/dev/full"] != "ENOENT" {
		t.Errorf("devices: %v", s.Devices)
	}
	if diff := cmp.Diff([]string{"lo loopback"}, s.Interfaces); diff != "" {
		t.Errorf("interfaces: %s", diff)
	}
}

// namespacesForbidden reports whether this host keeps user namespaces from other
// uids than root.
func namespacesForbidden(t *testing.T) bool {
	t.Helper()
	for file, forbidden := range map[string]string{
		"user/max_user_namespaces": "0", "kernel/unprivileged_userns_clone": "0", "kernel/apparmor_restrict_unprivileged_userns": "1",
	} {
		if text, err := os.ReadFile(filepath.Join("/proc/sys", file)); err == nil && strings.TrimSpace(string(text)) == forbidden {
			return true
		}
	}
	return false
}

func TestWithoutNamespaces(t *testing.T) {
	t.Parallel()
	lines := asOther(t, 64779, jail.Spec{
		Argv: []string{"", probeArg, "/etc/passwd"}, Env: []string{refuseNamespaces}, Dir: "/usr",
		UID: testUID, Cgroup: "without-namespaces", Limits: jail.Limits{Processes: 50},
	})
	var s sight
	if err := json.Unmarshal([]byte(lines[0]), &s); err != nil {
		t.Fatalf("%v: %q", err, lines)
	}
	if lines[1] != string(jail.LevelBare) {
		t.Errorf("level = %s", lines[1])
	}
	if s.UID != 64779 || s.Capabilities != [3]uint64{} || !s.NoNewPrivs || s.Limits["core"] != 0 || s.Session != s.Process {
		t.Errorf("privileges: %+v", s)
	}
	if s.Dir != "/usr" || s.Read["/etc/passwd"] != "ok" {
		t.Errorf("dir %s, read %v", s.Dir, s.Read)
	}
}

func TestMissingSourceIsNoReasonForLess(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "closed", "file")
	if err := os.Mkdir(filepath.Dir(secret), 0o700); err != nil {
		t.Fatal(err)
	}
	if out := failAsOther(t, 64778, jail.Spec{Argv: []string{"", probeArg}, Mounts: []jail.Mount{{Source: secret, Target: secret}}}); !strings.Contains(out, "build root") {
		t.Errorf("a daemon that may not open a mount's source said %q", out)
	}
}

// runDetached starts spec and waits for its end.
func runDetached(j *jail.Jail, spec jail.Spec) error {
	p, err := j.Start(context.Background(), spec)
	if err != nil {
		return err
	}
	exit, err := p.WaitExit(context.Background())
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("program %v", exit)
	}
	return err
}

func TestLauncherRefusesOtherOrders(t *testing.T) {
	t.Parallel()
	_, err := newJail(t).Start(t.Context(), jail.Spec{})
	if err == nil || !strings.Contains(err.Error(), "argv") {
		t.Errorf("err = %v", err)
	}
}

func BenchmarkStart(b *testing.B) {
	j := newJail(b)
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprint("bench-", i)
		p, err := j.Start(b.Context(), jail.Spec{
			Argv: []string{"/bin/busybox", "sleep", "100"}, UID: testUID, GID: testGID, Cgroup: name,
			Limits: jail.Limits{MemoryBytes: 1 << 30, CPUs: 2, Processes: 100},
		})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := errors.Join(p.Kill(), p.Wait(b.Context()), j.Remove(name)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
