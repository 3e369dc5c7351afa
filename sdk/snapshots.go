package pando

import (
	"context"
	"net/http"
	"net/url"

	"github.com/pandovm/pando/api"
)

// Snapshots holds the calls on snapshots.
type Snapshots struct{ c *Client }

// SnapshotFilter selects snapshots. Zero fields select every one of the caller.
type SnapshotFilter struct {
	// SourceVMID is the id of the VM that was captured, Search is part of a name.
	SourceVMID, Search string
	// Limit of 0 means no limit.
	Limit, Offset int
}

func (f SnapshotFilter) query() url.Values {
	q := url.Values{}
	set(q, "sourceVmId", f.SourceVMID)
	set(q, "search", f.Search)
	setPage(q, f.Limit, f.Offset)
	return q
}

// List returns the snapshots that match, newest first.
func (s *Snapshots) List(ctx context.Context, f SnapshotFilter) (api.SnapshotList, error) {
	return call[api.SnapshotList](ctx, s.c, http.MethodGet, withQuery("/v5/snapshots", f.query()), nil)
}

// Get returns one snapshot.
func (s *Snapshots) Get(ctx context.Context, ref string) (api.Snapshot, error) {
	return callOn[api.Snapshot](ctx, s.c, http.MethodGet, "snapshots", ref, "", nil)
}

// Update changes the names and timers of a snapshot. Fields that are nil stay as
// they are; a timer of -1 and a name of "" are removed.
func (s *Snapshots) Update(ctx context.Context, ref string, r api.UpdateSnapshotRequest) (api.Snapshot, error) {
	return callOn[api.Snapshot](ctx, s.c, http.MethodPatch, "snapshots", ref, "", r)
}

// Delete removes a snapshot. VMs made from it are not affected.
func (s *Snapshots) Delete(ctx context.Context, ref string) error {
	_, err := callOn[nothing](ctx, s.c, http.MethodDelete, "snapshots", ref, "", nil)
	return err
}
