// Package vm owns what a VM is: its states, the table of allowed transitions,
// and the use cases that change it (create, start, stop, pause, snapshot, fork,
// exec, delete).
//
// Invariants: every change of a VM's state goes through the transition table;
// at most one use case changes a VM at a time; a VM is handed out only after
// its guest confirmed the epoch; delete works from every state.
//
// The package imports api, fault and snapshot; it reaches hosts, the store and
// the image catalogue only through the interfaces it declares in ports.go.
// Transports (httpapi) and the wiring (daemon) import it; drivers that
// implement its interfaces (node, store) may import it for the types.
package vm
