// Package doctor owns the examination of a host: what it must and should have
// for Pando, what was seen, and the command that mends what is missing.
//
// Invariants: a check changes nothing on the host and never fails as a whole:
// what cannot be found out is itself a result; every result that is not ok
// names a fix. It imports the drivers whose needs it examines (qemu, jail); the
// command line and the wiring import it.
package doctor
