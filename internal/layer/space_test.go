package layer_test

import (
	"errors"
	"math"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/layer"
)

func checkDiskFull(t *testing.T, err error, needed int64) {
	t.Helper()
	f := fault.As(err)
	if f == nil || f.Code != api.CodeConflict || f.Reason != api.ReasonDiskFull {
		t.Fatalf("got %v", err)
	}
	if f.Needed != needed || f.Available < 0 || f.Available >= 1<<50 || f.Remedy == "" {
		t.Errorf("needed %d, available %d, remedy %q", f.Needed, f.Available, f.Remedy)
	}
}

func TestReserve(t *testing.T) {
	t.Parallel()
	s := open(t)
	if err := s.Reserve(1); err != nil {
		t.Error(err)
	}
	checkDiskFull(t, s.Reserve(math.MaxInt64), math.MaxInt64)
}

func TestFullLeavesOtherErrorsAlone(t *testing.T) {
	t.Parallel()
	s := open(t)
	if err := s.Full(1, nil); err != nil {
		t.Error(err)
	}
	if err := s.Full(1, unix.EIO); !errors.Is(err, unix.EIO) || fault.As(err) != nil {
		t.Errorf("got %v", err)
	}
}

func TestWritingToFullDisk(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	s, err := layer.Open(filepath.Join(mountTmpfs(t, "256k"), "layers"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Create(layer.KindMemory)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.File().Write(make([]byte, 1<<20))
	checkDiskFull(t, s.Full(1<<20, err), 1<<20)
	source := file(t, t.TempDir(), "big", string(make([]byte, 1<<20)))
	err = s.Link(source, layer.Layer{ID: layer.NewID(), Kind: layer.KindDisk, Bytes: 1 << 20})
	if f := fault.As(err); f == nil || f.Reason != api.ReasonDiskFull {
		t.Errorf("Link to a full disk: %v", err)
	}
	if err := d.Discard(); err != nil {
		t.Error(err)
	}
}
