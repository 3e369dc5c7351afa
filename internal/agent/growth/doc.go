// Package growth takes into use what the host has added to the machine: it
// brings CPUs and memory online and grows the root file system over its disk.
//
// It owns no state. The kernel is told of new hardware by interrupts of its own,
// which may be later than the order, so everything is waited for.
//
// Invariants: nothing is ever taken offline or made smaller; an order that was
// carried out can be repeated.
//
// internal/agent/setup imports it for the wiring; nothing else may.
package growth
