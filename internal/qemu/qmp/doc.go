// Package qmp speaks the QEMU Machine Protocol: one JSON object per line over a
// unix stream socket, commands answered by id, events at any time.
//
// It owns the connection and nothing else: what the commands mean is the
// business of package qemu, the only importer.
//
// Invariants: QEMU may be hostile, so every line is bounded (MaxLine) and a line
// that is not the protocol ends the client; the reader never waits for a
// subscriber; at most one command that carries descriptors is in flight, because
// QEMU forgets the descriptors of one message when the next brings others; after
// Done is closed no goroutine of the client is left and every waiting call has
// returned.
package qmp
