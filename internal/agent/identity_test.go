package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/internal/agent/sysfile"
	"github.com/pandovm/pando/internal/link"
)

// tree makes files (name to content) under a new root; a content of "/" makes a
// folder.
func tree(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if content == "/" {
			path = filepath.Join(path, "x")
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if content == "/" {
			continue
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// listing returns "mode content" of all files in a folder.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // a folder
		}
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name()] = fmt.Sprintf("%o %s", info.Mode().Perm(), b)
	}
	return got
}

func TestRenameInHosts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, after string }{
		"empty":            {"", "127.0.1.1\tnew\n"},
		"no line":          {"127.0.0.1 localhost\n", "127.0.0.1 localhost\n127.0.1.1\tnew\n"},
		"no last newline":  {"127.0.0.1 localhost", "127.0.0.1 localhost\n127.0.1.1\tnew\n"},
		"in its place":     {"127.0.1.1 old.example old\n::1 ip6\n", "127.0.1.1\tnew\n::1 ip6\n"},
		"twice":            {"127.0.1.1 a\n127.0.1.1\tb\n", "127.0.1.1\tnew\n"},
		"longer addresses": {"127.0.1.10 other\n127.0.1.1 a\n", "127.0.1.10 other\n127.0.1.1\tnew\n"},
		"comment":          {"# 127.0.1.1 old\n", "# 127.0.1.1 old\n127.0.1.1\tnew\n"},
	} {
		if got := renameInHosts([]byte(c.before), "new"); got != c.after {
			t.Errorf("%s: %q, want %q", name, got, c.after)
		}
	}
}

func TestMachineID(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"etc/machine-id": "old\n", "var/lib/dbus/machine-id": "old\n"})
	m := Machine{Root: root}
	if err := m.writeMachineID("new"); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"machine-id": "444 new\n"}
	if diff := cmp.Diff(want, listing(t, root+"/etc")); diff != "" {
		t.Error(diff)
	}
	if got := listing(t, root+"/var/lib/dbus")["machine-id"]; got != "644 new\n" {
		t.Errorf("dbus has %q", got)
	}
}

func TestMachineIDLeavesLinksAlone(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"etc": "/", "var/lib/dbus": "/"})
	dbus := root + "/var/lib/dbus/machine-id"
	if err := os.Symlink("/etc/machine-id", dbus); err != nil {
		t.Fatal(err)
	}
	m := Machine{Root: root}
	if err := m.writeMachineID("new"); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(dbus); err != nil || target != "/etc/machine-id" {
		t.Errorf("the link leads to %q, %v", target, err)
	}
}

func TestHostKeys(t *testing.T) {
	t.Parallel()
	keys := []link.HostKey{
		{Type: "ed25519", Private: "private 1", Public: "public 1"},
		{Type: "ecdsa", Private: "private 2", Public: "public 2"},
	}
	root := tree(t, map[string]string{
		"etc/ssh/ssh_host_rsa_key": "old", "etc/ssh/ssh_host_rsa_key.pub": "old",
		"etc/ssh/ssh_host_ecdsa_key": "old", "etc/ssh/sshd_config": "kept",
	})
	m := Machine{Root: root}
	if err := m.writeHostKeys(keys); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"ssh_host_ed25519_key": "600 private 1", "ssh_host_ed25519_key.pub": "644 public 1",
		"ssh_host_ecdsa_key": "600 private 2", "ssh_host_ecdsa_key.pub": "644 public 2",
		"sshd_config": "600 kept",
	}
	if diff := cmp.Diff(want, listing(t, root+"/etc/ssh")); diff != "" {
		t.Error(diff)
	}
	without := Machine{Root: tree(t, map[string]string{"etc": "/"})}
	if err := without.writeHostKeys(keys); err != nil {
		t.Errorf("a machine without ssh: %v", err)
	}
	if err := m.writeHostKeys([]link.HostKey{{Type: "../../x"}}); err == nil {
		t.Error("a type that leads elsewhere was accepted")
	}
}

