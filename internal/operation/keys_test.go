package operation_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/operation"
	"github.com/pandovm/pando/internal/store"
	"github.com/pandovm/pando/internal/store/storetest"
)

// shop makes things under keys, on records that last.
type shop struct {
	*operation.Keys
	t     *testing.T
	path  string
	clock *storetest.Clock
	store *store.Store

	mu sync.Mutex
	// made counts what exists per seed.
	made map[string]int
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, path: filepath.Join(t.TempDir(), "pando.db"), clock: storetest.NewClock(), made: map[string]int{}}
	s.open()
	t.Cleanup(func() { s.shut() })
	return s
}

func (s *shop) open() {
	s.t.Helper()
	var err error
	if s.store, err = store.Open(context.WithoutCancel(s.t.Context()), s.path, s.clock.Now); err != nil {
		s.t.Fatal(err)
	}
	s.Keys = operation.NewKeys(s.store, s.clock.Now)
}

func (s *shop) shut() {
	if err := s.store.Close(); err != nil {
		s.t.Error(err)
	}
}

// restart is a daemon that ended, and another that began.
func (s *shop) restart() {
	s.shut()
	s.open()
}

// order makes one thing and answers with its seed.
func (s *shop) order(key, fingerprint string) operation.Request {
	return operation.Request{
		Owner: "me", Key: key, Fingerprint: fingerprint,
		Do: func(_ context.Context, seed string) operation.Answer {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.made[seed]++
			return answer(201, seed)
		},
		Find: func(_ context.Context, seed string) (operation.Answer, bool, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return answer(201, seed), s.made[seed] > 0, nil
		},
	}
}

func (s *shop) do(r operation.Request) operation.Answer {
	s.t.Helper()
	a, err := s.Do(s.t.Context(), r)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *shop) things() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, made := range s.made {
		n += made
	}
	return n
}

func TestSameAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	first := s.do(s.order("k", "f"))
	if first.Replayed || len(first.Body) == 0 {
		t.Errorf("the first answer: %+v", first)
	}
	for range 2 {
		again := s.do(s.order("k", "f"))
		if !again.Replayed {
			t.Error("the second answer is not marked")
		}
		again.Replayed = false
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("-first +second:\n%s", diff)
		}
		s.restart()
	}
	if s.things() != 1 {
		t.Errorf("%d things were made", s.things())
	}
	if other := s.do(s.order("k2", "f")); string(other.Body) == string(first.Body) {
		t.Error("two keys have one seed")
	}
}

func TestOwnersAreApart(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.do(s.order("k", "f"))
	theirs := s.order("k", "other")
	theirs.Owner = "you"
	if a := s.do(theirs); a.Replayed {
		t.Error("one owner got the answer of another")
	}
}

func TestAnotherRequest(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.do(s.order("k", "f"))
	_, err := s.Do(t.Context(), s.order("k", "g"))
	if !fault.HasReason(err, api.ReasonIdempotencyKeyReused) || code(err) != api.CodeConflict {
		t.Errorf("got %v", err)
	}
	if s.things() != 1 {
		t.Errorf("%d things were made", s.things())
	}
}

func TestKeyExpires(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.do(s.order("k", "f"))
	s.clock.Advance(operation.DefaultKeepKey - 1)
	if !s.do(s.order("k", "f")).Replayed {
		t.Error("the key expired too early")
	}
	s.clock.Advance(1)
	if s.do(s.order("k", "another")).Replayed {
		t.Error("the key did not expire")
	}
}

// TestWhatIsRemembered: a refusal that may pass is forgotten, a lasting one is
// not, and after a failure the key still stands for its request.
func TestWhatIsRemembered(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct {
		replayed bool
		// another is whether the key is free for another request.
		another bool
	}{
		200: {true, false}, 204: {true, false}, 400: {true, false}, 404: {true, false},
		408: {false, true}, 409: {false, true}, 429: {false, true},
		500: {false, false}, 503: {false, false},
	} {
		s := newShop(t)
		r := s.order("k", "f")
		r.Do = func(context.Context, string) operation.Answer { return answer(status, "first") }
		s.do(r)
		again := s.order("k", "f")
		if a := s.do(again); a.Replayed != want.replayed {
			t.Errorf("%d: replayed is %v", status, a.Replayed)
		}
		s = newShop(t)
		r.Find = s.order("k", "f").Find
		s.do(r)
		if _, err := s.Do(t.Context(), s.order("k", "g")); (err == nil) != want.another {
			t.Errorf("%d: another request: %v", status, err)
		}
	}
}

