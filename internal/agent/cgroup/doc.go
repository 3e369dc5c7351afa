// Package cgroup divides the guest between the agent and what the agent starts.
//
// It owns one cgroup (version 2) and all below it: a common group, which holds
// back a part of memory and of process numbers, and in it one group for each
// command or terminal. The agent itself is outside of it, with memory of its own
// that is never taken away and a larger share of the processors.
//
//	/sys/fs/cgroup/commands.slice/run        memory.max pids.max
//	/sys/fs/cgroup/commands.slice/run/1…     memory.max pids.max, one per command
//
// Under systemd the outermost group is a slice without units, which systemd makes
// and leaves alone; without systemd the agent makes pando-commands. A group that
// a command has left processes in stays until they end; one that is empty is
// used again, ready with its limits.
//
// Invariants:
//   - A process is born in its group, so that nothing it starts is ever outside.
//   - A guest without version 2, or whose groups somebody has removed, runs its
//     commands all the same.
//
// It is on the path of the first command in a restored VM: no reflection, no
// encoding/json. cmd/pando-agent and internal/guest/guesttest import it for the
// wiring, and the packages below internal/agent that start processes.
package cgroup
