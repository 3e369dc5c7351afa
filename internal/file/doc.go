// Package file is what can be done with the files of a VM: the rules for paths,
// the limits, checksums, archives and uploads in parts.
//
// A Service checks an order, wakes the VM and passes the order on to the node;
// content streams through it and is never held. Checksums are computed here, on
// the host, while the content passes: in an emulated guest they would cost more
// than the transfer.
//
// Uploads live in the guest, in the agent's memory and in a temporary file beside
// the target. So they outlive the daemon, last as long as the guest's agent, pause
// with the VM, and a fork's child has its own copy of them under the same id. What
// the daemon keeps is the running checksum; one that it has lost is computed again
// from what the guest has received.
//
// The package declares what it needs of VMs and nodes. It imports no driver and no
// transport; transports and the wiring import it.
package file
