// Package terminal owns terminal sessions: a pseudo-terminal, the program on it
// and the state of the screen.
//
// Invariants:
//   - A session lives in the guest's memory and belongs to nobody outside: it goes
//     on without viewers, through pauses and forks, and when the host's daemon ends.
//   - A viewer gets the exact screen and then what follows, nothing twice and
//     nothing left out: both are taken under the session's lock.
//   - No viewer holds the program or another viewer up for more than a tenth of
//     the time. One that falls behind gets a fresh screen instead of what it missed.
//   - Memory is bounded, for each session and for all together.
//
// internal/agent/setup imports it; nothing else may.
package terminal
