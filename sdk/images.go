package pando

import (
	"context"
	"net/http"

	"github.com/pandovm/pando/api"
)

// Images holds the calls on base images.
type Images struct{ c *Client }

// List returns the daemon's catalogue of base images, built or not.
func (i *Images) List(ctx context.Context) ([]api.Image, error) {
	l, err := call[imageList](ctx, i.c, http.MethodGet, "/v5/images", nil)
	return l.Images, err
}

type imageList struct {
	Images []api.Image `json:"images"`
}
