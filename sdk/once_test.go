package pando_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

// fickle is a daemon that loses the connection of the first calls, before or
// after it has read them, and notes the keys.
type fickle struct {
	mu     sync.Mutex
	losses int
	keys   []string
	bodies []string
}

func (f *fickle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // it is the client that is tested
	f.mu.Lock()
	f.keys, f.bodies = append(f.keys, r.Header.Get("Idempotency-Key")), append(f.bodies, string(body))
	loses := len(f.keys) <= f.losses
	f.mu.Unlock()
	if loses {
		panic(http.ErrAbortHandler)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"id": "vm-1"})
}

func newFickle(t *testing.T, losses int) (*fickle, *pando.Client) {
	t.Helper()
	f := &fickle{losses: losses}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, client(t, server)
}

// seen returns the keys and the bodies of the calls so far.
func (f *fickle) seen() (keys, bodies []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.keys), slices.Clone(f.bodies)
}

// makers are the calls that make things.
func makers() map[string]func(context.Context, *pando.Client) error {
	return map[string]func(context.Context, *pando.Client) error{
		"create": func(ctx context.Context, c *pando.Client) error {
			_, err := c.VMs.Create(ctx, api.CreateVMRequest{Slug: new("a")})
			return err
		},
		"fork": func(ctx context.Context, c *pando.Client) error {
			_, err := c.VMs.Fork(ctx, "a", api.ForkVMRequest{Count: new(2)})
			return err
		},
		"snapshot": func(ctx context.Context, c *pando.Client) error {
			_, err := c.VMs.Snapshot(ctx, "a", api.CreateSnapshotRequest{Slug: new("s")})
			return err
		},
	}
}

func TestLostConnection(t *testing.T) {
	t.Parallel()
	for name, do := range makers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, c := newFickle(t, 2)
			if err := do(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			keys, bodies := f.seen()
			if len(keys) != 3 || keys[0] == "" || keys[1] != keys[0] || keys[2] != keys[0] {
				t.Fatalf("the keys were %q, want one key three times", keys)
			}
			if bodies[0] != bodies[2] || bodies[0] == "" {
				t.Errorf("the requests differ: %q", bodies)
			}
			if err := do(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if again, _ := f.seen(); again[3] == keys[0] {
				t.Error("two calls have one key")
			}
		})
	}
}

func TestOwnKey(t *testing.T) {
	t.Parallel()
	for name, do := range makers() {
		f, c := newFickle(t, 1)
		if err := do(pando.WithIdempotencyKey(t.Context(), "mine"), c); err != nil {
			t.Fatal(err)
		}
		if keys, _ := f.seen(); !slices.Equal(keys, []string{"mine", "mine"}) {
			t.Errorf("%s: the keys were %q", name, keys)
		}
	}
}

// TestNotRepeated: what may have had an effect and has no key is never sent
// again, and neither is anything that was answered.
func TestNotRepeated(t *testing.T) {
	t.Parallel()
	f, c := newFickle(t, 1)
	_, err := c.VMs.Exec(t.Context(), "a", api.ExecRequest{Command: "x"})
	var lost *pando.TransportError
	if keys, _ := f.seen(); !errors.As(err, &lost) || !slices.Equal(keys, []string{""}) {
		t.Errorf("got %v after the keys %q", err, keys)
	}
	for _, status := range []int{409, 429, 500, 503} {
		var calls atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"code":"UNAVAILABLE","message":"no"}`)
		}))
		_, err := client(t, server).VMs.Create(t.Context(), api.CreateVMRequest{})
		server.Close()
		var answered *pando.StatusError
		if !errors.As(err, &answered) || calls.Load() != 1 {
			t.Errorf("%d: got %v after %d calls", status, err, calls.Load())
		}
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(nil)
	c := client(t, server)
	server.Close()
	_, err := c.VMs.Create(t.Context(), api.CreateVMRequest{})
	var e *pando.TransportError
	if !errors.As(err, &e) || !e.Unreached {
		t.Errorf("got %v", err)
	}
}

func TestImpatientCaller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		calls.Add(1)
		cancel()
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	if _, err := client(t, server).VMs.Create(ctx, api.CreateVMRequest{}); err == nil || calls.Load() != 1 {
		t.Errorf("got %v after %d calls", err, calls.Load())
	}
}
