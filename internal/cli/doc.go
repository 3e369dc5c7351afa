// Package cli is the command line of Pando: one file per command, thin over
// the client in sdk.
//
// It owns what people and scripts see: flags, tables, progress, error texts
// and exit codes. Commands that act on VMs and snapshots speak HTTP only; what
// needs the host itself (images, doctor, serve) reaches it through the
// interfaces in deps.go.
//
// Invariants: stdout carries the result and nothing else, so that it can be
// piped; progress and errors go to stderr; with --json the result is one JSON
// document and there is no progress. Exit codes are 1 for a failure, 2 for
// wrong usage, 130 when interrupted; exec passes the remote command's code on
// and uses 124 for a timeout.
//
// It imports api, fault and sdk; only the wiring imports it.
package cli
