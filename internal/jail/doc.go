// Package jail owns how a VM's process is confined, started, recognised and
// ended.
//
// The pando binary starts itself again as a launcher (LauncherArg) in new
// mount, network, IPC and UTS namespaces. The launcher reads its orders from a
// memory file, joins the cgroups, builds a root of a few read-only binds, drops every
// privilege and becomes the program:
//
//	daemon ── clone(NEWNS|NEWNET|NEWIPC|NEWUTS), setsid ──▶ launcher ── execve ──▶ program
//	   │ orders (memory file) ───────────────────────────────▶ │
//	   │ ◀──── 0 "about to execve", or what went wrong (pipe) ─┘   end of file = it runs
//
// Invariants: the program has no capability, cannot gain one, and sees no file
// but the system's programs and libraries (read-only) and the given mounts; it
// is in its cgroup before its first instruction; it outlives the daemon; a
// process is only ever signalled through a pidfd whose start time was compared,
// so a recycled pid is never hit; a Start that fails leaves no process.
//
// Without root the launcher uses a user namespace and keeps the caller's uid;
// where the host forbids that too, the program still loses privileges and gets
// resource limits, but sees the host's files and network. Jail.Level says which.
//
// The package is imported by node, doctor and the two mains; it imports nothing
// of the product.
package jail
