package vm

import (
	"context"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/snapshot"
)

// VM is the record of one VM: what is wanted of it, and what was last seen.
type VM struct {
	ID          string
	Slug        string
	DisplayName string
	State       api.State
	// StateReason says why the state was entered when nobody asked for it,
	// for example "qemu was killed (signal 9)".
	StateReason string
	Resources   api.Resources
	// SnapshotID and SnapshotSlug name what the VM was created from; both are
	// empty for a fork.
	SnapshotID   string
	SnapshotSlug string
	// Image is the base image at the root of the ancestry.
	Image    string
	ParentID string
	// Ancestry lists the ids above this VM, nearest first.
	Ancestry []string
	// ForkedAt is the moment of the capture; zero if the VM is no fork.
	ForkedAt time.Time
	// Generation rises by one with every order that starts a run.
	Generation int64
	// RunTime is the length of all finished runs; RunningSince starts the
	// present one and is zero when the VM does not run.
	RunTime      time.Duration
	RunningSince time.Time
	// RestingSince is when the VM last ceased to run; zero while it runs.
	RestingSince time.Time
	// UsedAt is a moment of use that was written down: the last one may be later.
	UsedAt           time.Time
	Timers           Timers
	AutomaticRestart bool
	// Restarts counts the restarts after crashes in a row; RestartAt is when the
	// next one is due, zero if none is.
	Restarts  int
	RestartAt time.Time
	Placement []AntiAffinity
	Metadata  map[string]string
	// TakeSlug takes Slug from the VM that has it when the record is written. It
	// is never stored.
	TakeSlug     bool
	AgentVersion string
	CreatedAt    time.Time
	UpdatedAt    time.Time
}

// Filter selects VMs. Zero fields select everything.
type Filter struct {
	State      api.State
	Slug       string
	SnapshotID string
	Search     string
	Metadata   map[string]string
	// Limit of 0 means no limit.
	Limit, Offset int
}

// Repository keeps VM records. All methods are safe for concurrent use.
type Repository interface {
	// InsertVM adds a VM; a taken slug is fault CONFLICT with reason slug_taken
	// unless TakeSlug is set, and a VM that Placement forbids to be near is fault
	// CONFLICT with reason placement_unsatisfiable.
	InsertVM(ctx context.Context, v VM) error
	// UpdateVM applies change to the record in one transaction and returns the
	// result. An error from change leaves the record as it was.
	UpdateVM(ctx context.Context, id string, change func(*VM) error) (VM, error)
	// NoteUse sets UsedAt and nothing else. A VM that is not there is no error.
	NoteUse(ctx context.Context, id string, at time.Time) error
	// FindVM looks a VM up by id or slug; fault NOT_FOUND if there is none.
	FindVM(ctx context.Context, ref string) (VM, error)
	// ListVMs returns the page asked for, newest first, and the number of VMs
	// per state that match the filter without its State, Limit and Offset.
	ListVMs(ctx context.Context, f Filter) ([]VM, map[api.State]int, error)
	// DeleteVM removes the record and frees its slug.
	DeleteVM(ctx context.Context, id string) error
}

// Running is what a node knows of a VM that has just confirmed an epoch.
type Running struct {
	AgentVersion string
}

// Restore orders a node to make a new VM out of a saved machine.
type Restore struct {
	VMID       string
	Generation int64
	SnapshotID string
	Hostname   string
	Identity   api.Identity
}

// Fork orders a node to capture a running VM once and start children from it.
type Fork struct {
	VMID     string
	Children []ForkChild
	Identity api.Identity
}

// ForkChild is one child of a fork.
type ForkChild struct {
	VMID       string
	Generation int64
	Hostname   string
}

// ForkResult is the outcome of a fork. Children is in the order of the request;
// Err is nil for a child that confirmed its epoch.
type ForkResult struct {
	// CapturedAt is the moment that source and children continue from.
	CapturedAt time.Time
	// Pause is how long the source stood still.
	Pause    time.Duration
	Children []ChildResult
}

// ChildResult is the outcome for one child.
type ChildResult struct {
	Running Running
	Err     error
}

// Captured is the outcome of a snapshot.
type Captured struct {
	At    time.Time
	Pause time.Duration
	// Bytes is what the capture wrote.
	Bytes int64
}

// Presence is what a node says a VM is right now.
type Presence string

// The values of Presence.
const (
	// PresenceRunning: the process runs and the guest answers.
	PresenceRunning Presence = "running"
	// PresencePaused: memory, devices and disk are saved; nothing runs.
	PresencePaused Presence = "paused"
	// PresenceStopped: only the disk exists.
	PresenceStopped Presence = "stopped"
	// PresenceCrashed: as stopped, and the process was killed, or the host went
	// down, while no daemon was there to see it. A start makes it forgotten.
	PresenceCrashed Presence = "crashed"
	// PresenceAbsent: the node knows nothing of the VM.
	PresenceAbsent Presence = "absent"
)

// Cause says what kind of end a VM came to.
type Cause string

