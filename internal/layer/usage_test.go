package layer_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pandovm/pando/internal/layer"
)

// What goes with an owner is what nobody else holds.
func TestSole(t *testing.T) {
	t.Parallel()
	s, err := layer.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := func(size int) layer.ID {
		id := layer.NewID()
		if err := os.WriteFile(s.Path(id), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		return id
	}
	own, shared, gone := file(64<<10), file(128<<10), layer.NewID()
	s.Hold("a", own, shared, gone)
	s.Hold("b", shared)
	if n, err := s.Sole("a"); err != nil || n != 64<<10 {
		t.Errorf("a holds %d bytes alone (%v), want %d", n, err, 64<<10)
	}
	if n, err := s.Sole("b"); err != nil || n != 0 {
		t.Errorf("b holds %d bytes alone (%v)", n, err)
	}
	if err := s.Drop("a"); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sole("b"); err != nil || n != 128<<10 {
		t.Errorf("b holds %d bytes alone (%v), want %d", n, err, 128<<10)
	}
}

func TestAllocatedIgnoresHoles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sparse")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<30); err != nil {
		t.Fatal(err)
	}
	if n, err := layer.Allocated(path); err != nil || n <= 0 || n > 1<<20 {
		t.Errorf("a file with one byte and a hole takes %d (%v)", n, err)
	}
	if _, err := layer.Allocated(path + "-not"); err == nil {
		t.Error("a file that is not there takes something")
	}
}
