// Package upgrade replaces the agent of a running guest.
//
// It owns the agent's file, the one beside it that keeps the old agent
// (FILE.old), and the mark that says that the new one is on trial.
//
//	receive FILE.new → sum right? → FILE.new --version right? → link FILE.old
//	  → rename over FILE → FILE.old --guard → execve FILE, the same process
//	host: epoch with the new agent → upgraded → the mark and FILE.old go
//	nobody said so in time: the guard renames FILE.old over FILE and ends the
//	  agent; init starts it anew
//
// Invariants:
//   - FILE is at every moment a whole agent.
//   - Until the host has said that the new agent is good, the old one is on the
//     disk and somebody waits to bring it back. A VM that is switched off in
//     between keeps the new one.
//   - What runs in the guest goes on; it is cut off from the host only if the
//     order says so.
//
// cmd/pando-agent and internal/agent/setup import it; nothing else may.
package upgrade
