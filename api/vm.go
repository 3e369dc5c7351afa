package api

import "time"

// State is the lifecycle state of a VM.
type State string

// The states of a VM.
const (
	// StateStarting: it boots, resumes or is being made.
	StateStarting State = "starting"
	// StateRunning: the guest runs and has confirmed its epoch.
	StateRunning State = "running"
	// StatePausing: memory, devices and disk are being saved.
	StatePausing State = "pausing"
	// StatePaused: everything is saved and nothing runs.
	StatePaused State = "paused"
	// StateStopped: only the disk exists.
	StateStopped State = "stopped"
)

// Resources is the size of a VM.
type Resources struct {
	// CPU is the number of virtual CPUs.
	CPU int `json:"cpu"`
	// Memory is in MiB.
	Memory int `json:"memory"`
	// Storage is the size of the root disk in MiB.
	Storage int `json:"storage"`
}

// VM is the VM object, the response of most VM calls.
type VM struct {
	// ID is "vm-" and a UUID.
	ID string `json:"id"`
	// State is where the VM is in its life.
	State State `json:"state"`
	// StateReason says why the state was entered if nobody asked for it, for
	// example "qemu was killed (signal 9)".
	StateReason string `json:"stateReason,omitempty"`
	// Slug is a name that is unique among VMs; paths take it in place of the id.
	Slug *string `json:"slug"`
	// DisplayName is a label for people.
	DisplayName *string   `json:"displayName"`
	Resources   Resources `json:"resources"`
	// SnapshotID is the snapshot that the VM was created from; null for a fork.
	SnapshotID *string `json:"snapshotId"`
	// SourceSnapshotSlugAtCreate is the slug that the snapshot had then.
	SourceSnapshotSlugAtCreate *string `json:"sourceSnapshotSlugAtCreate"`
	// SourceSnapshotSlug and SourceSnapshotDisplayName are what the snapshot is called now.
	SourceSnapshotSlug        *string `json:"sourceSnapshotSlug"`
	SourceSnapshotDisplayName *string `json:"sourceSnapshotDisplayName"`
	// Image is the base image at the root of the VM's ancestry, for example "pando/debian".
	Image *string `json:"image"`
	// ParentVMID is the VM that this one was forked from; null if it was created from a snapshot.
	ParentVMID *string `json:"parentVmId"`
	// Ancestry lists the VMs above this one, nearest first. Deleted ones stay listed.
	Ancestry []string `json:"ancestry"`
	// ForkedAt is the moment of the capture that this VM continues; null if it is no fork.
	ForkedAt *time.Time `json:"forkedAt"`
	// Generation counts the VM's uninterrupted runs: it rises with each start, resume and fork.
	Generation int64 `json:"generation"`
	// TotalRunSeconds is how long the VM has been running in all its runs.
	TotalRunSeconds int64 `json:"totalRunSeconds"`
	// IdleTimeoutSeconds is after how long without use a running VM is paused; null means never. Commands, file calls and
	// terminal input are use, and so is a command that still runs; changing the VM's settings is not.
	IdleTimeoutSeconds *int64 `json:"idleTimeoutSeconds"`
	// AutoDeleteSeconds is after how long without running a VM is deleted; null means never, and 0 the moment it stops,
	// though not when it pauses.
	AutoDeleteSeconds *int64 `json:"autoDeleteSeconds"`
	// AutoDeleteFromPlan is true if AutoDeleteSeconds was not asked for but is the most that the account may have.
	AutoDeleteFromPlan bool `json:"autoDeleteFromPlan"`
	// TTLSeconds is how long after its creation a VM is deleted, whatever it does; null means never.
	TTLSeconds *int64 `json:"ttlSeconds"`
	// MaxRunSeconds is after how long one run ends with a pause; null means never. Each start begins a new run.
	MaxRunSeconds *int64 `json:"maxRunSeconds"`
	// MaxRunTotalSeconds is how long a VM may run in all its runs; null means for ever. Once that is spent the VM is
	// paused, and a start is a CONFLICT until the number is raised.
	MaxRunTotalSeconds *int64 `json:"maxRunTotalSeconds"`
	// NextPauseAt is when the VM will be paused if nobody uses it until then, and NextPauseReason the name of the timer
	// that will do it, for example "idleTimeoutSeconds"; null if no timer runs. A timer that is held up by use does not run.
	NextPauseAt     *time.Time `json:"nextPauseAt"`
	NextPauseReason *string    `json:"nextPauseReason"`
	// NextDeleteAt is when the VM will be deleted if nothing changes until then, and NextDeleteReason the name of the timer.
	NextDeleteAt     *time.Time `json:"nextDeleteAt"`
	NextDeleteReason *string    `json:"nextDeleteReason"`
	// AutomaticRestart says that the VM is booted again from its disk after its process or its kernel has crashed; never
	// after a poweroff, a stop or a pause.
	AutomaticRestart bool `json:"automaticRestart"`
	// CPUTimeSeconds is the processor time that the VM has used; null if it is not known.
	CPUTimeSeconds *float64 `json:"cpuTimeSeconds"`
	// PublicIPv6, EgressIPv4 and EgressIPv6 are the addresses that the VM has in the Internet: none yet.
	PublicIPv6 *string `json:"publicIpv6"`
	EgressIPv4 *string `json:"egressIpv4"`
	EgressIPv6 *string `json:"egressIpv6"`
	// LastNetworkActivity is when the VM's network was last used; null while VMs have none.
	LastNetworkActivity *time.Time `json:"lastNetworkActivity"`
	// Placement is what the VM's create asked for; null if it asked for nothing.
	Placement *Placement `json:"placement"`
	// Metadata is what the VM's owner noted on it.
	Metadata map[string]string `json:"metadata"`
	// Networks and VPCs list the private networks that the VM is attached to: none yet.
	Networks []VMNetwork `json:"networks"`
	VPCs     []VMNetwork `json:"vpcs"`
	// AgentVersion is the version of the agent that confirmed the last epoch.
	AgentVersion string `json:"agentVersion,omitempty"`
	// CreatedAt and UpdatedAt are when the VM was made and when its record last changed.
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
	// FirewallRules and TLSRules are set only on the response to a create.
	FirewallRules []FirewallRule `json:"firewallRules,omitempty"`
	TLSRules      []TLSRule      `json:"tlsRules,omitempty"`
}

