// Package snapshot owns what a saved machine is: its record, its place among
// relatives and the rules for deleting it.
//
// Invariants: a snapshot never changes once captured; deleting one harms no VM
// and no other snapshot. It imports api and fault only; vm, store and the
// transports may import it.
package snapshot

import (
	"context"
	"time"

	"github.com/pandovm/pando/api"
)

// Snapshot is the record of a saved machine.
type Snapshot struct {
	ID string
	// Slug is unique; public ones are qualified, for example "pando/debian".
	Slug                string
	DisplayName         string
	SourceVMID          string
	SourceVMSlug        string
	SourceVMDisplayName string
	// Public snapshots are base images: everyone can start from them.
	Public    bool
	Resources api.Resources
	// Image is the base image at the root of the ancestry.
	Image string
	// Durable is true once every file is checksummed and on disk.
	Durable bool
	// Ancestry lists the VM ids above, the source VM first.
	Ancestry []string
	Bytes    int64
	// AutoDelete is how long after its last use, TTL how long after its capture
	// the snapshot is deleted; nil is never.
	AutoDelete, TTL *time.Duration
	LastUsedAt      time.Time
	CreatedAt       time.Time
	UpdatedAt       time.Time
}

// Filter selects snapshots. Zero fields select every private snapshot.
type Filter struct {
	SourceVMID string
	Search     string
	// Limit of 0 means no limit.
	Limit, Offset int
}

// Repository keeps snapshot records. All methods are safe for concurrent use.
type Repository interface {
	// InsertSnapshot adds a record; a taken slug is fault CONFLICT with reason slug_taken.
	InsertSnapshot(ctx context.Context, s Snapshot) error
	// UpdateSnapshot applies change in one transaction and returns the result.
	UpdateSnapshot(ctx context.Context, id string, change func(*Snapshot) error) (Snapshot, error)
	// FindSnapshot looks a snapshot up by id or slug; fault NOT_FOUND if there is none.
	FindSnapshot(ctx context.Context, ref string) (Snapshot, error)
	// ListSnapshots returns the page, newest first, and the number that match.
	ListSnapshots(ctx context.Context, f Filter) ([]Snapshot, int, error)
	// DeleteSnapshot removes the record and frees its slug.
	DeleteSnapshot(ctx context.Context, id string) error
}
