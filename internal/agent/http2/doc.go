// Package http2 is the server half of HTTP/2 (RFC 9113), the part that one
// well-behaved client over one private byte stream needs.
//
// It owns the framing, the streams and their flow control; it knows neither
// where the bytes come from nor what the requests mean. It exists because the
// first request after a restore is paid in code that the processor (or its
// emulator) meets for the first time. From resume to the first answer an emulated
// guest translates a third fewer blocks of code with it than with the server of
// net/http (9,900 against 14,500), and the agent is less than half as large.
//
// Invariants: Feed never blocks, so that whoever feeds can notice the start of a
// new session in the middle of this one; output goes into a bounded buffer that
// one writer drains; request headers other than :path are ignored; what breaks
// the protocol ends the connection.
//
// internal/agent imports it; nothing else may.
package http2
