package vm_test

import (
	"testing"
	"time"

	"github.com/pandovm/pando/internal/vm"
)

func TestStats(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.create(t, vm.CreateParams{Slug: "one"})
	s, err := r.manager.Stats(t.Context(), "one")
	if err != nil || s.ID != v.ID || s.CPUTime != time.Second || s.MemoryUnique == 0 || s.Uptime() < 0 {
		t.Errorf("one uses %+v (%v)", s, err)
	}
	if _, err := r.manager.Pause(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	r.create(t, vm.CreateParams{Slug: "two"})
	all, err := r.manager.AllStats(t.Context())
	if err != nil || len(all) != 2 || all[0].Slug != "two" || all[1].MemoryUnique != 0 || all[1].DiskBytes == 0 || all[1].Uptime() != 0 {
		t.Errorf("all use %+v (%v)", all, err)
	}
	if _, err := r.manager.Stats(t.Context(), "nobody"); err == nil {
		t.Error("nobody uses something")
	}
}
