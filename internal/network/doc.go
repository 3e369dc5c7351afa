// Package network owns the rules of the network: which traffic the firewall
// allows, and which names TLS rules connect with VMs.
//
// Invariants: everything is closed unless a rule allows it; a rule that is kept
// has passed every check, names only things that exist, and is deleted with any
// of them; ids stand in it, never slugs; secrets are neither kept nor repeated
// in errors. The rules are kept now and enforced once VMs have a network.
//
// It declares the interfaces that it needs and imports api and fault only.
// Transports and the wiring may import it; drivers only to implement what it
// declares.
package network