// A running sshd is told, and nobody else whose pid the file happens to have.
func TestReloadSSH(t *testing.T) {
	t.Parallel()
	victim := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	pid := fmt.Sprint(victim.Process.Pid)
	m := Machine{Root: tree(t, map[string]string{"run/sshd.pid": pid + "\n", "proc/" + pid + "/comm": "bash\n"})}
	m.reloadSSH() // must not signal
	m = Machine{Root: tree(t, map[string]string{"run/sshd.pid": pid + "\n", "proc/" + pid + "/comm": "sshd\n"})}
	if err := victim.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a process that is no sshd was ended: %v", err)
	}
	m.reloadSSH()
	_ = victim.Wait()
	if ws, ok := victim.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGHUP {
		t.Errorf("sshd ended with %v, want SIGHUP", victim.ProcessState)
	}
	for _, text := range []string{"", "x", "1", "0", "-5", "99999999"} {
		m := Machine{Root: tree(t, map[string]string{"run/sshd.pid": text})}
		m.reloadSSH()
	}
}

func TestReplaceFileLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"dir/file": "old", "dir/folder": "/"})
	if err := sysfile.Replace(root+"/dir/file", "new", 0o640); err != nil {
		t.Fatal(err)
	}
	if err := sysfile.Replace(root+"/dir/folder", "x", 0o640); err == nil {
		t.Error("a folder was replaced")
	}
	if err := sysfile.Replace(root+"/absent/file", "x", 0o640); err == nil {
		t.Error("a file in no folder was written")
	}
	if diff := cmp.Diff(map[string]string{"file": "640 new"}, listing(t, root+"/dir")); diff != "" {
		t.Error(diff)
	}
}

// The parts that change the kernel's own state are tried in namespaces of their
// own, in a copy of the test binary.
func TestIdentityInNamespaces(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestSetIdentity$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespaces+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUTS | syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS,
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestSetIdentity") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestSetIdentity does something only in the process that TestIdentityInNamespaces
// starts.
func TestSetIdentity(t *testing.T) { //nolint:paralleltest // has a process of its own
	if os.Getenv(inNamespaces) == "" {
		return
	}
	root := tree(t, map[string]string{"etc": "/", "etc/ssh": "/", "run": "/", "proc/sys/kernel/random/boot_id": "kernel's\n"})
	m := Machine{Root: root}
	for _, n := range []string{"1", "2"} {
		id := &link.Identity{
			Hostname: "vm-" + n, MachineID: "machine" + n, BootID: "boot" + n,
			SSHHostKeys: []link.HostKey{{Type: "ed25519", Private: "p" + n, Public: "q" + n}},
		}
		if err := m.SetIdentity(id); err != nil {
			t.Fatal(err)
		}
		if name, err := os.Hostname(); err != nil || name != "vm-"+n {
			t.Errorf("hostname is %q, %v", name, err)
		}
		for file, want := range map[string]string{
			"etc/hostname": "vm-" + n, "etc/hosts": "127.0.1.1\tvm-" + n, "etc/machine-id": "machine" + n,
			"etc/ssh/ssh_host_ed25519_key": "p" + n, "proc/sys/kernel/random/boot_id": "boot" + n,
		} {
			b, err := os.ReadFile(filepath.Join(root, file))
			if got := strings.TrimSpace(string(b)); err != nil || got != want {
				t.Errorf("%s has %q, %v, want %q", file, got, err, want)
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if n := strings.Count(string(mounts), root); err != nil || n != 1 {
		t.Errorf("%d mounts after two identities, %v", n, err)
	}
	if err := syscall.Unmount(root+"/proc/sys/kernel/random/boot_id", 0); err != nil {
		t.Error(err)
	}
}

func TestPartsOfAnIdentity(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"etc": "/"})
	m := Machine{Root: root}
	if err := m.SetIdentity(&link.Identity{MachineID: "only"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"machine-id": "444 only\n"}, listing(t, root+"/etc")); diff != "" {
		t.Error(diff)
	}
}
