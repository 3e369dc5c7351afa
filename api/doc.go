// Package api holds the wire types, states and error codes of Pando's /v5 HTTP API.
//
// It owns the JSON shapes and nothing else: no behaviour, no validation, no I/O.
// It imports only the standard library, so that clients can depend on it alone.
// Anything in this module may import it.
package api
