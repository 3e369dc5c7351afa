package api

import "time"

// Snapshot is a saved machine: memory, devices and disk of one moment.
type Snapshot struct {
	// ID is "sh-" and a UUID.
	ID string `json:"id"`
	// SourceVMID is the VM that was saved; null for a base image.
	SourceVMID *string `json:"sourceVmId"`
	// SourceVMSlug and SourceVMDisplayName are what that VM was called then.
	SourceVMSlug        *string `json:"sourceVmSlug"`
	SourceVMDisplayName *string `json:"sourceVmDisplayName"`
	// Slug is a name that is unique among snapshots; paths take it in place of the id.
	Slug *string `json:"slug"`
	// DisplayName is a label for people.
	DisplayName *string `json:"displayName"`
	// AccountID is the owner: "pando" for base images; null while there are no accounts.
	AccountID *string `json:"accountId"`
	// Public is true for base images.
	Public    bool      `json:"public"`
	Resources Resources `json:"resources"`
	// Image is the base image at the root of the snapshot's ancestry.
	Image *string `json:"image"`
	// Durable is true once every file of the snapshot is checksummed and on disk.
	Durable bool `json:"durable"`
	// Bytes is what the capture itself wrote: the pages and blocks that no ancestor has.
	Bytes int64 `json:"bytes"`
	// AutoDeleteSeconds is how long after the last VM was created from it, or after the capture if none was, the snapshot
	// is deleted; null means never.
	AutoDeleteSeconds *int64 `json:"autoDeleteSeconds"`
	// AutoDeleteFromPlan is true if AutoDeleteSeconds was not asked for but is the most that the account may have.
	AutoDeleteFromPlan bool `json:"autoDeleteFromPlan"`
	// TTLSeconds is how long after the capture the snapshot is deleted; null means never.
	TTLSeconds *int64 `json:"ttlSeconds"`
	// LastUsedAt is when a VM was last created from it; null if never.
	LastUsedAt *time.Time `json:"lastUsedAt"`
	// CreatedAt is the moment of the capture, UpdatedAt that of the record's last change.
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// SnapshotList is the response to a list of snapshots.
type SnapshotList struct {
	Snapshots []Snapshot `json:"snapshots"`
	// TotalCount is the number of snapshots on all pages.
	TotalCount int `json:"totalCount"`
}

// CreateSnapshotRequest is the body of POST /v5/vms/{id}/snapshot.
type CreateSnapshotRequest struct {
	// Slug is a name that is unique among snapshots.
	Slug *string `json:"slug,omitempty"`
	// DisplayName is a label for people.
	DisplayName *string `json:"displayName,omitempty"`
	// AutoDeleteSeconds deletes the snapshot so long after the last VM was created from it; omitted, null and -1 mean never.
	AutoDeleteSeconds *int64 `json:"autoDeleteSeconds,omitempty"`
	// TTLSeconds deletes the snapshot so long after the capture; omitted, null and -1 mean never.
	TTLSeconds *int64 `json:"ttlSeconds,omitempty"`
}

// UpdateSnapshotRequest is the body of PATCH /v5/snapshots/{id}. What is omitted or null stays as it is.
type UpdateSnapshotRequest struct {
	// Slug is a name that is unique among snapshots; "" removes it.
	Slug *string `json:"slug,omitempty"`
	// DisplayName is a label for people; "" removes it.
	DisplayName *string `json:"displayName,omitempty"`
	// AutoDeleteSeconds deletes the snapshot so long after the last VM was created from it; -1 removes the limit.
	AutoDeleteSeconds *int64 `json:"autoDeleteSeconds,omitempty"`
	// TTLSeconds deletes the snapshot so long after the capture; -1 removes the limit.
	TTLSeconds *int64 `json:"ttlSeconds,omitempty"`
}

// CreateSnapshotResponse is the answer to a snapshot.
type CreateSnapshotResponse struct {
	// SnapshotID and SourceVMID repeat what Snapshot says.
	SnapshotID string   `json:"snapshotId"`
	SourceVMID string   `json:"sourceVmId"`
	Snapshot   Snapshot `json:"snapshot"`
	// PauseMs is how long the VM stood still for the capture, in milliseconds.
	PauseMs float64 `json:"pauseMs"`
}

// Image is one entry of the catalogue of base images.
type Image struct {
	// Name is what a create calls it, for example "pando/debian".
	Name string `json:"name"`
	// Aliases are other names for it.
	Aliases []string `json:"aliases"`
	// Default is true for the image that a create without a snapshot starts from.
	Default   bool      `json:"default"`
	Resources Resources `json:"resources"`
	// Built is true if the image is in the cache; others are built on first use.
	Built bool `json:"built"`
	// BuiltAt is when it was built; null if it is not.
	BuiltAt *time.Time `json:"builtAt"`
	// Bytes is what the image occupies in the cache.
	Bytes int64 `json:"bytes"`
	// Version is the digest of the recipe and of everything that went into it.
	Version string `json:"version"`
}

// ImageList is the catalogue of base images.
type ImageList struct {
	Images []Image `json:"images"`
}

// Status is the response of GET /status.
type Status struct {
	// Status is "ok".
	Status string `json:"status"`
	// Version is that of the daemon.
	Version string `json:"version"`
	// Accelerator is "kvm" or "tcg", which is software emulation.
	Accelerator string `json:"accelerator"`
}