// VMNetwork is one private network that a VM is attached to. VMs have none yet;
// the type is here because clients require the arrays that would hold it.
type VMNetwork struct {
	// VPC is the id of the network.
	VPC string `json:"vpc"`
	// IPv4 and IPv6 are the VM's addresses in it.
	IPv4 *string `json:"ipv4,omitempty"`
	IPv6 *string `json:"ipv6,omitempty"`
}

// VMList is the response to a list of VMs. The counts cover all VMs that match
// the filter, whatever page was asked for.
type VMList struct {
	VMs []VM `json:"vms"`
	// TotalCount is the number of VMs on all pages.
	TotalCount int `json:"totalCount"`
	// RunningCount, StartingCount, PausingCount, PausedCount and StoppedCount
	// are the numbers per state, whatever state was asked for.
	RunningCount  int `json:"runningCount"`
	StartingCount int `json:"startingCount"`
	PausingCount  int `json:"pausingCount"`
	PausedCount   int `json:"pausedCount"`
	StoppedCount  int `json:"stoppedCount"`
}

// Identity says what a fork or a VM made from a snapshot takes from its source.
type Identity string

// The choices for Identity.
const (
	// IdentityNew gives the VM its own hostname, machine-id and SSH host keys.
	IdentityNew Identity = "new"
	// IdentityKeep leaves those of the source in place.
	IdentityKeep Identity = "keep"
)

