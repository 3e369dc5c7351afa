package httpapi_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/store"
	"github.com/pandovm/pando/internal/vm"
)

const createBody = `{"firewall":{"rules":[]},"slug":"a","metadata":{"x":"1","y":"2"}}`

// factory makes VMs and snapshots and remembers them.
type factory struct {
	made  atomic.Int32
	mu    sync.Mutex
	vms   map[string]vm.VM
	saved map[string]snapshot.Snapshot
}

func newFactory() *factory {
	return &factory{vms: map[string]vm.VM{}, saved: map[string]snapshot.Snapshot{}}
}

func (f *factory) add(seed string, n int) vm.VM {
	f.made.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	v := vm.VM{ID: vm.ID(seed, n), State: api.StateRunning, CreatedAt: moment(), UpdatedAt: moment()}
	f.vms[v.ID] = v
	return v
}

// work lets the lab's fakes make things.
func (f *factory) work(l *lab) {
	l.vms.create = func(_ context.Context, p vm.CreateParams) (vm.VM, error) { return f.add(p.Seed, 0), nil }
	l.vms.fork = func(_ context.Context, _ string, p vm.ForkParams) (vm.ForkOutcome, error) {
		out := vm.ForkOutcome{Pause: 5 * time.Millisecond}
		for i := range p.Count {
			out.Children = append(out.Children, vm.ForkedChild{VM: f.add(p.Seed, i)})
		}
		return out, nil
	}
	l.vms.snapshot = func(_ context.Context, ref string, p vm.SnapshotParams) (snapshot.Snapshot, time.Duration, error) {
		f.made.Add(1)
		s := snapshot.Snapshot{ID: vm.SnapshotID(p.Seed), SourceVMID: ref, CreatedAt: moment(), UpdatedAt: moment()}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.saved[s.ID] = s
		return s, time.Millisecond, nil
	}
	l.vms.get = func(_ context.Context, ref string) (vm.VM, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if v, ok := f.vms[ref]; ok {
			return v, nil
		}
		return vm.VM{}, fault.NotFound("vm", ref)
	}
	l.snapshots.get = func(_ context.Context, ref string) (snapshot.Snapshot, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if s, ok := f.saved[ref]; ok {
			return s, nil
		}
		return snapshot.Snapshot{}, fault.NotFound("snapshot", ref)
	}
}

// makers are the requests that make things.
func makers() map[string]struct {
	path, body, other string
	status            int
} {
	return map[string]struct {
		path, body, other string
		status            int
	}{
		"create":   {"/v5/vms", createBody, `{"firewall":{"rules":[]}}`, 201},
		"fork":     {"/v5/vms/a/fork", `{"count":3}`, `{"count":2}`, 200},
		"snapshot": {"/v5/vms/a/snapshot", `{"slug":"s"}`, `{"slug":"t"}`, 200},
	}
}

func TestRepetition(t *testing.T) {
	t.Parallel()
	for name, m := range makers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, f := newLab(t), newFactory()
			f.work(l)
			first := l.send("POST", m.path, m.body, "Idempotency-Key", "k", "X-Request-Id", "req-1")
			made := f.made.Load()
			if first.status != m.status || made == 0 || first.header.Get("Idempotency-Replayed") != "" {
				t.Fatalf("got %d %s", first.status, first.body)
			}
			again := l.send("POST", m.path, m.body, "Idempotency-Key", "k", "X-Request-Id", "req-2")
			if diff := cmp.Diff(string(first.body), string(again.body)); diff != "" || again.status != m.status {
				t.Errorf("status %d, -first +second:\n%s", again.status, diff)
			}
			if again.header.Get("Idempotency-Replayed") != "true" || again.header.Get("X-Request-Id") != "req-1" {
				t.Errorf("the headers do not say that it is a repetition: %v", again.header)
			}
			if line := l.log.line(t, "req-2"); line["replays"] != "req-1" {
				t.Errorf("the log does not say so: %v", line)
			}
			e := l.send("POST", m.path, m.other, "Idempotency-Key", "k").failed(409, api.CodeConflict, "Idempotency-Key")
			if e.Reason != api.ReasonIdempotencyKeyReused || e.Retryable {
				t.Errorf("got %+v", e)
			}
			if f.made.Load() != made {
				t.Errorf("%d more things were made", f.made.Load()-made)
			}
			l.send("POST", m.path, m.body, "Idempotency-Key", "k2")
			l.send("POST", m.path, m.body)
			if f.made.Load() != 3*made {
				t.Errorf("%d things were made, want %d", f.made.Load(), 3*made)
			}
		})
	}
}

