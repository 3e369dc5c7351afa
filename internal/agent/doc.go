// Package agent is the guest side of the guest link: it sets what an epoch
// orders and passes requests on to the packages below it.
//
// It owns the sessions on the port and, through System, the clock, the random generator and the identity of the machine it
// runs on.
//
// Invariants:
//   - A preamble restarts the link at any moment; what runs in the guest goes on.
//   - An epoch is confirmed only after everything in it has been done.
//
// It must stay small, because its code is the first that a restored VM runs: no
// net/http, no encoding/json, no reflection on the path of an exec. cmd/pando-agent
// and internal/guest/guesttest import it; nothing else may.
package agent
