package compat

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func unmarshal(text string, into any) error { return json.Unmarshal([]byte(text), into) }

// Both groups of commands that name snapshots.
func (f *freestyle) testSnapshots(t *testing.T) {
	v := f.create(t, "--slug", "origin")
	for _, group := range [][]string{{"snapshot"}, {"vm", "snapshot"}} {
		do := func(args ...string) []string { return append(slices.Clone(group), args...) }
		var made snapshotMade
		f.json(t, &made, do("create", "origin", "--slug", "kept", "--display-name", "Kept one")...)
		if s := made.Snapshot; s.ID != made.SnapshotID || s.Slug != "kept" || s.DisplayName != "Kept one" || s.SourceVMID != v.ID {
			t.Errorf("made %+v", made)
		}
		f.fails(t, "`kept` is already used by "+made.SnapshotID, do("create", "origin", "--slug", "kept")...)
		var second snapshotMade
		f.json(t, &second, do("create", "origin", "--slug", "kept", "--replace-slug")...)
		f.ok(t, do("get", "kept")...).has(t, second.SnapshotID, "kept", "Public:     no", v.ID)
		f.ok(t, do("list")...).has(t, "ID", "SLUG", "NAME", "PUBLIC", "SOURCE VM", "CREATED", made.SnapshotID, "Kept one")
		var page struct {
			Snapshots  []snapshotRecord
			TotalCount int
		}
		f.json(t, &page, do("list", "--source-vm-id", v.ID, "--limit", "1", "--offset", "1")...)
		if len(page.Snapshots) != 1 || page.Snapshots[0].ID != made.SnapshotID || page.TotalCount != 2 {
			t.Errorf("the second of two is %+v", page)
		}
		f.ok(t, do("update", made.SnapshotID, "--display-name", "Older")...)
		f.fails(t, "Pass --replace-slug", do("update", made.SnapshotID, "--slug", "kept")...)
		f.ok(t, do("update", made.SnapshotID, "--slug", "kept", "--replace-slug")...).has(t, "kept", "Older")
		f.ok(t, do("delete", "kept")...).has(t, "Snapshot kept deleted.")
		f.ok(t, do("delete", second.SnapshotID)...)
		f.fails(t, "NOT_FOUND", do("get", made.SnapshotID)...)
	}
	f.ok(t, "vm", "delete", "origin")
}

// Snapshots that the command builds: it makes a VM, sets it up, captures it and
// deletes it.
func (f *freestyle) testSnapshotCreate(t *testing.T) {
	base := []string{"--base", "freestyle/busybox", "--output", "json"}
	before := f.vms(t)
	script := filepath.Join(f.home, "setup.sh")
	write(t, script, "echo from-script > /tmp/made\necho progress\n")

	build := func(args ...string) snapshotRecord {
		t.Helper()
		var made snapshotMade
		r := f.ok(t, args...)
		if err := unmarshal(r.stdout[max(0, strings.Index(r.stdout, "{")):], &made); err != nil {
			t.Fatalf("%v: %s", err, r)
		}
		return made.Snapshot
	}
	scripted := build(append([]string{"snapshot", "create", "--script", script, "--slug", "scripted", "--no-internet"}, base...)...)
	commanded := build(append(append([]string{"snapshot"}, base...), "--", "sh", "-c", "echo from-command > /tmp/made")...)
	write(t, script, "#!/bin/sh\necho from-interpreter > /tmp/made\n")
	interpreted := build(append([]string{"snapshot", "create", "--script", script, "--linux-user", "root"}, base...)...)
	if after := f.vms(t); !slices.Equal(before, after) {
		t.Errorf("VMs before %v and after %v", before, after)
	}
	for id, want := range map[string]string{scripted.ID: "from-script\n", commanded.ID: "from-command\n", interpreted.ID: "from-interpreter\n"} {
		var v vmRecord
		f.json(t, &v, "vm", "create", "--no-ssh", "--snapshot-id", id)
		r := f.ok(t, "vm", "exec", v.ID, "--linux-user", "root", "--", "sh", "-c", "cat /tmp/made; ls /tmp | grep -c freestyle || true")
		if r.stdout != want+"0\n" {
			t.Errorf("want %q and no script: %s", want, r)
		}
		f.ok(t, "vm", "delete", v.ID)
		f.ok(t, "snapshot", "delete", id)
	}
	f.testSetupOfExisting(t, script)
	f.testSnapshotFailures(t, script)
}

// The set-up of a VM that is there already.
func (f *freestyle) testSetupOfExisting(t *testing.T, script string) {
	t.Helper()
	v := f.create(t, "--slug", "there")
	for _, args := range [][]string{
		{"snapshot", "create", "there", "--script", script, "--linux-user", "root"},
		{"vm", "snapshot", "create", "there", "--script", script, "--linux-user", "root"},
		{"vm", "snapshot", "create", v.ID, "--", "true"},
	} {
		var made snapshotMade
		r := f.ok(t, append([]string{"--output", "json"}, args...)...)
		if err := unmarshal(r.stdout, &made); err != nil || made.Snapshot.SourceVMID != v.ID {
			t.Errorf("%v: %s", err, r)
		}
		f.ok(t, "snapshot", "delete", made.SnapshotID)
	}
	f.ok(t, "vm", "exec", "there", "--linux-user", "root", "--", "cat", "/tmp/made").has(t, "from-interpreter")
	f.fails(t, "--base only applies", "snapshot", "create", "there", "--base", "x")
	f.ok(t, "vm", "delete", "there")
}

func (f *freestyle) testSnapshotFailures(t *testing.T, script string) {
	t.Helper()
	before := f.vms(t)
	write(t, script, "exit 9\n")
	r := f.wants(t, 9, "snapshot", "create", "--script", script, "--base", "freestyle/busybox", "--slug", "failed")
	if !strings.Contains(r.stderr, "no snapshot taken") {
		t.Errorf("a script that failed: %s", r)
	}
	f.fails(t, "NOT_FOUND", "snapshot", "get", "failed")
	f.fails(t, "needs a terminal", "snapshot", "create", "--base", "freestyle/busybox")
	if after := f.vms(t); !slices.Equal(before, after) {
		t.Errorf("VMs before %v and after %v", before, after)
	}

	write(t, script, "true\n")
	r = f.ok(t, "snapshot", "create", "--keep-vm", "--script", script, "--base", "freestyle/busybox", "--slug", "with-vm")
	var left []string
	for _, id := range f.vms(t) {
		if !slices.Contains(before, id) {
			left = append(left, id)
		}
	}
	if len(left) != 1 || !strings.Contains(r.stderr, "Kept "+left[0]) {
		t.Fatalf("VMs %v are left: %s", left, r)
	}
	f.ok(t, "vm", "delete", left[0])
	f.ok(t, "snapshot", "delete", "with-vm")
}
