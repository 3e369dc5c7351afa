// Package layer owns the immutable files that VMs and snapshots are made of
// (RAM pages, disk blocks, kernels, device state) and the knowledge of who
// holds which.
//
// Invariants: a sealed layer never changes; a layer that somebody holds is
// never deleted; a layer whose last holder left is gone.
//
// Crash safety: a layer is usable as soon as it is sealed and durable once Sync
// has returned. Files are written under their final, random name, so a crash
// leaves at worst files that nobody holds, and Sweep removes those at the next
// start. What a crash can tear is a layer that was never synced; a manifest
// that has to survive must therefore be written after the Sync of all it names.
// Holders live in memory only: whoever opens a Store repeats every Hold from
// the manifests on disk before it calls Sweep.
//
// It imports api and fault; memory, disk, image, node and the wiring may import
// it, the domain may not.
package layer
