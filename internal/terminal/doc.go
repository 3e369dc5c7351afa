// Package terminal has the use cases on terminal sessions of VMs: open, look at,
// list, close.
//
// It owns the rules for names and sizes, and the views of clients: a View goes
// on looking when its VM is paused and resumed or the link to the guest breaks,
// which shows as a screen that is drawn again. The sessions themselves belong to
// the guest; nothing about them is stored here.
//
// Typing counts as use of the VM and wakes it if it is paused; looking does
// neither. It imports no driver and no transport; internal/daemon and transports
// may import it.
package terminal
