package httpapi

import (
	"context"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/snapshot"
)

func (s *server) snapshotRoutes() []route {
	return []route{
		handle(Operation{
			Method: "GET", Path: "/v5/snapshots", ID: "listSnapshots", Status: 200,
			Summary:     "List snapshots, newest first.",
			Description: "Base images are not among them: see /v5/images.",
			Query: append([]Parameter{
				{Name: "sourceVmId", Type: "string", Description: "Only snapshots of the VM with this id or slug."},
				searchParameter(),
			}, pageParameters()...),
		}, s.listSnapshots),
		handle(Operation{
			Method: "GET", Path: "/v5/snapshots/{id}", ID: "getSnapshot", Status: 200,
			Summary:     "Get a snapshot by id or slug.",
			Description: "The name of a base image is one path segment: /v5/snapshots/pando%2Fdebian.",
			Errors:      []api.Code{api.CodeNotFound},
		}, s.getSnapshot),
		handle(Operation{
			Method: "PATCH", Path: "/v5/snapshots/{id}", ID: "updateSnapshot", Status: 200,
			Summary:     "Change the names and timers of a snapshot.",
			Description: "What is left out stays as it is. The saved machine never changes. A base image cannot be changed here.",
			Errors:      []api.Code{api.CodeBadRequest, api.CodeNotFound, api.CodeConflict},
		}, s.updateSnapshot),
		handle(Operation{
			Method: "DELETE", Path: "/v5/snapshots/{id}", ID: "deleteSnapshot", Status: 204,
			Summary:     "Delete a snapshot.",
			Description: "VMs and snapshots made from it are not affected. A base image cannot be deleted here.",
			Errors:      []api.Code{api.CodeNotFound, api.CodeConflict},
		}, s.deleteSnapshot),
	}
}

func (s *server) listSnapshots(ctx context.Context, c call[none]) (api.SnapshotList, error) {
	found, total, err := s.snapshots.List(ctx, snapshot.Filter{
		SourceVMID: c.query["sourceVmId"], Search: c.query["search"],
		Limit: c.query.number("limit"), Offset: c.query.number("offset"),
	})
	if err != nil {
		return api.SnapshotList{}, err
	}
	list := make([]api.Snapshot, 0, len(found))
	for _, r := range found {
		list = append(list, snapshotObject(r))
	}
	return api.SnapshotList{Snapshots: list, TotalCount: total}, nil
}

func (s *server) getSnapshot(ctx context.Context, c call[none]) (api.Snapshot, error) {
	r, err := s.snapshots.Get(ctx, c.ref)
	if err != nil {
		return api.Snapshot{}, err
	}
	return snapshotObject(r), nil
}

func (s *server) updateSnapshot(ctx context.Context, c call[api.UpdateSnapshotRequest]) (api.Snapshot, error) {
	b := c.body
	r, err := s.snapshots.Update(ctx, c.ref, snapshot.UpdateParams{
		Slug: b.Slug, DisplayName: b.DisplayName, AutoDelete: b.AutoDeleteSeconds, TTL: b.TTLSeconds,
	})
	if err != nil {
		return api.Snapshot{}, err
	}
	return snapshotObject(r), nil
}

func (s *server) deleteSnapshot(ctx context.Context, c call[none]) (none, error) {
	return none{}, s.snapshots.Delete(ctx, c.ref)
}

func searchParameter() Parameter {
	return Parameter{Name: "search", Type: "string", Description: "Only those with this text in id, slug, name or image; case does not matter."}
}

func pageParameters() []Parameter {
	return []Parameter{
		{Name: "limit", Type: "integer", Minimum: 1, Description: "At most this many; without it, all."},
		{Name: "offset", Type: "integer", Description: "Leave out this many of the newest."},
	}
}
