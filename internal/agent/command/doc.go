// Package command runs the commands that the host orders, and keeps what they
// print and how they ended.
//
// It owns the processes of commands, their records and the folder of kept output.
//
// Invariants:
//   - A command starts only when its whole order and the input that comes with it
//     have arrived. It lives on when the link drops.
//   - A command is held back only by a host that follows it and is slow, never by
//     the lack of one: what nobody fetches is kept up to a bound, and then
//     counted and dropped.
//   - Memory is bounded whatever a command prints; so is the disk, by a share of
//     its size and by what is free.
//   - Nothing of a short command is written to the disk before the host has its
//     answer.
//
// It is on the path of the first command in a restored VM: no reflection, no
// encoding/json. cmd/pando-agent and internal/guest/guesttest import it for the
// wiring; nothing else may.
package command
