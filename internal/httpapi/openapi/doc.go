// Package openapi makes the OpenAPI 3.1 document of the API from three sources
// that cannot disagree with the daemon: its route table, the Go types of the
// bodies, and the comments in package api.
//
// It runs in a test, which keeps api/openapi.json up to date and fails if a
// field has no comment. No program imports it.
package openapi
