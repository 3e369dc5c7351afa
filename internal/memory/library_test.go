package memory_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/memory"
)

const mib = 1 << 20

func TestInstallLibrary(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "lib")
	first, err := memory.InstallLibrary(dir)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(first)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.Truncate(first, 10); err != nil {
		t.Fatal(err)
	}
	again, err := memory.InstallLibrary(dir)
	if err != nil || again != first {
		t.Errorf("%q, %v", again, err)
	}
	if repaired, err := os.Stat(first); err != nil || repaired.Size() != info.Size() {
		t.Errorf("a torn library was not written again: %v, %v", repaired, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestSharedFileIsNeverWritten writes through the shared mapping and looks at
// the file behind it.
func TestSharedFileIsNeverWritten(t *testing.T) {
	t.Parallel()
	_, dir := newStore(t)
	v := newVictim(t, dir, 4*mib)
	v.fill(0, 4*mib, 1)
	ram, err := filepath.Glob(filepath.Join(dir, "vm-*", "ram"))
	if err != nil || len(ram) != 1 {
		t.Fatalf("%v, %v", ram, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(ram[0], &st); err != nil || st.Blocks != 0 {
		t.Errorf("the RAM file has %d blocks, %v", st.Blocks, err)
	}
}

func TestExecIsDenied(t *testing.T) {
	t.Parallel()
	_, dir := newStore(t)
	v := newVictim(t, dir, mib)
	for _, how := range []string{"execve", "execveat"} {
		if got := v.say("exec %s", how); got != "Operation not permitted" {
			t.Errorf("%s: %s", how, got)
		}
	}
}

func TestSecondMappingIsRefused(t *testing.T) {
	t.Parallel()
	_, dir := newStore(t)
	v := newVictim(t, dir, mib)
	if got := v.say("again"); got != "Device or resource busy" {
		t.Errorf("answered %q", got)
	}
}

func TestUnmappedRegionIsLeftAlone(t *testing.T) {
	t.Parallel()
	store, dir := newStore(t)
	v := newVictim(t, dir, mib)
	v.sayOK("unmap")
	if _, err := v.control().Fork(t.Context(), mib); err == nil {
		t.Error("Fork did not fail")
	}
	if err := v.control().Lay(t.Context(), memory.Map{Size: mib}, opener(store)); err == nil {
		t.Error("Lay did not fail")
	}
}

// TestDiscard proves that discarded RAM reads as zero, live and in captures,
// whether it was a layer's or not.
func TestDiscard(t *testing.T) {
	t.Parallel()
	for name, advice := range map[string]int{"DONTNEED": 4, "FREE": 8, "REMOVE": 9} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, dir := newStore(t)
			root := newTwin(t, startVictim, dir, "root", 4*mib)
			put := func(w *twin, offset, length int64, seed uint64) {
				w.fill(offset, length, seed)
				modelFill(w.model[offset:offset+length], seed)
			}
			put(root, 0, mib, 1)
			put(root, 2*mib, mib, 2)
			m, _ := root.capture(t, store, "root")
			child := restore(t, startVictim, dir, "child", store, m, root.model)
			put(child, mib, mib, 3)
			// From inside one extent over anonymous memory into the next.
			v := child.machine.(*victim)
			v.sayOK("advise %d %d %d", mib/2, 2*mib, advice)
			clear(child.model[mib/2 : 5*mib/2])
			child.compare(t)
			m, _ = child.capture(t, store, "child")
			restore(t, startVictim, dir, "grandchild", store, m, child.model).compare(t)
			if got := v.say("advise 1 4096 %d", advice); got != "Invalid argument" {
				t.Errorf("an unaligned range: %s", got)
			}
		})
	}
}

// TestAdviceThatWouldBreakCaptures is swallowed: DONTFORK above all.
func TestAdviceThatWouldBreakCaptures(t *testing.T) {
	t.Parallel()
	store, dir := newStore(t)
	w := newTwin(t, startVictim, dir, "root", 4*mib)
	w.fill(0, 4*mib, 7)
	modelFill(w.model, 7)
	for _, advice := range []int{unix.MADV_DONTFORK, unix.MADV_HUGEPAGE, unix.MADV_MERGEABLE, unix.MADV_WIPEONFORK} {
		w.machine.(*victim).sayOK("advise 0 %d %d", 4*mib, advice)
	}
	m, _ := w.capture(t, store, "root")
	restore(t, startVictim, dir, "child", store, m, w.model).compare(t)
}

func TestEnvironmentMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env, ram, _ := libraryEnv(t, dir, mib)
	for _, c := range []struct{ name, sock, says string }{
		{"a path that is too long", filepath.Join(dir, strings.Repeat("x", 120)), "longer than 107 bytes"},
		{"a folder that is missing", filepath.Join(dir, "missing", "sock"), "No such file or directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), testTools().victim, fmt.Sprint(mib))
			cmd.Env = append(slices.Clip(env), memory.LibraryEnv(testTools().library, ram, "", c.sock)...)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.says) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestPlainProcessIsLeftAlone loads the library without its environment.
func TestPlainProcessIsLeftAlone(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "exec /bin/echo fine")
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+testTools().library)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "fine\n" {
		t.Errorf("%v: %q", err, out)
	}
}

