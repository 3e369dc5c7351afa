// Package agent is the guest side of the guest link: it sets what an epoch
// orders and runs commands.
//
// It owns the sessions on the port, the processes it starts, and, through
// System, the clock, the random generator and the identity of the machine it
// runs on.
//
// Invariants:
//   - A preamble restarts the link at any moment; a command goes on when the link
//     drops, its output being read and thrown away so that it is never stopped by
//     a full or a broken pipe.
//   - A command starts only when its whole order and input have arrived.
//   - An epoch is confirmed only after everything in it has been done.
//   - The agent waits for its own children only: it is not PID 1.
//
// It must stay small, because its code is the first that a restored VM runs: no
// net/http, no encoding/json, no reflection on the path of an exec. cmd/pando-agent
// and internal/guest/guesttest import it; nothing else may.
package agent
