package store_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/store"
	"github.com/pandovm/pando/internal/store/storetest"
	"github.com/pandovm/pando/internal/vm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, dir string, now func() time.Time) (storetest.Store, func()) {
		t.Helper()
		s := open(t, filepath.Join(dir, "pando.db"), now)
		return s, func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

func open(t *testing.T, path string, now func() time.Time) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), path, now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t *testing.T, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenStrangePath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "50% ?mode=ro&x #1 ä")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	closeStore(t, open(t, filepath.Join(dir, "pando.db"), time.Now))
	if _, err := os.Stat(filepath.Join(dir, "pando.db")); err != nil {
		t.Error(err)
	}
}

func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "pando.db"), time.Now)
	defer closeStore(t, s)
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 2 {
		t.Errorf("got %v, want the database and its log", files)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", f.Name(), info.Mode())
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(t *testing.T, path string)
		want  string
	}{
		"a newer schema": {func(t *testing.T, path string) {
			t.Helper()
			edit(t, path, `INSERT INTO migrations VALUES (99, 'future', '', 0)`)
		}, "use the newer pando"},
		"an edited step": {func(t *testing.T, path string) {
			t.Helper()
			edit(t, path, `UPDATE migrations SET sum = 'other'`)
		}, "another text"},
		"no database": {func(t *testing.T, path string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(strings.Repeat("not a database. ", 512)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a database"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "pando.db")
			closeStore(t, open(t, path, time.Now))
			c.spoil(t, path)
			if _, err := store.Open(t.Context(), path, time.Now); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestOpenMissingFolder(t *testing.T) {
	t.Parallel()
	if _, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "none", "pando.db"), time.Now); err == nil {
		t.Error("a database was opened in a folder that does not exist")
	}
}

// edit runs a statement on a database that no store has open.
func edit(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// TestFullDisk bounds the file's pages, which SQLite reports as it reports a
// disk without space.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "pando.db"), time.Now)
	defer closeStore(t, s)
	first := vm.VM{ID: "vm-1", State: api.StateRunning}
	if err := s.InsertVM(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := s.LimitPages(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	big := vm.VM{ID: "vm-2", State: api.StateRunning, DisplayName: strings.Repeat("x", 1<<20)}
	f := fault.As(s.InsertVM(t.Context(), big))
	if f == nil || f.Reason != api.ReasonDiskFull || f.Remedy == "" {
		t.Fatalf("got %v, want a fault with reason disk_full and a remedy", f)
	}
	if _, err := s.FindVM(t.Context(), "vm-1"); err != nil {
		t.Errorf("after the failure: %v", err)
	}
	if _, err := s.FindVM(t.Context(), "vm-2"); fault.As(err) == nil {
		t.Errorf("the failed insert left a record (%v)", err)
	}
}

// TestReadersDoNotWait holds a write open and reads meanwhile.
func TestReadersDoNotWait(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "pando.db"), time.Now)
	defer closeStore(t, s)
	if err := s.InsertVM(t.Context(), vm.VM{ID: "vm-1", State: api.StateRunning}); err != nil {
		t.Fatal(err)
	}
	_, err := s.UpdateVM(t.Context(), "vm-1", func(v *vm.VM) error {
		v.State = api.StatePaused
		seen, err := s.FindVM(t.Context(), "vm-1")
		if err == nil && seen.State != api.StateRunning {
			t.Errorf("a reader saw %s before the commit", seen.State)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestCancelledWriterWaits: a writer that waits for its turn gives up when its
// context ends, and the next one is not disturbed.
func TestCancelledWriterWaits(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "pando.db"), time.Now)
	defer closeStore(t, s)
	if err := s.InsertVM(t.Context(), vm.VM{ID: "vm-1", State: api.StateRunning}); err != nil {
		t.Fatal(err)
	}
	_, err := s.UpdateVM(t.Context(), "vm-1", func(*vm.VM) error {
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { failed <- s.DeleteVM(ctx, "vm-1") }()
		cancel()
		if err := <-failed; err == nil {
			t.Error("the second writer did not wait")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := s.DeleteVM(t.Context(), "vm-1"); err != nil {
		t.Error(err)
	}
}

// TestFirstSchema: records of the first schema get what later ones added.
func TestFirstSchema(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pando.db")
	text, err := os.ReadFile("migrations/0001_records.sql")
	if err != nil {
		t.Fatal(err)
	}
	edit(t, path, string(text))
	edit(t, path, `CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, sum TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT`)
	sum := sha256.Sum256(text)
	edit(t, path, `INSERT INTO migrations VALUES (1, 'migrations/0001_records.sql', '`+hex.EncodeToString(sum[:])+`', 0)`)
	for _, state := range []string{"running", "paused"} {
		edit(t, path, `INSERT INTO vms VALUES (NULL, 'vm-`+state+`', NULL, 'Old', '`+state+`', '', 1, 128, 1024, '', '', '', '', '[]', NULL, 1, 0, NULL, '{}', '', '', 5, 6)`)
	}
	edit(t, path, `INSERT INTO snapshots VALUES (NULL, 'sh-1', NULL, '', '', '', '', 0, 1, 128, 1024, '', 1, '[]', 0, NULL, '', 5, 6)`)
	s := open(t, path, time.Now)
	defer closeStore(t, s)
	for id, resting := range map[string]int64{"vm-running": 0, "vm-paused": 6} {
		v, err := s.FindVM(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if !v.AutomaticRestart || v.Timers != (vm.Timers{}) || len(v.Placement) > 0 || v.DisplayName != "Old" {
			t.Errorf("%s came out as %+v", id, v)
		}
		if resting == 0 && !v.RestingSince.IsZero() || resting > 0 && v.RestingSince.UnixNano() != resting {
			t.Errorf("%s does not run since %v", id, v.RestingSince)
		}
	}
	if r, err := s.FindSnapshot(t.Context(), "sh-1"); err != nil || r.AutoDelete != nil || r.TTL != nil {
		t.Errorf("the snapshot came out as %+v, %v", r, err)
	}
}
