// Package archtest holds the rules between packages, as tests: who may import
// whom, what the guest agent may link, that every package says what it is, and
// how long a file may be.
//
// It has no code of its own and nothing imports it.
package archtest
