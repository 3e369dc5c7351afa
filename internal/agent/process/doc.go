// Package process starts processes in the guest and looks accounts up.
//
// It owns the children that it starts until they are reaped: a Process that has
// not been reaped keeps its pid, so that a signal never reaches another.
//
// Invariants:
//   - A child is the leader of its own session and process group, with its own
//     account's uid, gid and groups, and without the agent's protection from the
//     OOM killer, from its first instruction on.
//   - Only children of this package are waited for: the agent is not PID 1.
//
// It is on the path of the first command in a restored VM: no reflection, no
// encoding/json. internal/agent and the packages below it import it, and
// cmd/pando-agent and internal/guest/guesttest for the wiring.
package process
