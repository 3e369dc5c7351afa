// Package screen is the state of a terminal: what a terminal on which the same
// bytes had been shown would look like, and how it would react to the next ones.
//
// It owns main and alternate screen, scrollback, modes, attributes, tab stops,
// margins, charsets, cursors and titles, after the common subset of VT500 and
// xterm. Three things make it what a session needs:
//
//   - Snapshot writes bytes that bring any other terminal of the same size into
//     the same state, so a viewer that comes later misses nothing.
//   - Feed returns what viewers are to be shown, in whole sequences: a viewer's
//     parser is always at rest between two calls. Questions to the terminal are
//     taken out of it and answered here, once, whether there are viewers or not.
//   - Memory is bounded whatever the program writes.
//
// A Screen is not safe for concurrent use: its session has the lock. It imports
// the standard library only; internal/agent/terminal may import it.
package screen
