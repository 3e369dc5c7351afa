// Package store keeps the records of what is wanted: VMs, snapshots and the
// intents of work under way, in one SQLite file.
//
// Invariants: every change is one transaction, on disk when the call returns;
// one connection writes, so writes are ordered; readers see a whole state and
// never wait for the writer; slugs are unique per kind; times are integer
// nanoseconds UTC. A file made by a newer schema is refused.
//
// The package implements vm.Repository, vm.Journal, snapshot.Repository,
// operation.Records, network.Repository and network.Machines, and passes the suite in storetest, as any other
// implementation must. It imports the domain for its types; only the wiring (daemon) and tests may import it.
package store
