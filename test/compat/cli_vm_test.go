package compat

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The whole command line for VMs, snapshots and files.
func TestCLI(t *testing.T) {
	t.Parallel()
	f := newFreestyle(t)
	t.Run("smoke", f.testSmoke)
	t.Run("vm", f.testVM)
	t.Run("slugs", f.testSlugs)
	t.Run("list", f.testList)
	t.Run("resize", f.testResize)
	t.Run("exec", f.testExec)
	t.Run("fs", f.testFS)
	t.Run("scp", f.testScp)
	t.Run("snapshots", f.testSnapshots)
	t.Run("snapshot create", f.testSnapshotCreate)
	t.Run("terminal", f.testTerminal)
	t.Run("questions", f.testQuestions)
	t.Run("mistakes", f.testMistakes)
	t.Run("every command", f.wantEverything)
}

// The sequence that the reference names, with the default image.
func (f *freestyle) testSmoke(t *testing.T) {
	f.ok(t, "vm", "create", "--no-ssh", "--slug", "t1", "--output", "json")
	f.ok(t, "vm", "exec", "t1", "--", "uname", "-a").has(t, "Linux")
	write(t, filepath.Join(f.home, "dir", "sub", "file"), "content")
	f.ok(t, "vm", "scp", "./dir", "t1:/srv").has(t, "1 file")
	f.ok(t, "vm", "fs", "stat", "t1", "/srv/dir", "--output", "json").has(t, `"isDirectory": true`)
	f.ok(t, "snapshot", "create", "t1", "--slug", "s1", "--output", "json")
	f.ok(t, "vm", "create", "--snapshot-id", "s1", "--no-ssh").has(t, "s1 (sh-", "running")
	f.wants(t, 7, "vm", "exec", "-it", "t1", "--", "sh", "-c", "exit 7")
	f.ok(t, "vm", "pause", "t1").has(t, "paused")
	f.ok(t, "vm", "start", "t1").has(t, "running")
	f.ok(t, "vm", "exec", "t1", "--", "cat", "/srv/dir/sub/file").has(t, "content")
	f.ok(t, "vm", "delete", "t1").has(t, "VM t1 deleted.")
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (f *freestyle) testVM(t *testing.T) {
	v := f.create(t, "--slug", "box", "--display-name", "The box", "--idle-timeout-seconds", "3600", "--ephemeral",
		"--metadata", "task=7", "--metadata", "team=blue", "--automatic-restart=false")
	if v.Slug != "box" || v.DisplayName != "The box" || *v.IdleTimeoutSeconds != 3600 || *v.AutoDeleteSeconds != 0 ||
		v.AutomaticRestart || v.Metadata["task"] != "7" || v.Metadata["team"] != "blue" || len(v.FirewallRules) != 1 {
		t.Errorf("made %+v", v)
	}
	if shut := f.create(t, "--no-internet"); len(shut.FirewallRules) != 0 || !shut.AutomaticRestart {
		t.Errorf("made %+v", shut)
	}
	f.ok(t, "vm", "get", "box").has(t, v.ID, "The box", "running", "1 vCPU", "ephemeral", "task=7, team=blue", "pando/busybox (sh-")
	var got vmRecord
	f.json(t, &got, "vm", "get", v.ID)
	if got.ID != v.ID || got.State != "running" {
		t.Errorf("got %+v", got)
	}
	f.ok(t, "vm", "update", "box", "--display-name", "Renamed", "--idle-timeout-seconds", "60", "--automatic-restart",
		"--metadata", "task=", "--metadata", "more=1").has(t, "Renamed", "60s", "team=blue")
	var updated vmRecord
	f.json(t, &updated, "vm", "update", "box", "--slug", "crate")
	if updated.Slug != "crate" || !updated.AutomaticRestart || len(updated.Metadata) != 2 || updated.Metadata["more"] != "1" {
		t.Errorf("updated to %+v", updated)
	}
	f.json(t, &got, "vm", "pause", "crate")
	if got.State != "paused" {
		t.Errorf("paused to %+v", got)
	}
	f.ok(t, "vm", "get", "crate").has(t, "paused")
	f.ok(t, "vm", "start", v.ID).has(t, "running")
	f.ok(t, "vm", "delete", v.ID).has(t, "VM "+v.ID+" deleted.")
	f.fails(t, "NOT_FOUND", "vm", "get", v.ID)
	if slices.Contains(f.vms(t), v.ID) {
		t.Error("a deleted VM is listed")
	}
}

func (f *freestyle) testSlugs(t *testing.T) {
	first := f.create(t, "--slug", "name")
	f.fails(t, "`name` is already used by "+first.ID, "vm", "create", "--no-ssh", "--snapshot-id", "freestyle/busybox", "--slug", "name")
	second := f.create(t, "--slug", "name", "--replace-slug")
	var got vmRecord
	f.json(t, &got, "vm", "get", "name")
	if got.ID != second.ID {
		t.Errorf("name is %s, want %s", got.ID, second.ID)
	}
	f.fails(t, "Pass --replace-slug", "vm", "update", first.ID, "--slug", "name")
	f.json(t, &got, "vm", "update", first.ID, "--slug", "name", "--replace-slug")
	if got.Slug != "name" {
		t.Errorf("updated to %+v", got)
	}
	f.ok(t, "vm", "delete", first.ID)
	f.ok(t, "vm", "delete", second.ID)
}

func (f *freestyle) testList(t *testing.T) {
	a := f.create(t, "--slug", "list-a", "--metadata", "set=x", "--metadata", "n=1")
	b := f.create(t, "--slug", "list-b", "--metadata", "set=x", "--metadata", "n=2")
	f.ok(t, "vm", "pause", "list-a")
	all := f.ok(t, "vm", "list", "--metadata", "set:x")
	all.has(t, "ID", "SLUG", "STATE", "CPU", "MEMORY", "DISK", "IP", "CREATED", a.ID, b.ID, "128 MiB", "2 VMs — 1 running, 1 paused")
	for want, args := range map[string][]string{
		a.ID: {"--state", "paused", "--metadata", "set:x"},
		b.ID: {"--slug", "list-b"},
	} {
		if r := f.ok(t, append([]string{"vm", "list"}, args...)...); !strings.Contains(r.stdout, want) || strings.Count(r.stdout, "vm-") != 1 {
			t.Errorf("want %s alone: %s", want, r)
		}
	}
	var page struct {
		VMs        []vmRecord
		TotalCount int
	}
	f.json(t, &page, "vm", "list", "--metadata", "set:x", "--snapshot-id", a.SnapshotID, "--limit", "1", "--offset", "1")
	if len(page.VMs) != 1 || page.VMs[0].ID != a.ID || page.TotalCount != 2 {
		t.Errorf("the second of two is %+v", page)
	}
	f.ok(t, "vm", "list", "--slug", "nobody").has(t, "No VMs.")
	f.ok(t, "vm", "delete", "list-a")
	f.ok(t, "vm", "delete", "list-b")
}

func (f *freestyle) testResize(t *testing.T) {
	v := f.create(t)
	f.ok(t, "vm", "resize", v.ID, "--cpu", "2", "--memory", "256", "--storage", "2048").has(t, "2 vCPU, 256 MiB memory, 2048 MB disk")
	f.fails(t, "BAD_REQUEST", "vm", "resize", v.ID, "--memory", "128")
	f.ok(t, "vm", "exec", v.ID, "--", "nproc").has(t, "2")
	f.ok(t, "vm", "delete", v.ID)
}

func (f *freestyle) testExec(t *testing.T) {
	v := f.create(t, "--slug", "exec")
	for name, c := range map[string]struct {
		args           []string
		stdout, stderr string
		code           int
	}{
		"streams and code": {[]string{"exec", "--", "sh", "-c", "echo out; echo err >&2; exit 9"}, "out\n", "err\n", 9},
		"words are kept":   {[]string{"exec", "--", "printf", "%s|", "a  b", "$HOME", `it's "so"`, ";"}, `a  b|$HOME|it's "so"|;|`, "", 0},
		"user":             {[]string{v.ID, "--linux-user", "root", "--", "id", "-u"}, "0\n", "", 0},
		"environment":      {[]string{"exec", "--env", "A=1 2", "--env", "B==", "--", "sh", "-c", `echo "$A$B"`}, "1 2=\n", "", 0},
		"no dashes":        {[]string{"exec", "hostname"}, "exec\n", "", 0},
		"not found":        {[]string{"exec", "--", "no-such-program"}, "", "", 127},
		"timeout":          {[]string{"exec", "--timeout-ms", "1000", "--", "sleep", "100"}, "", "", 1},
	} {
		r := f.wants(t, c.code, append([]string{"vm", "exec"}, c.args...)...)
		if r.stdout != c.stdout || c.code < 127 && c.stderr != "" && r.stderr != c.stderr {
			t.Errorf("%s: want %q and %q: %s", name, c.stdout, c.stderr, r)
		}
	}
	var result struct {
		Stdout, Stderr string
		StatusCode     *int
	}
	r := f.wants(t, 3, "--output", "json", "vm", "exec", "exec", "--", "sh", "-c", "echo out; exit 3")
	if err := unmarshal(r.stdout, &result); err != nil || result.Stdout != "out\n" || *result.StatusCode != 3 {
		t.Errorf("%v: %s", err, r)
	}
	f.wants(t, 5, "vm", "exec", "-i", "-t", "exec", "--linux-user", "root", "--", "sh", "-c", "exit 5")
	f.ok(t, "vm", "ssh", "exec", "--linux-user", "root", "--exec", "echo by-ssh; id -u").has(t, "by-ssh", "0")
	if r := f.run(t, "echo $((40+2))\nexit 6\n", "vm", "ssh", "exec"); r.code != 6 || !strings.Contains(r.stdout, "42") {
		t.Errorf("a shell that is typed to: code %d, %s", r.code, r)
	}
	f.fails(t, "--env isn't supported", "vm", "exec", "-t", "exec", "--env", "A=1", "--", "true")
	f.fails(t, "No command given", "vm", "exec", "exec")
	f.ok(t, "vm", "delete", "exec")
}

func (f *freestyle) testFS(t *testing.T) {
	v := f.create(t, "--slug", "files")
	content := bytes.Repeat([]byte{0, 1, 2, 255, '\n', '\r', 128}, 100_000)
	local := filepath.Join(f.home, "local")
	write(t, local, string(content))
	f.ok(t, "vm", "fs", "mkdir", "files", "/root/new/folder").has(t, "Created files:/root/new/folder")
	f.ok(t, "vm", "fs", "write", "files", "/root/new/folder/bytes", local).has(t, "Wrote")
	if r := f.ok(t, "vm", "fs", "read", "files", "/root/new/folder/bytes"); r.stdout != string(content) {
		t.Errorf("read %d bytes, want %d", len(r.stdout), len(content))
	}
	out := filepath.Join(f.home, "out")
	f.ok(t, "vm", "fs", "read", v.ID, "/root/new/folder/bytes", "--out", out)
	if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, content) {
		t.Errorf("read %d bytes into a file, want %d (%v)", len(got), len(content), err)
	}
	f.ok(t, "vm", "exec", "files", "--linux-user", "root", "--", "ln", "-s", "folder", "/root/new/link")
	f.ok(t, "vm", "fs", "ls", "files", "/root/new").has(t, "folder/\n", "link (symlink)\n")
	var entries []struct{ Name, Kind string }
	f.json(t, &entries, "vm", "fs", "ls", "files", "/root/new/folder")
	if len(entries) != 1 || entries[0].Name != "bytes" || entries[0].Kind != "file" {
		t.Errorf("listed %+v", entries)
	}
	user := strings.TrimSpace(f.ok(t, "vm", "exec", "files", "--", "id", "-un").stdout)
	f.ok(t, "vm", "fs", "stat", "files", "/root/new/folder/bytes").has(t, "file", "(700000 bytes)", "0600", user+":")
	f.ok(t, "vm", "fs", "rm", "files", "/root/new").has(t, "Removed files:/root/new")
	f.fails(t, "NOT_FOUND", "vm", "fs", "stat", "files", "/root/new")
	f.fails(t, "NOT_FOUND", "vm", "fs", "read", "files", "/root/new/folder/bytes")
	f.fails(t, "BAD_REQUEST", "vm", "fs", "ls", "files", "relative")
	f.ok(t, "vm", "delete", "files")
}

