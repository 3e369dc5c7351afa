// Package operation keeps what outlives the connection of a request: work that
// goes on after its client was told to ask later (Background), and the answers
// of requests that a client may repeat (Keys).
//
// Invariants: an answer that was handed out in line is not kept by Background,
// and one that was promised is kept for KeepResult or honestly refused; memory
// for kept answers is bounded; a request with an idempotency key is carried out
// by at most one caller at a time, and its answer is on disk before it is
// handed out; whatever a daemon that was killed left half done under a key is
// looked for before the request is carried out again.
//
// It knows answers as statuses, headers and bytes, and nothing of what they
// mean. It imports api and fault; transports and the wiring may import it.
package operation
