// Package storetest is the suite that every store must pass. It uses the
// repositories' interfaces alone, so it says what they promise.
package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/network"
	"github.com/pandovm/pando/internal/operation"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/vm"
)

// Store is what the suite tests.
type Store interface {
	vm.Repository
	vm.Journal
	snapshot.Repository
	operation.Records
	network.Repository
	network.Machines
}

// Opener returns a store over the records in dir, which lives as long as the
// test, and a function that closes it. The suite opens the same dir again to
// see that records last.
type Opener func(t *testing.T, dir string, now func() time.Time) (s Store, closeStore func())

// Clock is a clock that moves only when told.
type Clock struct {
	mu sync.Mutex
	t  time.Time
}

// NewClock returns a clock that stands at a fixed moment.
func NewClock() *Clock {
	return &Clock{t: time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)}
}

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// bench is a fresh store with its clock.
type bench struct {
	Store
	t     *testing.T
	clock *Clock
}

// Run runs the suite.
func Run(t *testing.T, open Opener) {
	t.Helper()
	for name, test := range map[string]func(*bench){
		"VM/round trip":              vmRoundTrip,
		"VM/zero times are set":      vmTimes,
		"VM/find":                    vmFind,
		"VM/slug is unique":          vmSlug,
		"VM/slug is taken over":      vmTakeover,
		"VM/kept apart":              vmApart,
		"VM/note of use":             vmNoteUse,
		"VM/update":                  vmUpdate,
		"VM/failed update":           vmFailedUpdate,
		"VM/concurrent updates":      vmConcurrentUpdates,
		"VM/delete":                  vmDelete,
		"VM/list order and pages":    vmPages,
		"VM/list filters":            vmFilters,
		"VM/list counts":             vmCounts,
		"VM/list equals a model":     vmModel,
		"VM/values are the caller's": vmAliasing,
		"VM/cancelled":               vmCancelled,
		"Snapshot/round trip":        snapshotRoundTrip,
		"Snapshot/find":              snapshotFind,
		"Snapshot/slug is unique":    snapshotSlug,
		"Snapshot/update":            snapshotUpdate,
		"Snapshot/delete":            snapshotDelete,
		"Snapshot/list":              snapshotList,
		"Intents/life":               intentLife,
		"Rules/round trip":           ruleRoundTrip,
		"Rules/TLS round trip":       tlsRoundTrip,
		"Rules/go with their VMs":    ruleCascade,
		"Rules/lists":                ruleLists,
		"Rules/one place per domain": ruleDoors,
		"Rules/limit":                ruleLimit,
		"Rules/names of VMs":         machines,
		"Keys/life":                  keyLife,
		"Keys/owners":                keyOwners,
		"Keys/an answer of nothing":  keyEmptyAnswer,
		"Keys/expiry":                keyExpiry,
		"Keys/one claims":            keyRace,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := NewClock()
			s, done := open(t, t.TempDir(), clock.Now)
			defer done()
			test(&bench{s, t, clock})
		})
	}
	t.Run("records last", func(t *testing.T) {
		t.Parallel()
		reopen(t, open)
	})
}

func reopen(t *testing.T, open Opener) {
	t.Helper()
	dir, clock := t.TempDir(), NewClock()
	s, done := open(t, dir, clock.Now)
	v, r := fullVM("vm-1"), fullSnapshot()
	must(t, s.InsertVM(t.Context(), v))
	must(t, s.InsertSnapshot(t.Context(), r))
	must(t, s.BeginIntent(t.Context(), vm.Intent{ID: "in-1", Kind: vm.IntentDelete, VMID: "vm-1"}))
	rulesLast(t, s)
	answer := anAnswer()
	key := operation.Record{Owner: "acct", Key: "k", Fingerprint: "f", Seed: "s", CreatedAt: clock.Now(), Answer: &answer}
	_, _, err := s.ClaimKey(t.Context(), key, never())
	must(t, err)
	must(t, s.AnswerKey(t.Context(), "acct", "k", answer))
	done()

	s, done = open(t, dir, clock.Now)
	defer done()
	equal(t, value(s.FindVM(t.Context(), "vm-1"))(t), v)
	equal(t, value(s.FindSnapshot(t.Context(), "sh-1"))(t), r)
	rulesLasted(t, s)
	kept, claimed, err := s.ClaimKey(t.Context(), operation.Record{Owner: "acct", Key: "k"}, never())
	must(t, err)
	if equal(t, kept, key); claimed {
		t.Error("the key was free after reopening")
	}
	if intents := value(s.OpenIntents(t.Context()))(t); len(intents) != 1 {
		t.Errorf("open intents after reopening: %v, want one", intents)
	}
}

func intentLife(b *bench) {
	t := b.t
	ctx := t.Context()
	if open := value(b.OpenIntents(ctx))(t); len(open) != 0 {
		t.Errorf("a new store has intents: %v", open)
	}
	first := vm.Intent{ID: "in-b", Kind: vm.IntentDelete, VMID: "vm-1", CreatedAt: b.clock.Now().Add(time.Minute)}
	second := vm.Intent{ID: "in-a", Kind: "other", VMID: "vm-2", CreatedAt: b.clock.Now()}
	must(t, b.BeginIntent(ctx, first))
	must(t, b.BeginIntent(ctx, vm.Intent{ID: second.ID, Kind: second.Kind, VMID: second.VMID}))
	must(t, b.BeginIntent(ctx, vm.Intent{ID: first.ID, Kind: "changed"}))
	equal(t, value(b.OpenIntents(ctx))(t), []vm.Intent{first, second})
	must(t, b.EndIntent(ctx, first.ID))
	must(t, b.EndIntent(ctx, first.ID))
	equal(t, value(b.OpenIntents(ctx))(t), []vm.Intent{second})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// value makes a pair of value and error one value, or fails the test.
func value[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// equal compares records; a nil list or map equals an empty one.
func equal[T any](t *testing.T, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func wantFault(t *testing.T, err error, code api.Code, reason api.Reason) {
	t.Helper()
	f := fault.As(err)
	if f == nil || f.Code != code || f.Reason != reason {
		t.Fatalf("got %v, want a fault %s %s", err, code, reason)
	}
}

func vmID(i int) string { return fmt.Sprintf("vm-%03d", i) }

var errRefused = errors.New("refused")
