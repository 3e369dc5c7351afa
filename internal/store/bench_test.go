package store_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/store"
	"github.com/pandovm/pando/internal/vm"
)

func benchStore(b *testing.B, records int) *store.Store {
	b.Helper()
	s, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "pando.db"), time.Now)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	for i := range records {
		if err := s.InsertVM(b.Context(), vm.VM{ID: fmt.Sprintf("vm-%d", i), State: api.StateRunning}); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

func BenchmarkUpdate(b *testing.B) {
	s := benchStore(b, 100)
	for b.Loop() {
		if _, err := s.UpdateVM(b.Context(), "vm-7", func(v *vm.VM) error { v.Generation++; return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	s := benchStore(b, 100)
	for b.Loop() {
		if _, err := s.FindVM(b.Context(), "vm-7"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkListPage(b *testing.B) {
	s := benchStore(b, 1000)
	for b.Loop() {
		if _, _, err := s.ListVMs(b.Context(), vm.Filter{Limit: 50}); err != nil {
			b.Fatal(err)
		}
	}
}