// TestKilled: the daemon dies after something was made and before the answer
// was kept, or before anything was made.
func TestKilled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		made bool
		want string
	}{
		"after it was made":  {true, "found"},
		"before it was made": {false, "made anew"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			var seed string
			r := s.order("k", "f")
			r.Do = func(_ context.Context, given string) operation.Answer {
				if seed = given; c.made {
					s.made[seed]++
				}
				s.shut() // From here on nothing can be kept.
				return answer(201, "lost")
			}
			if a := s.do(r); a.Err == nil || a.Status != 201 {
				t.Errorf("an answer that could not be kept: %+v", a)
			}
			s.open()
			a := s.do(s.order("k", "f"))
			if s.things() != 1 {
				t.Errorf("%d things exist", s.things())
			}
			if found := string(a.Body) == seed; found != c.made {
				t.Errorf("got %s, want it %s", a.Body, c.want)
			}
			if again := s.do(s.order("k", "f")); !again.Replayed || string(again.Body) != string(a.Body) {
				t.Errorf("the settled answer is not kept: %+v", again)
			}
			if _, err := s.Do(t.Context(), s.order("k", "g")); !fault.HasReason(err, api.ReasonIdempotencyKeyReused) {
				t.Errorf("another request: %v", err)
			}
		})
	}
}

func TestFindFails(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.order("k", "f")
	r.Do = func(context.Context, string) operation.Answer { return answer(500, "") }
	s.do(r)
	broken := errors.New("broken")
	r.Find = func(context.Context, string) (operation.Answer, bool, error) {
		return operation.Answer{}, false, broken
	}
	if _, err := s.Do(t.Context(), r); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if a := s.do(s.order("k", "f")); a.Status != 201 || s.things() != 1 {
		t.Errorf("got %+v and %d things", a, s.things())
	}
}

// TestHugeAnswer: it is too large to keep, and still nothing is made twice.
func TestHugeAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	r := s.order("k", "f")
	r.Do = func(_ context.Context, seed string) operation.Answer {
		s.made[seed]++
		return operation.Answer{Status: 200, Body: make([]byte, operation.MaxKeptAnswer+1)}
	}
	s.do(r)
	if a := s.do(s.order("k", "f")); a.Status != 201 || s.things() != 1 {
		t.Errorf("got status %d and %d things", a.Status, s.things())
	}
}

// TestRepetitionWaits: many at once, one thing, one answer.
func TestRepetitionWaits(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	begun, goOn := make(chan struct{}), make(chan struct{})
	first := s.order("k", "f")
	do := first.Do
	first.Do = func(ctx context.Context, seed string) operation.Answer {
		close(begun)
		<-goOn
		return do(ctx, seed)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	bodies := map[string]int{}
	note := func(a operation.Answer) {
		mu.Lock()
		defer mu.Unlock()
		bodies[string(a.Body)]++
	}
	all.Go(func() { note(s.do(first)) })
	<-begun
	for range 7 {
		all.Go(func() { note(s.do(s.order("k", "f"))) })
	}
	if _, err := s.Do(t.Context(), s.order("k", "g")); !fault.HasReason(err, api.ReasonIdempotencyKeyReused) {
		t.Errorf("another request meanwhile: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Do(gone, s.order("k", "f")); !fault.HasReason(err, api.ReasonRequestUnderWay) {
		t.Errorf("a client that does not wait: %v", err)
	}
	close(goOn)
	all.Wait()
	if len(bodies) != 1 || s.things() != 1 {
		t.Errorf("answers %v, %d things", bodies, s.things())
	}
}

func TestCheckKey(t *testing.T) {
	t.Parallel()
	for key, good := range map[string]bool{
		"a": true, "!~": true, strings.Repeat("k", operation.MaxKeyLength): true,
		"": false, " a": false, "a b": false, "ä": false, "a\x00": false, "a\x7f": false, "a\n": false,
		strings.Repeat("k", operation.MaxKeyLength+1): false,
	} {
		err := operation.CheckKey(key)
		if (err == nil) != good || (!good && code(err) != api.CodeBadRequest) {
			t.Errorf("%.20q: %v", key, err)
		}
		if !good {
			s := newShop(t)
			if _, err := s.Do(t.Context(), s.order(key, "f")); code(err) != api.CodeBadRequest || s.things() != 0 {
				t.Errorf("%.20q was carried out: %v", key, err)
			}
		}
	}
}
