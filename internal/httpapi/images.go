package httpapi

import (
	"context"

	"github.com/pandovm/pando/api"
)

func (s *server) imageRoutes() []route {
	return []route{
		handle(Operation{
			Method: "GET", Path: "/v5/images", ID: "listImages", Status: 200,
			Summary:     "List the base images.",
			Description: "An image that is not built yet is built when the first VM asks for it.",
		}, s.listImages),
	}
}

func (s *server) listImages(ctx context.Context, _ call[none]) (api.ImageList, error) {
	images, err := s.images.List(ctx)
	if err != nil {
		return api.ImageList{}, err
	}
	if images == nil {
		images = []api.Image{}
	}
	return api.ImageList{Images: images}, nil
}