// TestSpelling: the same request in other words is the same request, and
// another VM in the path is another one.
func TestSpelling(t *testing.T) {
	t.Parallel()
	l, f := newLab(t), newFactory()
	f.work(l)
	l.send("POST", "/v5/vms", createBody, "Idempotency-Key", "k")
	spelt := "{ \"slug\" : \"\\u0061\",\n \"metadata\":{\"y\":\"2\",\"x\":\"1\"}, \"firewall\":{\"rules\":[]} , \"unknown\": 1}"
	if a := l.send("POST", "/v5/vms", spelt, "Idempotency-Key", "k"); a.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("got %d %s", a.status, a.body)
	}
	l.send("POST", "/v5/vms/a/snapshot", "{}", "Idempotency-Key", "s")
	l.send("POST", "/v5/vms/b/snapshot", "{}", "Idempotency-Key", "s").failed(409, api.CodeConflict, "Idempotency-Key")
	l.send("POST", "/v5/vms/a/fork", "{}", "Idempotency-Key", "s").failed(409, api.CodeConflict, "Idempotency-Key")
}

func TestBadKeys(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"a b", "ä", strings.Repeat("k", 256)} {
		l := newLab(t)
		l.send("POST", "/v5/vms", createBody, "Idempotency-Key", bad).failed(400, api.CodeBadRequest, "Idempotency-Key")
	}
	l := newLab(t)
	for _, lines := range []string{"Idempotency-Key: a\r\nIdempotency-Key: a\r\n", "Idempotency-Key:\r\n"} {
		l.raw("POST /v5/vms HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+key+"\r\n"+lines+"Content-Length: 2\r\nConnection: close\r\n\r\n{}").
			failed(400, api.CodeBadRequest, "Idempotency-Key")
	}
	// A route that cannot keep the promise does not take a key; one that needs
	// none does not mind it.
	l.send("POST", "/v5/vms/a/exec-await", `{"command":"x"}`, "Idempotency-Key", "k").failed(400, api.CodeBadRequest, "Idempotency-Key")
	l.send("GET", "/v5/limits", "", "Idempotency-Key", "k").ok(200, &api.LimitList{})
}

func TestRefusalsAreForgotten(t *testing.T) {
	t.Parallel()
	for _, code := range []api.Code{api.CodeConflict, api.CodeLimitExceeded, api.CodeUnavailable, api.CodeVMNonResponsive, api.CodeInternal} {
		l, f := newLab(t), newFactory()
		f.work(l)
		create := l.vms.create
		l.vms.create = func(context.Context, vm.CreateParams) (vm.VM, error) {
			return vm.VM{}, &fault.Error{Code: code, Message: "no", Remedy: "later"}
		}
		if a := l.send("POST", "/v5/vms", createBody, "Idempotency-Key", "k"); a.status < 409 {
			t.Fatalf("got %d", a.status)
		}
		l.vms.create = create
		a := l.send("POST", "/v5/vms", createBody, "Idempotency-Key", "k")
		if a.status != 201 || a.header.Get("Idempotency-Replayed") != "" {
			t.Errorf("%s: the repetition got %d %s", code, a.status, a.body)
		}
	}
}

// TestRefusalIsReplayed: what is wrong with the request stays wrong, and the id
// in the envelope is the one that was logged.
func TestRefusalIsReplayed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.vms.create = func(context.Context, vm.CreateParams) (vm.VM, error) {
		return vm.VM{}, fault.BadField("slug", "is ugly").Hint("choose another")
	}
	l.send("POST", "/v5/vms", createBody, "Idempotency-Key", "k", "X-Request-Id", "req-1").failed(400, api.CodeBadRequest, "slug")
	l.vms.create = nil
	a := l.send("POST", "/v5/vms", createBody, "Idempotency-Key", "k", "X-Request-Id", "req-2")
	if e := a.failed(400, api.CodeBadRequest, "slug"); e.RequestID != "req-1" {
		t.Errorf("the request id is %q", e.RequestID)
	}
}

// TestRepetitionMeanwhile: the second request waits for the first and gets its
// answer, also in the background.
func TestRepetitionMeanwhile(t *testing.T) {
	t.Parallel()
	l, f := newLab(t), newFactory()
	f.work(l)
	gate, make1 := make(chan struct{}), l.vms.create
	begun := make(chan struct{}, 9)
	l.vms.create = func(ctx context.Context, p vm.CreateParams) (vm.VM, error) {
		begun <- struct{}{}
		<-gate
		return make1(ctx, p)
	}
	var all sync.WaitGroup
	bodies := make([]string, 3)
	for i := range 2 {
		all.Go(func() { bodies[i] = string(l.send("POST", "/v5/vms", createBody, "Idempotency-Key", "k").body) })
	}
	<-begun
	p := l.send("POST", "/v5/vms", createBody, "Idempotency-Key", "k", afterHeader, "0").promised()
	close(gate)
	all.Wait()
	bodies[2] = string(l.fetch(p.ResultURL).body)
	if bodies[0] != bodies[1] || bodies[1] != bodies[2] || f.made.Load() != 1 {
		t.Errorf("%d VMs were made, answers: %q", f.made.Load(), bodies)
	}
}

