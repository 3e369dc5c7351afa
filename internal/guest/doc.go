// Package guest is the host side of the guest link: it opens an epoch with the
// agent in a VM and orders commands from it.
//
// It owns the connection to a VM's agent socket for as long as a Link is open,
// and the making of identities for guests.
//
// Invariants: nobody gets a Link whose epoch the guest has not confirmed in
// every part; whatever the guest sends is bounded and checked, because it may be
// hostile; a Link that has failed stays failed.
//
// internal/node imports it, and internal/image for building.
package guest
