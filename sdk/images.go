package pando

import (
	"context"
	"net/http"

	"github.com/pandovm/pando/api"
)

// Images holds the calls on base images.
type Images struct{ c *Client }

// List returns the daemon's catalogue of base images, built or not.
func (i *Images) List(ctx context.Context) (api.ImageList, error) {
	return call[api.ImageList](ctx, i.c, http.MethodGet, "/v5/images", nil)
}
