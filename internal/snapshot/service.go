package snapshot

import (
	"context"
	"fmt"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// Node removes saved machines from the host that has them.
type Node interface {
	// DeleteSnapshot removes a saved machine; idempotent. Layers that others
	// hold stay.
	DeleteSnapshot(ctx context.Context, id string) error
}

// Service runs the use cases. It is safe for concurrent use.
type Service struct {
	snapshots Repository
	node      Node
	// canonical turns an alias of a base image into its name.
	canonical func(ref string) string
	// changed is told of snapshots whose timers may have changed.
	changed func(Snapshot)
}

// NewService returns a Service. canonical turns an alias of a base image into
// its name and leaves other references as they are; changed is told of
// snapshots whose timers may have changed.
func NewService(r Repository, n Node, canonical func(ref string) string, changed func(Snapshot)) *Service {
	return &Service{snapshots: r, node: n, canonical: canonical, changed: changed}
}

// Get returns the snapshot with that id or slug.
func (s *Service) Get(ctx context.Context, ref string) (Snapshot, error) {
	return s.snapshots.FindSnapshot(ctx, s.canonical(ref))
}

// List returns a page of private snapshots, newest first, and their number.
func (s *Service) List(ctx context.Context, f Filter) ([]Snapshot, int, error) {
	return s.snapshots.ListSnapshots(ctx, f)
}

// Delete removes a snapshot. VMs and snapshots made from it are not affected.
// Base images are removed from the cache instead.
func (s *Service) Delete(ctx context.Context, ref string) error {
	found, err := s.snapshots.FindSnapshot(ctx, s.canonical(ref))
	if err != nil {
		return err
	}
	if found.Public {
		return fault.Conflict(api.ReasonSnapshotInUse, "%s is a base image", found.Slug).
			Hint("remove it from the cache: pando image rm %s", found.Slug)
	}
	ctx = context.WithoutCancel(ctx)
	// The files go last: a record without files is settled at the next start,
	// files without a record are swept then.
	if err := s.snapshots.DeleteSnapshot(ctx, found.ID); err != nil {
		return err
	}
	if err := s.node.DeleteSnapshot(ctx, found.ID); err != nil {
		return fmt.Errorf("delete snapshot %s: %w", found.ID, err)
	}
	return nil
}