// CreateVMRequest is the body of POST /v5/vms.
type CreateVMRequest struct {
	// SnapshotID is a snapshot id, an own slug, an image name such as "pando/debian", or null for the default image.
	SnapshotID *string `json:"snapshotId,omitempty"`
	// Slug is a name that is unique among VMs.
	Slug *string `json:"slug,omitempty"`
	// DisplayName is a label for people.
	DisplayName *string `json:"displayName,omitempty"`
	// ReassignSlug takes Slug from the VM that has it once the new VM runs; that VM runs on without a slug.
	ReassignSlug *bool `json:"reassignSlug,omitempty"`
	// Metadata is noted on the VM; lists can be filtered by it.
	Metadata map[string]string `json:"metadata,omitempty"`
	// IdleTimeoutSeconds pauses the VM after so long without use; omitted, null and -1 mean never.
	IdleTimeoutSeconds *int64 `json:"idleTimeoutSeconds,omitempty"`
	// AutoDeleteSeconds deletes the VM after so long without running, 0 the moment it stops; omitted, null and -1 mean never.
	AutoDeleteSeconds *int64 `json:"autoDeleteSeconds,omitempty"`
	// TTLSeconds deletes the VM so long after its creation; omitted, null and -1 mean never.
	TTLSeconds *int64 `json:"ttlSeconds,omitempty"`
	// MaxRunSeconds pauses the VM when one run has lasted so long; omitted, null and -1 mean never.
	MaxRunSeconds *int64 `json:"maxRunSeconds,omitempty"`
	// MaxRunTotalSeconds pauses the VM for good when all its runs together have lasted so long; omitted, null and -1 mean never.
	MaxRunTotalSeconds *int64 `json:"maxRunTotalSeconds,omitempty"`
	// AutomaticRestart boots the VM again after a crash; omitted and null mean true.
	AutomaticRestart *bool `json:"automaticRestart,omitempty"`
	// Placement says which VMs this one must not share a host with; a rule that cannot be kept is a CONFLICT.
	Placement *Placement `json:"placement,omitempty"`
	// Firewall is required. VMs have no network yet: its rules are kept, and take
	// effect once they have one.
	Firewall *Firewall `json:"firewall"`
	// TLS holds rules that connect names with the VM; omitted and null mean none.
	TLS *TLSBlock `json:"tls,omitempty"`
	// Identity is "new" (default) or "keep".
	Identity Identity `json:"identity,omitempty"`
}