// jailed makes a command run as VMs do: without /proc, and not as root.
func jailed(cmd *exec.Cmd, dir string) {
	user := ""
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() == 0 {
		user = "chown -R 65534:65534 " + dir + " && exec setpriv --reuid=65534 --regid=65534 --clear-groups "
	} else {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	var preload []string
	rest := cmd.Env[:0:0]
	for _, e := range cmd.Env {
		// The shell itself shall not be denied its execve.
		if strings.HasPrefix(e, "LD_PRELOAD=") || strings.HasPrefix(e, "PANDO_") {
			preload = append(preload, e)
			continue
		}
		rest = append(rest, e)
	}
	script := "mount --make-rprivate / && mount -t tmpfs none /proc && " + user + "env " + strings.Join(preload, " ") + ` "$@"`
	cmd.Env = rest
	cmd.Args = append([]string{"sh", "-c", script, "sh"}, cmd.Args...)
	cmd.Path = "/bin/sh"
}

// TestInJail forks QEMU without /proc, as another user, with QEMU's sandbox.
func TestInJail(t *testing.T) {
	t.Parallel()
	// Other users have to get here.
	dir, err := os.MkdirTemp("", "pando-jail-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(testTools().library), 0o755); err != nil {
		t.Fatal(err)
	}
	store, _ := newStore(t)
	start := func(t testing.TB, dir string, size int64) machine {
		t.Helper()
		return startQEMUAs(t, dir, size, jailed)
	}
	root := newTwin(t, start, dir, "root", 16*mib)
	root.fill(2*mib, mib, 5)
	modelFill(root.model[2*mib:3*mib], 5)
	m, _ := root.capture(t, store, "root")
	child := restore(t, start, dir, "child", store, m, root.model)
	child.compare(t)
	if os.Geteuid() == 0 {
		var st unix.Stat_t
		if err := unix.Stat(fmt.Sprintf("/proc/%d", child.control().PID()), &st); err != nil || st.Uid != 65534 {
			t.Errorf("QEMU runs as %d, %v", st.Uid, err)
		}
	}
}

func TestUnique(t *testing.T) {
	t.Parallel()
	_, dir := newStore(t)
	v := newVictim(t, dir, 16*mib)
	before, err := memory.Unique(v.pid())
	if err != nil {
		t.Fatal(err)
	}
	v.fill(0, 8*mib, 1)
	after, err := memory.Unique(v.pid())
	if err != nil {
		t.Fatal(err)
	}
	if grown := after - before; grown < 7*mib || grown > 9*mib {
		t.Errorf("8 MiB were written, the process grew by %d bytes", grown)
	}
	if _, err := memory.Unique(1 << 30); err == nil {
		t.Error("a process that does not exist uses memory")
	}
}
