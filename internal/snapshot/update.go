package snapshot

import (
	"context"
	"errors"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/field"
)

// UpdateParams are new values for what a snapshot's owner may set; nil leaves a
// field as it is.
type UpdateParams struct {
	// Slug and DisplayName are removed by "".
	Slug, DisplayName *string
	// AutoDelete and TTL are in seconds; -1 removes them.
	AutoDelete, TTL *int64
}

func (p UpdateParams) check() error {
	var errs []error
	if p.Slug != nil {
		errs = append(errs, field.CheckSlug(*p.Slug))
	}
	if p.DisplayName != nil {
		errs = append(errs, field.CheckDisplayName(*p.DisplayName))
	}
	return errors.Join(append(errs, CheckTimers(p.AutoDelete, p.TTL))...)
}

// Update changes what is noted on a snapshot, not the saved machine. Base images
// are not changed by requests.
func (s *Service) Update(ctx context.Context, ref string, p UpdateParams) (Snapshot, error) {
	if err := p.check(); err != nil {
		return Snapshot{}, err
	}
	found, err := s.snapshots.FindSnapshot(ctx, s.canonical(ref))
	if err != nil {
		return Snapshot{}, err
	}
	if found.Public {
		return Snapshot{}, fault.Conflict(api.ReasonSnapshotInUse, "%s is a base image", found.Slug).
			Hint("base images keep their names; save a vm as a snapshot of your own")
	}
	changed, err := s.snapshots.UpdateSnapshot(ctx, found.ID, func(r *Snapshot) error {
		if p.Slug != nil {
			r.Slug = *p.Slug
		}
		if p.DisplayName != nil {
			r.DisplayName = *p.DisplayName
		}
		r.SetTimers(p.AutoDelete, p.TTL)
		return nil
	})
	if err == nil {
		s.changed(changed)
	}
	return changed, err
}
