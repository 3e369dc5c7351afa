// Package command runs the commands that the host orders.
//
// It owns the processes of execs and their output.
//
// Invariants:
//   - A command starts only when its whole order and input have arrived.
//   - A command goes on when the link drops, its output being read, so that it is
//     never stopped by a full or a broken pipe.
//
// It is on the path of the first command in a restored VM: no reflection, no
// encoding/json. cmd/pando-agent and internal/guest/guesttest import it for the
// wiring; nothing else may.
package command
