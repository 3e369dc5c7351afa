package pando

import (
	"context"
	"crypto/rand"
	"errors"
	"time"
)

// idempotencyHeader names a request, so that the daemon carries it out once
// however often it arrives.
const idempotencyHeader = "Idempotency-Key"

type idempotencyKey struct{}

// WithIdempotencyKey returns a context whose calls of Create, Fork and Snapshot
// have that key instead of one of their own: 1 to 255 visible ASCII characters.
// A program that keeps the key can make the call again after its own crash and
// gets the same answer, for 24 hours. One key is for one call and its
// repetitions.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, idempotencyKey{}, key)
}

// callOnce is callOn for a call that makes things. It has a key, so it is safe
// to make it again when the connection is lost, and that is done for a while.
func callOnce[T any](ctx context.Context, c *Client, method, path string, in any) (T, error) {
	if _, given := ctx.Value(idempotencyKey{}).(string); !given {
		ctx = WithIdempotencyKey(ctx, rand.Text())
	}
	for attempt := 0; ; attempt++ {
		out, err := call[T](ctx, c, method, path, in)
		if err == nil || attempt == len(c.patience) || !lost(err, attempt) {
			return out, err
		}
		timer := time.NewTimer(c.patience[attempt])
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return out, err
		}
	}
}

// patience is how long to wait before each further try: together, long enough
// for a daemon to be started again.
func patience() []time.Duration {
	return []time.Duration{250 * time.Millisecond, time.Second, 3 * time.Second, 6 * time.Second}
}

// lost reports whether the connection broke before there was an answer. A
// daemon that cannot be reached at all is not waited for, unless it was there
// a moment ago.
func lost(err error, attempt int) bool {
	var e *TransportError
	return errors.As(err, &e) && !e.foreign && (!e.Unreached || attempt > 0)
}
