package command

// Cgroups gives each command a control group of its own. It is safe for
// concurrent use.
type Cgroups interface {
	// Make makes a group, or returns nil if that cannot be.
	Make() Group
}

// Group is a control group of one command.
type Group interface {
	// FD is the group's folder, for starting a process in it.
	FD() int
	// Kill kills everything in it.
	Kill()
	// OOM tells whether the kernel killed one of its processes for want of
	// memory, and which.
	OOM() (killed bool, process string)
	// Release gives the group up, once the command has ended. Processes that it
	// left behind go on.
	Release()
}
