// Package httpapi is the HTTP transport of the /v5 API: it checks the key,
// decodes requests strictly, calls a use case and writes its result.
//
// Invariants: every answer is JSON, and every one outside 2xx is the envelope
// api.Error; a request that is refused has called nothing; a handler that
// panics is an INTERNAL_ERROR, never a dropped connection; what a client asked
// for and this version cannot do is an error, never ignored.
//
// It declares the interfaces that it consumes and imports api, fault and the
// domain for its types. Only the wiring (daemon) and tests may import it.
package httpapi
