package httpapi

import (
	"context"
	"encoding/json"

	"github.com/pandovm/pando/api"
)

const statusPath = "/status"

func (s *server) systemRoutes() []route {
	return []route{
		handle(Operation{
			Method: "GET", Path: statusPath, ID: "getStatus", Status: 200, Keyless: true,
			Summary: "Say that the daemon is there and what it runs VMs with.",
		}, s.getStatus),
		handle(Operation{
			Method: "GET", Path: "/openapi.json", ID: "getOpenAPI", Status: 200, Keyless: true,
			Summary: "Get this document.",
		}, s.getOpenAPI),
	}
}

func (s *server) getStatus(context.Context, call[none]) (api.Status, error) { return s.status, nil }

func (s *server) getOpenAPI(context.Context, call[none]) (json.RawMessage, error) {
	return json.RawMessage(api.OpenAPI()), nil
}
