package api

import "time"

// VMStats is what one VM uses on its host at one moment.
type VMStats struct {
	// ID is "vm-" and a UUID.
	ID string `json:"id"`
	// Slug is the VM's name, null if it has none.
	Slug *string `json:"slug"`
	// State is where the VM is in its life.
	State State `json:"state"`
	// Resources is the size that the guest sees.
	Resources Resources `json:"resources"`
	// At is when this was measured.
	At time.Time `json:"at"`
	// UptimeSeconds is how long the present run has lasted; 0 if there is none.
	UptimeSeconds float64 `json:"uptimeSeconds"`
	// CPUTimeSeconds is the processor time of the VM's process, guest and
	// emulation together, since it was started; 0 if nothing runs.
	CPUTimeSeconds float64 `json:"cpuTimeSeconds"`
	// MemorySharedBytes is host memory that the VM has in common with others,
	// such as the pages of the image that all its relatives run from.
	MemorySharedBytes int64 `json:"memorySharedBytes"`
	// MemoryUniqueBytes is host memory that only this VM uses.
	MemoryUniqueBytes int64 `json:"memoryUniqueBytes"`
	// DiskBytes is what deleting the VM would free on the host's disk: what it
	// wrote itself, and its saved memory while it is paused.
	DiskBytes int64 `json:"diskBytes"`
}

// VMStatsList is what every VM uses, newest VM first.
type VMStatsList struct {
	VMs []VMStats `json:"vms"`
}