// TestDaemonIsKilled: what the first daemon made and could not answer for is
// what the second one answers with.
func TestDaemonIsKilled(t *testing.T) {
	t.Parallel()
	for name, m := range makers() {
		for _, made := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), "pando.db")
				f := newFactory()
				first := labOn(t, path)
				f.work(first.lab)
				first.dieWhenMade(made, f)
				lost := first.send("POST", m.path, m.body, "Idempotency-Key", "k")
				second := labOn(t, path)
				f.work(second.lab)
				a := second.send("POST", m.path, m.body, "Idempotency-Key", "k")
				if a.status != m.status {
					t.Fatalf("got %d %s", a.status, a.body)
				}
				if same := idsIn(t, a) == idsIn(t, lost); same != made {
					t.Errorf("it was made: %v; the repetition answers with the same ids: %v", made, same)
				}
				if again := second.send("POST", m.path, m.body, "Idempotency-Key", "k"); string(again.body) != string(a.body) {
					t.Errorf("the next repetition got %s, want %s", again.body, a.body)
				}
			})
		}
	}
}

// TestHalfAForkIsFound: children that exist are answered for, the others have
// an error.
func TestHalfAForkIsFound(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pando.db")
	f := newFactory()
	first := labOn(t, path)
	f.work(first.lab)
	first.vms.fork = func(_ context.Context, _ string, p vm.ForkParams) (vm.ForkOutcome, error) {
		f.add(p.Seed, 1)
		first.die()
		return vm.ForkOutcome{}, context.Canceled
	}
	first.send("POST", "/v5/vms/a/fork", `{"count":3}`, "Idempotency-Key", "k")
	second := labOn(t, path)
	f.work(second.lab)
	var got api.ForkVMResponse
	second.send("POST", "/v5/vms/a/fork", `{"count":3}`, "Idempotency-Key", "k").ok(200, &got)
	if len(got.Forks) != 3 || got.Forks[0].Error == nil || got.Forks[1].VM == nil || got.Forks[2].Error == nil || f.made.Load() != 1 {
		t.Errorf("got %+v", got)
	}
}

// mortal is a lab whose store can be taken away.
type mortal struct {
	*lab
	records *store.Store
}

func labOn(t *testing.T, path string) *mortal {
	t.Helper()
	records, err := store.Open(t.Context(), path, moment)
	if err != nil {
		t.Fatal(err)
	}
	m := &mortal{records: records}
	m.lab = newLabWith(t, func(l *lab) { l.handler = newHandlerOn(t, l, records) })
	return m
}

func (m *mortal) die() {
	if err := m.records.Close(); err != nil {
		m.t.Error(err)
	}
}

// dieWhenMade lets the daemon die after it has made something, or just before.
func (m *mortal) dieWhenMade(made bool, f *factory) {
	create, fork, save := m.vms.create, m.vms.fork, m.vms.snapshot
	after := func() {
		m.die()
		if made {
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		clear(f.vms)
		clear(f.saved)
	}
	m.vms.create = func(ctx context.Context, p vm.CreateParams) (vm.VM, error) {
		defer after()
		return create(ctx, p)
	}
	m.vms.fork = func(ctx context.Context, ref string, p vm.ForkParams) (vm.ForkOutcome, error) {
		defer after()
		return fork(ctx, ref, p)
	}
	m.vms.snapshot = func(ctx context.Context, ref string, p vm.SnapshotParams) (snapshot.Snapshot, time.Duration, error) {
		defer after()
		return save(ctx, ref, p)
	}
}

// idsIn are the ids of what an answer says was made.
func idsIn(t *testing.T, a answer) string {
	t.Helper()
	var v struct {
		ID         string
		SnapshotID string `json:"snapshotId"`
		Forks      []api.Fork
	}
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatal(err)
	}
	ids := v.ID + v.SnapshotID
	for _, f := range v.Forks {
		if f.VM != nil {
			ids += f.VM.ID
		}
	}
	if ids == "" {
		t.Fatalf("no ids in %s", a.body)
	}
	return ids
}
