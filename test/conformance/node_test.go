// Package conformance runs the suite that the fake node passes on the real one.
package conformance

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pandovm/pando/internal/jail"
	"github.com/pandovm/pando/internal/memory"
	"github.com/pandovm/pando/internal/node"
	"github.com/pandovm/pando/internal/qemu"
	"github.com/pandovm/pando/internal/testlab"
	"github.com/pandovm/pando/internal/vm/vmtest"
)

func TestRealNode(t *testing.T) {
	t.Parallel()
	dir := testlab.DataFolder(t)
	host, err := qemu.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	groups, err := jail.DetectCgroups()
	if err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(dir, "lib")
	if err := os.Mkdir(lib, 0o755); err != nil {
		t.Fatal(err)
	}
	library, err := memory.InstallLibrary(lib)
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Open(t.Context(), node.Config{
		Dir: filepath.Join(dir, "data"), Host: host, Jail: jail.New(testlab.Binary(t), groups), Library: library,
		FirstUID: 1_700_000_000, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := n.Import(t.Context(), testlab.ImageFolder(t, testlab.Busybox), "sh-busybox"); err != nil {
		t.Fatal(err)
	}
	vmtest.Conformance(t, n, "sh-busybox")
}
