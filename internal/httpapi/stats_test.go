package httpapi_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/httpapi"
	"github.com/pandovm/pando/internal/vm"
)

var _ httpapi.Stats = (*vm.Manager)(nil)

// fakeStats measures every VM the same.
type fakeStats struct{}

func (fakeStats) Stats(_ context.Context, ref string) (vm.Stats, error) {
	if ref != "web" {
		return vm.Stats{}, fault.NotFound("vm", ref)
	}
	return exampleStats(), nil
}

func (fakeStats) AllStats(context.Context) ([]vm.Stats, error) {
	return []vm.Stats{exampleStats()}, nil
}

func exampleStats() vm.Stats {
	return vm.Stats{
		VM: vm.VM{
			ID: "vm-1", Slug: "web", State: api.StateRunning, RunningSince: moment().Add(-90 * time.Second),
			Resources: api.Resources{CPU: 1, Memory: 128, Storage: 1024},
		},
		Usage: vm.Usage{CPUTime: 1500 * time.Millisecond, MemoryShared: 3 << 20, MemoryUnique: 2 << 20, DiskBytes: 4096},
		At:    moment(),
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	want := api.VMStats{
		ID: "vm-1", Slug: new("web"), State: api.StateRunning, Resources: api.Resources{CPU: 1, Memory: 128, Storage: 1024},
		At: moment(), UptimeSeconds: 90, CPUTimeSeconds: 1.5, MemorySharedBytes: 3 << 20, MemoryUniqueBytes: 2 << 20, DiskBytes: 4096,
	}
	var one api.VMStats
	l.send("GET", "/v5/vms/web/stats", "").ok(200, &one)
	if diff := cmp.Diff(want, one); diff != "" {
		t.Error(diff)
	}
	var list api.VMStatsList
	l.send("GET", "/v5/stats", "").ok(200, &list)
	if diff := cmp.Diff(api.VMStatsList{VMs: []api.VMStats{want}}, list); diff != "" {
		t.Error(diff)
	}
	l.send("GET", "/v5/vms/nobody/stats", "").failed(404, api.CodeNotFound, "")
	l.send("GET", "/v5/stats?sort=cpu", "").failed(400, api.CodeBadRequest, "sort")
}
