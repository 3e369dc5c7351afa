package api

import "time"

// Snapshot is a saved machine: memory, devices and disk of one moment.
type Snapshot struct {
	ID                  string    `json:"id"`
	SourceVMID          *string   `json:"sourceVmId"`
	SourceVMSlug        *string   `json:"sourceVmSlug"`
	SourceVMDisplayName *string   `json:"sourceVmDisplayName"`
	Slug                *string   `json:"slug"`
	DisplayName         *string   `json:"displayName"`
	Public              bool      `json:"public"`
	Resources           Resources `json:"resources"`
	// Image is the base image at the root of the snapshot's ancestry.
	Image *string `json:"image"`
	// Durable is true once every file of the snapshot is checksummed and on disk.
	Durable bool `json:"durable"`
	// Bytes is what the capture itself wrote: the pages and blocks that no ancestor has.
	Bytes      int64      `json:"bytes"`
	LastUsedAt *time.Time `json:"lastUsedAt"`
	CreatedAt  time.Time  `json:"createdAt"`
	UpdatedAt  time.Time  `json:"updatedAt"`
}

// SnapshotList is the response to a list of snapshots.
type SnapshotList struct {
	Snapshots  []Snapshot `json:"snapshots"`
	TotalCount int        `json:"totalCount"`
}

// CreateSnapshotRequest is the body of POST /v5/vms/{id}/snapshot.
type CreateSnapshotRequest struct {
	Slug        *string `json:"slug,omitempty"`
	DisplayName *string `json:"displayName,omitempty"`
}

// CreateSnapshotResponse is the answer to a snapshot.
type CreateSnapshotResponse struct {
	SnapshotID string   `json:"snapshotId"`
	SourceVMID string   `json:"sourceVmId"`
	Snapshot   Snapshot `json:"snapshot"`
	// PauseMs is how long the VM stood still for the capture, in milliseconds.
	PauseMs float64 `json:"pauseMs"`
}

// Image is one entry of the catalogue of base images.
type Image struct {
	Name      string     `json:"name"`
	Aliases   []string   `json:"aliases"`
	Default   bool       `json:"default"`
	Resources Resources  `json:"resources"`
	Built     bool       `json:"built"`
	BuiltAt   *time.Time `json:"builtAt"`
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
	Status      string `json:"status"`
	Version     string `json:"version"`
	Accelerator string `json:"accelerator"`
}
