package httpapi

import (
	"context"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/vm"
)

// Stats measures VMs; ref is an id or a slug.
type Stats interface {
	Stats(ctx context.Context, ref string) (vm.Stats, error)
	AllStats(ctx context.Context) ([]vm.Stats, error)
}

func (s *server) statsRoutes() []route {
	return []route{
		handle(Operation{
			Method: "GET", Path: "/v5/stats", ID: "listVMStats", Status: 200,
			Summary:     "Measure what every VM uses on its host.",
			Description: "Two answers give the load of a processor: the difference of cpuTimeSeconds over that of at.",
		}, s.listStats),
		handle(Operation{
			Method: "GET", Path: "/v5/vms/{id}/stats", ID: "getVMStats", Status: 200,
			Summary:     "Measure what a VM uses on its host.",
			Description: "It wakes nothing: a VM that does not run uses disk only.",
			Errors:      []api.Code{api.CodeNotFound},
		}, s.getStats),
	}
}

func (s *server) listStats(ctx context.Context, _ call[none]) (api.VMStatsList, error) {
	all, err := s.stats.AllStats(ctx)
	if err != nil {
		return api.VMStatsList{}, err
	}
	list := api.VMStatsList{VMs: make([]api.VMStats, 0, len(all))}
	for _, one := range all {
		list.VMs = append(list.VMs, statsObject(one))
	}
	return list, nil
}

func (s *server) getStats(ctx context.Context, c call[none]) (api.VMStats, error) {
	one, err := s.stats.Stats(ctx, c.ref)
	if err != nil {
		return api.VMStats{}, err
	}
	return statsObject(one), nil
}

func statsObject(s vm.Stats) api.VMStats {
	return api.VMStats{
		ID: s.ID, Slug: orNull(s.Slug), State: s.State, Resources: s.Resources, At: s.At.UTC(),
		UptimeSeconds: s.Uptime().Seconds(), CPUTimeSeconds: s.CPUTime.Seconds(),
		MemorySharedBytes: s.MemoryShared, MemoryUniqueBytes: s.MemoryUnique, DiskBytes: s.DiskBytes,
	}
}
