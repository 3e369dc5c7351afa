package operation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// The limits of idempotency keys.
const (
	// DefaultKeepKey is how long a key stands for the answer of its request.
	DefaultKeepKey = 24 * time.Hour
	// MaxKeyLength bounds a key.
	MaxKeyLength = 255
	// MaxKeptAnswer bounds the body of an answer that is kept under a key. For a
	// larger one, a repetition looks for what was made.
	MaxKeptAnswer = 8 << 20
)

// keyField is what errors call the key.
const keyField = "Idempotency-Key"

// Record is what is kept of a request with a key.
type Record struct {
	Owner, Key string
	// Fingerprint is a digest of everything that makes the request what it is.
	Fingerprint string
	// Seed is the origin of the ids of everything that the request makes, so
	// that its work can be found again.
	Seed string
	// Answer is nil until the request has been carried out.
	Answer    *Answer
	CreatedAt time.Time
}

// Records keeps records. All methods are safe for concurrent use, and what
// they wrote is on disk when they return.
type Records interface {
	// ClaimKey removes every record that was created until the moment given, and
	// returns the one of r's owner and key if there still is one. Otherwise it
	// stores r and returns it and true.
	ClaimKey(ctx context.Context, r Record, expired time.Time) (Record, bool, error)
	// ReseedKey gives the record without an answer another seed.
	ReseedKey(ctx context.Context, owner, key, seed string) error
	// AnswerKey adds the answer; Err and Replayed are not kept.
	AnswerKey(ctx context.Context, owner, key string, a Answer) error
	// DropKey removes the record. One that is not there is no error.
	DropKey(ctx context.Context, owner, key string) error
}

// Request is a request with a key.
type Request struct {
	Owner, Key, Fingerprint string
	// Do carries the request out. What it makes gets its ids from the seed.
	Do func(ctx context.Context, seed string) Answer
	// Find looks for what Do made from the seed before a daemon was killed, and
	// returns the answer that Do would have given, and true. False means that
	// nothing was made.
	Find func(ctx context.Context, seed string) (Answer, bool, error)
}

// Keys carries requests with an idempotency key out at most once. It is safe
// for concurrent use.
type Keys struct {
	records Records
	now     func() time.Time

	mu sync.Mutex
	// underWay are the requests of this process that are not finished.
	underWay map[identity]*flight
}

type identity struct{ owner, key string }

type flight struct {
	fingerprint string
	landed      chan struct{}
}

// NewKeys returns Keys over the records.
func NewKeys(r Records, now func() time.Time) *Keys {
	return &Keys{records: r, now: now, underWay: map[identity]*flight{}}
}

// CheckKey reports what is wrong with a key: it must have 1 to MaxKeyLength
// visible characters of ASCII.
func CheckKey(key string) error {
	ok := key != "" && len(key) <= MaxKeyLength
	for _, c := range []byte(key) {
		ok = ok && c > ' ' && c < 0x7f
	}
	if ok {
		return nil
	}
	return fault.BadField(keyField, "is not 1 to %d visible ASCII characters", MaxKeyLength).Hint("send a fresh UUID for each new request")
}

// Do returns the answer that the key stands for. The first call carries the
// request out; one that comes while it is under way waits for it, until ctx
// ends. An answer that a repetition may change (5xx, 408, 409, 429) is not
// remembered; after a 5xx, which may hide that something was made, the
// repetition looks for that first. The error is fault CONFLICT if the key came with another request
// before.
func (k *Keys) Do(ctx context.Context, r Request) (Answer, error) {
	if err := CheckKey(r.Key); err != nil {
		return Answer{}, err
	}
	for {
		f, mine := k.enter(r)
		switch {
		case f.fingerprint != r.Fingerprint:
			return Answer{}, reused()
		case mine:
			defer k.leave(r, f)
			return k.carryOut(ctx, r)
		}
		select {
		case <-f.landed:
		case <-ctx.Done():
			return Answer{}, underWay().With(context.Cause(ctx))
		}
	}
}

// enter returns the flight of the key, and whether the caller is its pilot.
func (k *Keys) enter(r Request) (*flight, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	id := identity{r.Owner, r.Key}
	if f := k.underWay[id]; f != nil {
		return f, false
	}
	f := &flight{fingerprint: r.Fingerprint, landed: make(chan struct{})}
	k.underWay[id] = f
	return f, true
}

func (k *Keys) leave(r Request, f *flight) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.underWay, identity{r.Owner, r.Key})
	close(f.landed)
}

func (k *Keys) carryOut(ctx context.Context, r Request) (Answer, error) {
	now := k.now()
	fresh := Record{Owner: r.Owner, Key: r.Key, Fingerprint: r.Fingerprint, Seed: newID(), CreatedAt: now}
	rec, claimed, err := k.records.ClaimKey(ctx, fresh, now.Add(-DefaultKeepKey))
	switch {
	case err != nil:
		return Answer{}, fmt.Errorf("claim idempotency key: %w", err)
	case rec.Fingerprint != r.Fingerprint:
		return Answer{}, reused()
	case rec.Answer != nil:
		a := *rec.Answer
		a.Replayed = true
		return a, nil
	case !claimed:
		return k.takeOver(ctx, r, rec)
	}
	return k.settle(ctx, r, r.Do(ctx, rec.Seed))
}

// takeOver goes on with a request that an earlier daemon began and did not
// finish: what it made is the answer; if it made nothing, it is carried out
// under another seed.
func (k *Keys) takeOver(ctx context.Context, r Request, rec Record) (Answer, error) {
	a, found, err := r.Find(ctx, rec.Seed)
	if err != nil {
		return Answer{}, fmt.Errorf("look for what an earlier request made: %w", err)
	}
	if found {
		return k.settle(ctx, r, a)
	}
	seed := newID()
	if err := k.records.ReseedKey(ctx, r.Owner, r.Key, seed); err != nil {
		return Answer{}, fmt.Errorf("take idempotency key over: %w", err)
	}
	return k.settle(ctx, r, r.Do(ctx, seed))
}

// settle remembers the answer, frees the key after a plain refusal, and leaves
// the record without an answer otherwise: a repetition then looks for what was
// made. For the same reason the answer is handed out even if this fails.
func (k *Keys) settle(ctx context.Context, r Request, a Answer) (Answer, error) {
	ctx = context.WithoutCancel(ctx)
	var err error
	switch {
	case refused(a):
		err = k.records.DropKey(ctx, r.Owner, r.Key)
	case a.Status < http.StatusInternalServerError && len(a.Body) <= MaxKeptAnswer:
		err = k.records.AnswerKey(ctx, r.Owner, r.Key, a)
	}
	if err != nil {
		a.Err = errors.Join(a.Err, fmt.Errorf("settle idempotency key: %w", err))
	}
	return a, nil
}

// refused reports whether nothing was done, and may be done another time.
func refused(a Answer) bool {
	switch a.Status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	}
	return false
}

func reused() error {
	f := fault.Conflict(api.ReasonIdempotencyKeyReused, "%s: it came with another request before", keyField)
	f.Field = keyField
	return f.Hint("send a new key with each new request, and the same request when repeating")
}

func underWay() *fault.Error {
	f := fault.Conflict(api.ReasonRequestUnderWay, "%s: the request that it came with first is not finished", keyField)
	f.Field = keyField
	return f.Hint("send the same request again in a moment")
}
