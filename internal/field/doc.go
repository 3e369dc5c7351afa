// Package field owns the fields that several kinds of objects have: what is a
// slug, a display name, and a number of seconds that sets a timer.
//
// It keeps nothing and imports fault only; the domain and the transports may
// import it.
package field
