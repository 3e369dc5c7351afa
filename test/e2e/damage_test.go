package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
)

// snapshotFor makes a durable snapshot of a fresh VM and returns its id and
// the path of its manifest.
func snapshotFor(t *testing.T, l *testlab.Lab) (id, manifest string) {
	t.Helper()
	v := l.Create(testlab.Busybox)
	l.Run(v.ID, "dd if=/dev/urandom of=/dev/shm/ballast bs=1024 count=2048 2>/dev/null")
	res, err := l.Client.VMs.Snapshot(t.Context(), v.ID, api.CreateSnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the snapshot to be durable", func() bool {
		s, err := l.Client.Snapshots.Get(t.Context(), res.SnapshotID)
		return err == nil && s.Durable
	})
	return res.SnapshotID, filepath.Join(l.Data, "snapshots", res.SnapshotID+".json")
}

// ownLayer returns the path of the snapshot's own memory layer: the last one.
func ownLayer(t *testing.T, l *testlab.Lab, manifest string) string {
	t.Helper()
	data, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Body struct {
			Memory struct {
				Layers []struct {
					ID string `json:"id"`
				} `json:"layers"`
			} `json:"memory"`
		} `json:"body"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	layers := file.Body.Memory.Layers
	return filepath.Join(l.Data, "layers", layers[len(layers)-1].ID)
}

// Damaged files are noticed before anything starts, with an error that says
// what to do, and nothing is left of the attempt.
func TestDamagedSnapshots(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, layer, manifest string){
		"a layer with a flipped bit": func(t *testing.T, layer, _ string) {
			t.Helper()
			edit(t, layer, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
		},
		"a truncated layer": func(t *testing.T, layer, _ string) {
			t.Helper()
			edit(t, layer, func(b []byte) []byte { return b[:len(b)-4096] })
		},
		"a missing layer": func(t *testing.T, layer, _ string) {
			t.Helper()
			if err := os.Remove(layer); err != nil {
				t.Fatal(err)
			}
		},
		"a truncated manifest": func(t *testing.T, _, manifest string) {
			t.Helper()
			edit(t, manifest, func(b []byte) []byte { return b[:len(b)/2] })
		},
		"a changed manifest": func(t *testing.T, _, manifest string) {
			t.Helper()
			edit(t, manifest, func(b []byte) []byte { return bytes.Replace(b, []byte(`"cpus":1`), []byte(`"cpus":2`), 1) })
		},
		"an empty manifest": func(t *testing.T, _, manifest string) {
			t.Helper()
			edit(t, manifest, func([]byte) []byte { return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := testlab.New(t)
			id, manifest := snapshotFor(t, l)
			layer := ownLayer(t, l, manifest)
			l.Signal(syscall.SIGTERM)
			damage(t, layer, manifest)
			l.Start()
			before := len(l.Processes())
			_, err := l.Client.VMs.Create(t.Context(), api.CreateVMRequest{SnapshotID: &id, Firewall: &api.Firewall{}})
			e := wantError(t, err, api.CodeConflict, api.ReasonSnapshotCorrupt)
			if e.Remedy == "" {
				t.Errorf("error %+v has no remedy", e)
			}
			if now := len(l.Processes()); now != before {
				t.Errorf("%d processes, before the attempt %d", now, before)
			}
			// Which layers a damaged manifest needed nobody knows: they go at the
			// first start without it.
			if err := l.Client.Snapshots.Delete(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			l.Restart(syscall.SIGTERM)
		})
	}
}

// edit replaces a file, which is the way a read-only file can change.
func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", change(data), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// A disk too full to save a VM's memory: pause and snapshot say what they need
// and what there is, and the VM goes on.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	for d := filepath.Dir(dir); d != "/"; d = filepath.Dir(d) {
		allowPassage(t, d)
	}
	if err := syscall.Mount("pando-test", dir, "tmpfs", 0, "size=640m,mode=0711"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	l := testlab.NewIn(t, dir)
	v := l.Create(testlab.Busybox)
	l.Run(v.ID, "dd if=/dev/urandom of=/root/ballast bs=1024 count=40960 2>/dev/null")
	filler := filepath.Join(dir, "filler")
	fill(t, dir, filler, 80<<20)
	for name, call := range map[string]func() error{
		"pause": func() error { _, err := l.Client.VMs.Pause(t.Context(), v.ID); return err },
		"snapshot": func() error {
			_, err := l.Client.VMs.Snapshot(t.Context(), v.ID, api.CreateSnapshotRequest{})
			return err
		},
		"fork": func() error { _, err := l.Client.VMs.Fork(t.Context(), v.ID, api.ForkVMRequest{}); return err },
	} {
		e := wantError(t, call(), api.CodeConflict, api.ReasonDiskFull)
		if e.Needed <= e.Available || e.Available <= 0 || e.Remedy == "" {
			t.Errorf("%s on a full disk says %+v", name, e)
		}
		if got := l.Run(v.ID, "echo alive"); got != "alive\n" {
			t.Errorf("after the failed %s the vm says %q", name, got)
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Client.VMs.Pause(t.Context(), v.ID); err != nil {
		t.Errorf("pause with room: %v", err)
	}
}

// allowPassage lets other uids pass through a folder of the test's own.
func allowPassage(t *testing.T, dir string) {
	t.Helper()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(dir, os.TempDir()) || dir == os.TempDir() {
		return
	}
	if err := os.Chmod(dir, info.Mode().Perm()|0o011); err != nil {
		t.Fatal(err)
	}
}

// fill leaves only so many bytes free.
func fill(t *testing.T, dir, path string, leave int64) {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	chunk := make([]byte, 1<<20)
	for left := int64(st.Bavail)*st.Bsize - leave; left > 0; left -= int64(len(chunk)) {
		if _, err := f.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
}
