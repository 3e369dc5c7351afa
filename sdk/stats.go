package pando

import (
	"context"
	"net/http"

	"github.com/pandovm/pando/api"
)

// Stats measures what one VM uses on its host. It wakes nothing.
func (v *VMs) Stats(ctx context.Context, ref string) (api.VMStats, error) {
	return callOn[api.VMStats](ctx, v.c, http.MethodGet, "vms", ref, "stats", nil)
}

// AllStats measures what every VM uses on its host, newest VM first.
func (v *VMs) AllStats(ctx context.Context) (api.VMStatsList, error) {
	return call[api.VMStatsList](ctx, v.c, http.MethodGet, "/v5/stats", nil)
}