// UpdateVMRequest is the body of PATCH /v5/vms/{id}. What is omitted or null stays as it is.
type UpdateVMRequest struct {
	// Slug is a name that is unique among VMs; "" removes it.
	Slug *string `json:"slug,omitempty"`
	// ReassignSlug takes Slug from the VM that has it; that VM runs on without a slug.
	ReassignSlug *bool `json:"reassignSlug,omitempty"`
	// DisplayName is a label for people; "" removes it.
	DisplayName *string `json:"displayName,omitempty"`
	// IdleTimeoutSeconds pauses the VM after so long without use; -1 removes the limit.
	IdleTimeoutSeconds *int64 `json:"idleTimeoutSeconds,omitempty"`
	// AutoDeleteSeconds deletes the VM after so long without running, 0 the moment it stops; -1 removes the limit.
	AutoDeleteSeconds *int64 `json:"autoDeleteSeconds,omitempty"`
	// TTLSeconds deletes the VM so long after its creation; -1 removes the limit.
	TTLSeconds *int64 `json:"ttlSeconds,omitempty"`
	// MaxRunSeconds pauses the VM when one run has lasted so long; -1 removes the limit.
	MaxRunSeconds *int64 `json:"maxRunSeconds,omitempty"`
	// MaxRunTotalSeconds pauses the VM for good when all its runs together have lasted so long; -1 removes the limit.
	MaxRunTotalSeconds *int64 `json:"maxRunTotalSeconds,omitempty"`
	// AutomaticRestart says whether the VM is booted again after a crash.
	AutomaticRestart *bool `json:"automaticRestart,omitempty"`
	// Metadata is merged into what is there; "" as a value removes the key.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Placement says where a VM may be.
type Placement struct {
	// AntiAffinity lists at most 8 rules, all of which hold.
	AntiAffinity []AntiAffinity `json:"antiAffinity"`
}

// AntiAffinity keeps a VM away from others when it is created.
type AntiAffinity struct {
	// Topology is what must differ: "node", the host.
	Topology string `json:"topology"`
	// Selector says which VMs to keep away from.
	Selector Selector `json:"selector"`
}

// Selector selects VMs by their metadata.
type Selector struct {
	// MatchLabels has 1 to 8 entries, all of which must be in the metadata.
	MatchLabels map[string]string `json:"matchLabels"`
}

// ForkVMRequest is the body of POST /v5/vms/{id}/fork.
type ForkVMRequest struct {
	// Count is the number of children, 1 to 100; omitted means 1.
	Count *int `json:"count,omitempty"`
	// Slug is the prefix of the children's slugs: "try" gives try-1, try-2, …
	Slug *string `json:"slug,omitempty"`
	// DisplayName is the children's label; omitted means none.
	DisplayName *string `json:"displayName,omitempty"`
	// Metadata is the children's; omitted means the source's.
	Metadata map[string]string `json:"metadata,omitempty"`
	// Identity is "new" (default) or "keep".
	Identity Identity `json:"identity,omitempty"`
}

// ForkVMResponse is the answer to a fork: one entry per child asked for.
type ForkVMResponse struct {
	// Forks is in the order of the children's numbers.
	Forks []Fork `json:"forks"`
	// PauseMs is how long the source stood still for the capture, in milliseconds.
	PauseMs float64 `json:"pauseMs"`
}

// Fork is one child: exactly one of VM and Error is set.
type Fork struct {
	VM    *VM    `json:"vm,omitempty"`
	Error *Error `json:"error,omitempty"`
}

// ResizeVMRequest is the body of POST /v5/vms/{id}/resize. What is omitted or null
// stays as it is, and nothing can become smaller.
type ResizeVMRequest struct {
	// CPU is the number of virtual CPUs.
	CPU *int `json:"cpu,omitempty"`
	// Memory is in MiB. What is added is a multiple of 4.
	Memory *int `json:"memory,omitempty"`
	// Storage is the size of the root disk in MiB.
	Storage *int `json:"storage,omitempty"`
}

// ExecRequest is the body of POST /v5/vms/{id}/exec-await.
type ExecRequest struct {
	// Command is run by the user's login shell.
	Command string `json:"command"`
	// LinuxUser is the guest account; null means uid 1000, else root.
	LinuxUser *string `json:"linuxUser,omitempty"`
	// TimeoutMs is 1 to 86400000; null means 30000.
	TimeoutMs *int64 `json:"timeoutMs,omitempty"`
	// Env is added to the command's environment.
	Env map[string]string `json:"env,omitempty"`
	// Stdin is base64, at most 1 MiB when decoded.
	Stdin *string `json:"stdin,omitempty"`
}

// ExecResponse is the result of a command.
type ExecResponse struct {
	// ID names the command: GET …/exec/{sub}/output reads the whole output of one
	// whose answer was truncated.
	ID string `json:"id,omitempty"`
	// Stdout and Stderr are what the command wrote, up to a limit each.
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// StatusCode is the command's exit status; null if the timeout killed it.
	StatusCode *int `json:"statusCode"`
	// TimedOut is true if the timeout killed the command's process group.
	TimedOut bool `json:"timedOut,omitempty"`
	// StdoutBytes and StderrBytes are the full lengths, larger than what is
	// returned when the output was truncated.
	StdoutBytes int64 `json:"stdoutBytes"`
	StderrBytes int64 `json:"stderrBytes"`
	// Truncated is true if either output is not complete.
	Truncated bool `json:"truncated,omitempty"`
	// OOMKilled is true if the guest's kernel killed one of the command's
	// processes for want of memory.
	OOMKilled bool `json:"oomKilled,omitempty"`
	// OOMProcess is the name of the process that was killed.
	OOMProcess string `json:"oomProcess,omitempty"`
}
