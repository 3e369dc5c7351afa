// Package qemu owns what a VM's QEMU process is: the machine model and its
// command line, the probe of what this host's QEMU can do, and the typed orders
// that are given to a running QEMU over its monitor.
//
// Invariants: the command line is a function of Machine alone, and everything in
// it that the guest can see belongs to the snapshot (see Machine); all sockets
// are servers on QEMU's side; no migration target other than a passed descriptor
// is ever used; a monitor is opened with the migration capabilities already set,
// so that nothing is left to prepare while a guest stands still.
//
// The package starts no process: jail does, from Args and Env. It is imported by
// node, doctor and the wiring.
package qemu
