package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/httpapi"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/vm"
)

// willing is a lab whose use cases all succeed.
func willing(f *testing.F) *lab {
	f.Helper()
	one := func(context.Context, string) (vm.VM, error) { return vm.VM{ID: "vm-1"}, nil }
	l := &lab{
		vms: &fakeVMs{
			create: func(context.Context, vm.CreateParams) (vm.VM, error) { return vm.VM{ID: "vm-1"}, nil },
			update: func(context.Context, string, vm.UpdateParams) (vm.VM, error) { return vm.VM{ID: "vm-1"}, nil },
			get:    one, start: one, pause: one, stop: one,
			list: func(context.Context, vm.Filter) ([]vm.VM, map[api.State]int, error) { return nil, nil, nil },
			snapshot: func(context.Context, string, vm.SnapshotParams) (snapshot.Snapshot, time.Duration, error) {
				return snapshot.Snapshot{}, 0, nil
			},
			resize: func(context.Context, string, vm.ResizeParams) (vm.VM, error) { return vm.VM{ID: "vm-1"}, nil },
			fork:   func(context.Context, string, vm.ForkParams) (vm.ForkOutcome, error) { return vm.ForkOutcome{}, nil },
		},
		commands: &fakeCommands{
			exec: func(_ context.Context, _ string, p command.Order) (command.Result, error) {
				return command.Result{Stdout: []byte(p.Command), Stderr: p.Stdin}, nil
			},
			start: func(context.Context, string, command.Order) (command.Output, error) {
				return &fakeOutput{events: []command.Event{{Info: &command.Info{ID: "exec-1"}}}}, nil
			},
			signal:        func(context.Context, string, string, string) (command.Info, error) { return command.Info{}, nil },
			signalProcess: func(context.Context, string, int, string) error { return nil },
		},
		snapshots: &fakeSnapshots{
			get: func(_ context.Context, ref string) (snapshot.Snapshot, error) {
				return snapshot.Snapshot{}, fault.NotFound("snapshot", ref)
			},
			list: func(context.Context, snapshot.Filter) ([]snapshot.Snapshot, int, error) { return nil, 0, nil },
			update: func(context.Context, string, snapshot.UpdateParams) (snapshot.Snapshot, error) {
				return snapshot.Snapshot{ID: "sh-1"}, nil
			},
		},
		images: &fakeImages{list: func(context.Context) ([]api.Image, error) { return nil, nil }},
		log:    &logBuffer{},
	}
	l.handler = newHandler(f, l)
	return l
}

// checkAnswer: whatever was sent, the answer is JSON, and an envelope with its
// code's status unless it is a success.
func checkAnswer(t *testing.T, w *httptest.ResponseRecorder, success int) {
	t.Helper()
	if w.Code == success && success == http.StatusNoContent && w.Body.Len() == 0 {
		return
	}
	if !json.Valid(w.Body.Bytes()) {
		t.Fatalf("not JSON: %q", w.Body)
	}
	if w.Code == success {
		return
	}
	var e api.Error
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil {
		t.Fatal(err)
	}
	if httpapi.StatusOf(e.Code) != w.Code || e.Message == "" || e.Code == api.CodeInternal {
		t.Fatalf("status %d with %+v", w.Code, e)
	}
}

func FuzzBodies(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `[`, `{"firewall":{"rules":[]}}`, `{"firewall":{},"metadata":{"a":"b"},"ttlSeconds":-1}`,
		`{"command":"x","timeoutMs":1,"env":{"A":"b"},"stdin":"YQ=="}`, `{"count":3,"slug":"a","identity":"keep"}`,
		`{"slug":"s","displayName":null,"autoDeleteSeconds":null}`, `{"count":1e400}`, "{\"a\":\"\xff\"}", `{"":{}}`, `{"command":"\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	l := willing(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, op := range httpapi.Operations() {
			if op.Request == nil {
				continue
			}
			path := strings.ReplaceAll(op.Path, "{id}", "vm-1")
			path = strings.ReplaceAll(path, "{sub}", "1")
			r := httptest.NewRequestWithContext(t.Context(), op.Method, path, bytes.NewReader(body))
			r.Header.Set("Authorization", "Bearer "+key)
			w := httptest.NewRecorder()
			l.handler.ServeHTTP(w, r)
			checkAnswer(t, w, op.Status)
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"", "state=running&limit=1", "metadata=a:b,c:d", "a=%zz", "limit=-0", "limit=1;offset=2", "slug=%00"} {
		f.Add(seed)
	}
	l := willing(f)
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/v5/vms", nil)
		r.URL.RawQuery = query
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		l.handler.ServeHTTP(w, r)
		checkAnswer(t, w, 200)
	})
}
