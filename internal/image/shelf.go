package image

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/snapshot"
)

// Importer brings a built image to a node.
type Importer interface {
	// Import makes the saved machine in dir known under id; idempotent.
	Import(ctx context.Context, dir, id string) error
}

// Shelf offers the images as public snapshots of one data folder. It is safe
// for concurrent use.
type Shelf struct {
	images    *Service
	node      Importer
	snapshots snapshot.Repository
	now       func() time.Time

	mu sync.Mutex
	// ready holds the images that this process has brought to the node, by name.
	ready map[string]snapshot.Snapshot
}

// NewShelf returns a Shelf.
func NewShelf(images *Service, node Importer, snapshots snapshot.Repository, now func() time.Time) *Shelf {
	return &Shelf{images: images, node: node, snapshots: snapshots, now: now, ready: map[string]snapshot.Snapshot{}}
}

// Resolve returns the snapshot of the image that ref names, building the image
// first if need be. It returns false if ref names no image.
func (s *Shelf) Resolve(ctx context.Context, ref string) (snapshot.Snapshot, bool, error) {
	e, ok := Find(ref)
	if !ok {
		return snapshot.Snapshot{}, false, nil
	}
	s.mu.Lock()
	found, ok := s.ready[e.Name]
	s.mu.Unlock()
	if ok {
		return found, true, nil
	}
	b, err := s.images.Ensure(context.WithoutCancel(ctx), e.Name, nil)
	if err != nil {
		return snapshot.Snapshot{}, true, err
	}
	found, err = s.bring(ctx, b)
	return found, true, err
}

// Preload brings every image that is built to the node, so that the first
// create does not wait for it.
func (s *Shelf) Preload(ctx context.Context) error {
	var errs []error
	for _, e := range Catalogue() {
		b, ok, err := s.images.Lookup(e.Name)
		if err == nil && ok {
			_, err = s.bring(ctx, b)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Canonical returns the name under which an image's snapshot is recorded, for
// a name or alias of an image; other references stay as they are.
func (s *Shelf) Canonical(ref string) string {
	if e, ok := Find(ref); ok && ref != "" {
		return e.Name
	}
	return ref
}

func (s *Shelf) bring(ctx context.Context, b Built) (snapshot.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := s.ready[b.Name]; ok {
		return found, nil
	}
	record := s.record(b)
	if err := s.node.Import(ctx, b.Dir, record.ID); err != nil {
		return record, fmt.Errorf("bring image %s to this host: %w", b.Name, err)
	}
	if err := s.list(ctx, record); err != nil {
		return record, fmt.Errorf("list image %s: %w", b.Name, err)
	}
	s.ready[b.Name] = record
	return record, nil
}

// record describes the image as a snapshot. Its id follows from name and
// version, so every data folder calls the same image the same.
func (s *Shelf) record(b Built) snapshot.Snapshot {
	now := s.now()
	return snapshot.Snapshot{
		ID:   "sh-" + uuid.NewSHA1(uuid.NameSpaceURL, []byte(b.Name+"@"+b.Version)).String(),
		Slug: b.Name, DisplayName: b.Name, Public: true, Durable: true, Resources: b.Resources, Image: b.Name,
		CreatedAt: now, UpdatedAt: now,
	}
}

// list records the snapshot under its name. Another version gives the name up
// and stays for the VMs that were made from it; it may be the present one again
// when a host goes back to it.
func (s *Shelf) list(ctx context.Context, record snapshot.Snapshot) error {
	old, err := s.snapshots.FindSnapshot(ctx, record.Slug)
	switch {
	case isNotFound(err):
	case err != nil:
		return err
	case old.ID == record.ID:
		return nil
	default:
		if err := s.name(ctx, old.ID, ""); err != nil {
			return err
		}
	}
	_, err = s.snapshots.FindSnapshot(ctx, record.ID)
	if isNotFound(err) {
		return s.snapshots.InsertSnapshot(ctx, record)
	}
	if err != nil {
		return err
	}
	return s.name(ctx, record.ID, record.Slug)
}

func (s *Shelf) name(ctx context.Context, id, slug string) error {
	_, err := s.snapshots.UpdateSnapshot(ctx, id, func(o *snapshot.Snapshot) error {
		o.Slug = slug
		return nil
	})
	return err
}

func isNotFound(err error) bool {
	f := fault.As(err)
	return f != nil && f.Code == api.CodeNotFound
}