func (f *freestyle) testScp(t *testing.T) {
	f.create(t, "--slug", "copy")
	big := strings.Repeat("0123456789abcdef", 9<<16)
	for name, content := range map[string]string{"tree/a": "A", "tree/sub/b": "B", "tree/sub/deep/big": big, "one": "1"} {
		write(t, filepath.Join(f.home, name), content)
	}
	if err := os.MkdirAll(filepath.Join(f.home, "tree", "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.ok(t, "vm", "scp", "one", "copy:/root/named").has(t, "one -> copy:/root/named")
	f.ok(t, "vm", "scp", "one", "copy:/root").has(t, "one -> copy:/root/one")
	f.ok(t, "vm", "scp", "-r", "tree", "copy:/root/fresh").has(t, "3 files")
	f.ok(t, "vm", "scp", "tree", "copy:/root/fresh").has(t, "copy:/root/fresh/tree")
	f.ok(t, "vm", "exec", "copy", "--linux-user", "root", "--", "sh", "-c",
		"cat /root/named /root/one /root/fresh/a /root/fresh/sub/b /root/fresh/tree/a; ls -d /root/fresh/empty; wc -c < /root/fresh/sub/deep/big").
		has(t, "11ABA/root/fresh/empty\n9437184\n")
	f.ok(t, "vm", "scp", "copy:/root/fresh/sub/b", "back").has(t, "-> back")
	f.ok(t, "vm", "scp", "-r", "copy:/root/fresh", "came").has(t, "6 files")
	for name, want := range map[string]string{"back": "B", "came/a": "A", "came/sub/deep/big": big, "came/tree/sub/b": "B"} {
		if got, err := os.ReadFile(filepath.Join(f.home, name)); err != nil || string(got) != want {
			t.Errorf("%s came back with %d bytes, want %d (%v)", name, len(got), len(want), err)
		}
	}
	if _, err := os.Stat(filepath.Join(f.home, "came", "empty")); err != nil {
		t.Error(err)
	}
	f.fails(t, "NOT_FOUND", "vm", "scp", "copy:/root/nothing", "back")
	f.fails(t, "copies as root", "vm", "scp", "one", "copy+agent:/root/x")
	f.fails(t, "No such file", "vm", "scp", "nothing", "copy:/root/x")
	f.ok(t, "vm", "delete", "copy")
}