// The values of Cause.
const (
	// CausePoweredOff: the guest shut itself down.
	CausePoweredOff Cause = "powered_off"
	// CausePanicked: the guest's kernel panicked.
	CausePanicked Cause = "panicked"
	// CauseCrashed: the process ended in another way: it was killed, it aborted,
	// or the host went down.
	CauseCrashed Cause = "crashed"
)

// Sighting reports that a VM's process ended without an order.
type Sighting struct {
	VMID       string
	Generation int64
	Presence   Presence
	Cause      Cause
	// Reason says what was seen: "guest powered off", "qemu was killed (signal 9)".
	Reason string
}

// Node does everything that touches a VM's process, memory, disk or guest on
// one host. Arguments and results are plain values that could cross a wire.
// All methods are safe for concurrent use for different VMs; the Manager
// orders the calls for one VM.
type Node interface {
	// Restore makes a VM from a saved machine and returns once its epoch is
	// confirmed. On error nothing of the VM is left.
	Restore(ctx context.Context, o Restore) (Running, error)
	// Resume restores a paused VM in place; Boot starts a stopped one from its
	// disk. On error the VM is as it was.
	Resume(ctx context.Context, vmID string, generation int64) (Running, error)
	Boot(ctx context.Context, vmID string, generation int64) (Running, error)
	// Pause saves memory, devices and disk, then ends the process. On error the
	// VM goes on running.
	Pause(ctx context.Context, vmID string) error
	// Stop shuts the guest down, or ends it when grace has passed. A paused VM
	// loses its saved memory and keeps its disk.
	Stop(ctx context.Context, vmID string, grace time.Duration) error
	// Snapshot saves a running or paused VM under snapshotID.
	Snapshot(ctx context.Context, vmID, snapshotID string) (Captured, error)
	// Fork captures a running VM once and starts the children from it.
	Fork(ctx context.Context, o Fork) (ForkResult, error)
	// Resize makes a VM at least as large as want. A running VM is so when it
	// returns; any other will be at its next start, which is all that its CPUs and
	// its memory are good for, and its disk cannot grow. It can be repeated. The
	// size that the VM has, or will have, is returned with an error too, unless
	// there is no such VM; a host without room is fault CONFLICT.
	Resize(ctx context.Context, vmID string, want api.Resources) (api.Resources, error)
	// Size returns what a VM has, or will have at its next start.
	Size(ctx context.Context, vmID string) (api.Resources, error)
	// UpgradeAgent replaces the agent of a running VM by the node's own. With the
	// same version it does nothing. While commands or terminals run it is fault
	// CONFLICT, unless force is set. On error the VM has the agent that it had.
	UpgradeAgent(ctx context.Context, vmID string, force bool) (Running, error)
	// Delete ends the process and removes everything of the VM; idempotent.
	Delete(ctx context.Context, vmID string) error
	// AwaitDurable returns once every file of the snapshot is checksummed and on
	// disk, or with the reason why that failed.
	AwaitDurable(ctx context.Context, snapshotID string) error
	// DeleteSnapshot removes a saved machine; idempotent.
	DeleteSnapshot(ctx context.Context, snapshotID string) error
	// Usage says what the VM uses right now.
	Usage(ctx context.Context, vmID string) (Usage, error)
	// Presence says what the VM is right now.
	Presence(ctx context.Context, vmID string) (Presence, error)
	// VMs and Snapshots list everything that the node holds.
	VMs(ctx context.Context) ([]string, error)
	Snapshots(ctx context.Context) ([]string, error)
	// Sightings delivers the ends of processes that nobody ordered.
	Sightings() <-chan Sighting
}

// Intent is the note of an effect outside the store that is about to happen,
// so that a daemon that was killed can finish or undo it.
type Intent struct {
	ID        string
	Kind      IntentKind
	VMID      string
	CreatedAt time.Time
}

// IntentKind says which effect an intent announces.
type IntentKind string

// IntentDelete announces that everything of a VM is removed. The other effects
// need no intent of their own: a record in the state starting or pausing, or a
// snapshot record that is not durable, announces them.
const IntentDelete IntentKind = "delete"

// Journal keeps intents. All methods are safe for concurrent use and idempotent.
type Journal interface {
	BeginIntent(ctx context.Context, i Intent) error
	EndIntent(ctx context.Context, id string) error
	// OpenIntents lists what was begun and not ended, oldest first.
	OpenIntents(ctx context.Context) ([]Intent, error)
}

// Rules are what other parts keep about VMs by their ids. They go when a VM's
// record does.
type Rules interface {
	// CopyRules gives each VM in to its own copy of the rules that name from.
	CopyRules(ctx context.Context, from string, to []string) error
}

// Images resolves names of base images to snapshots that the node holds.
type Images interface {
	// Resolve builds the image if it is not in the cache, brings it to the node
	// and returns its snapshot. It returns false if ref names no image.
	Resolve(ctx context.Context, ref string) (snapshot.Snapshot, bool, error)
}
