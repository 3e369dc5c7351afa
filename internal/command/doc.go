// Package command runs commands in VMs and shows what runs there.
//
// It owns the rules for orders (their limits, their ids, their signals) and the
// use cases on commands: run and wait, start and follow, feed, signal, list,
// forget. The commands themselves, their output and their records are in the
// guest, with its agent: they live through restarts of the daemon, through pause
// and resume, and a fork's child has its own copy of each.
//
// Invariants:
//   - An order is checked before the VM is woken.
//   - Commands order neither each other nor the use cases of package vm; the VM
//     counts as busy while somebody waits for a command or follows it.
//   - Whoever follows may go away; the command does not notice.
//
// It knows no driver and no transport. Transports and the wiring import it, and
// nodes implement Node.
package command
