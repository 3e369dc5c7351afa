package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/httpapi"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/vm"
)

func TestEmptyKeyIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := httpapi.New(httpapi.Config{}); err == nil {
		t.Error("a handler without a key was built")
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.vms.get = func(context.Context, string) (vm.VM, error) { return vm.VM{ID: "vm-1"}, nil }
	for header, want := range map[string]api.Code{
		"":                      api.CodeMissingCredentials,
		"Basic dGVzdC1rZXk=":    api.CodeMissingCredentials,
		"Bearer":                api.CodeMissingCredentials,
		"Bearer ":               api.CodeMissingCredentials,
		key:                     api.CodeMissingCredentials,
		"Bearer wrong":          api.CodeInvalidAPIKey,
		"Bearer test-key-and":   api.CodeInvalidAPIKey,
		"Bearer TEST-KEY":       api.CodeInvalidAPIKey,
		"Bearer test-key other": api.CodeInvalidAPIKey,
	} {
		a := l.send("GET", "/v5/vms/vm-1", "", "Authorization", header)
		a.failed(401, want, "")
		if a.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%q: the answer does not ask for a bearer key", header)
		}
	}
	for _, header := range []string{"Bearer " + key, "bearer " + key, "Bearer   " + key} {
		l.send("GET", "/v5/vms/vm-1", "", "Authorization", header).ok(200, &api.VM{})
	}
}

// TestEveryRouteAsksForTheKey also proves that a refused request calls nothing:
// the fakes have no functions.
func TestEveryRouteAsksForTheKey(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, op := range httpapi.Operations() {
		path := strings.ReplaceAll(op.Path, "{id}", "vm-1")
		if op.Keyless {
			l.send(op.Method, path, "", "Authorization", "").ok(op.Status, &map[string]any{})
			continue
		}
		l.send(op.Method, path, "", "Authorization", "").failed(401, api.CodeMissingCredentials, "")
	}
}

func TestKeylessRoutes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var status api.Status
	l.send("GET", "/status", "", "Authorization", "").ok(200, &status)
	if diff := cmp.Diff(api.Status{Status: "ok", Version: "1.2.3", Accelerator: "tcg"}, status); diff != "" {
		t.Error(diff)
	}
	var got, want any
	l.send("GET", "/openapi.json", "", "Authorization", "").ok(200, &got)
	if err := json.Unmarshal([]byte(api.OpenAPI()), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestUnknownRoutes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, path := range []string{
		"/", "/v5", "/v5/", "/v5/vm", "/v5/vms/", "/v5/vms/vm-1/", "/v5/vms/vm-1/explode", "/v5//vms", "//v5/vms",
		"/v5/./vms", "/v5/vms/../vms", "/v5/snapshots/pando/debian", "/V5/vms", "/v1/vms", "/status/", "/v5/vms/a/b/c",
	} {
		for _, method := range []string{"GET", "POST"} {
			l.send(method, path, "{}").failed(404, api.CodeRouteNotFound, "")
		}
	}
}

func TestWrongMethods(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, c := range []struct{ method, path, allow string }{
		{"PUT", "/v5/vms", "POST, GET"},
		{"PUT", "/v5/vms/vm-1", "GET, PATCH, DELETE"},
		{"GET", "/v5/vms/vm-1/fork", "POST"},
		{"POST", "/status", "GET"},
		{"OPTIONS", "/v5/vms", "POST, GET"},
		{"BREW", "/v5/snapshots", "GET"},
	} {
		a := l.send(c.method, c.path, "", "Authorization", "")
		a.failed(405, api.CodeMethodNotAllowed, "")
		if got := a.header.Get("Allow"); got != c.allow {
			t.Errorf("%s %s: Allow is %q, want %q", c.method, c.path, got, c.allow)
		}
	}
}

// TestStrangeTargets sends what net/http clients do not.
func TestStrangeTargets(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, target := range []string{"*", "/%2e%2e/v5/vms", "http://elsewhere/v5/vmss"} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.RequestURI = target
		if target != "*" {
			u, err := r.URL.Parse(target)
			if err != nil {
				t.Fatal(err)
			}
			r.URL = u
		} else {
			r.URL.Path = "*"
		}
		w := httptest.NewRecorder()
		l.handler.ServeHTTP(w, r)
		answer{t, w.Code, w.Header(), w.Body.Bytes()}.failed(404, api.CodeRouteNotFound, "")
	}
}

func TestHead(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.send("HEAD", "/status", "")
	if a.status != 200 || len(a.body) != 0 {
		t.Errorf("got %d with %q", a.status, a.body)
	}
}

func TestSnapshotNameIsOneSegment(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var asked []string
	l.snapshots.get = func(_ context.Context, ref string) (snapshot.Snapshot, error) {
		asked = append(asked, ref)
		return snapshot.Snapshot{ID: "sh-1"}, nil
	}
	want := []string{"freestyle/ubuntu", "a b", "..", "100%", "ä", "a//b"}
	for _, segment := range []string{"freestyle%2Fubuntu", "a%20b", "%2E%2E", "100%25", "%C3%A4", "a%2F%2Fb"} {
		l.send("GET", "/v5/snapshots/"+segment, "").ok(200, &api.Snapshot{})
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	first, second := l.send("GET", "/status", ""), l.send("GET", "/status", "")
	a, b := first.header.Get("X-Request-Id"), second.header.Get("X-Request-Id")
	if !strings.HasPrefix(a, "req-") || a == b {
		t.Errorf("ids %q and %q are not fresh", a, b)
	}
	for given, kept := range map[string]bool{
		"my-id_1.2:3": true, strings.Repeat("x", 128): true,
		strings.Repeat("x", 129): false, "with space": false, "ä": false, `"quoted"`: false,
	} {
		got := l.send("GET", "/status", "", "X-Request-Id", given).header.Get("X-Request-Id")
		if (got == given) != kept {
			t.Errorf("%q came back as %q", given, got)
		}
	}
	line := l.log.line(t, a)
	for key, want := range map[string]any{"msg": "http request", "method": "GET", "route": "/status", "path": "/status", "status": 200.0, "level": "DEBUG"} {
		if line[key] != want {
			t.Errorf("the log has %s = %v, want %v", key, line[key], want)
		}
	}
}

func TestFaultsAreShown(t *testing.T) {
	t.Parallel()
	for _, code := range []api.Code{
		api.CodeBadRequest, api.CodeForbidden, api.CodeNotFound, api.CodeConflict,
		api.CodeVMNonResponsive, api.CodeLimitExceeded, api.CodeUnavailable,
	} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.vms.get = func(context.Context, string) (vm.VM, error) {
				f := &fault.Error{
					Code: code, Reason: api.ReasonDiskFull, Field: "x", Message: "what", Remedy: "do", Needed: 7, Available: 3,
					Err: errors.New("secret path"),
				}
				return vm.VM{}, fmt.Errorf("wrapped: %w", f)
			}
			a := l.send("GET", "/v5/vms/a", "")
			got := a.failed(httpapi.StatusOf(code), code, "x")
			want := api.Error{
				Code: code, Reason: api.ReasonDiskFull, Field: "x", Message: "what", Remedy: "do",
				Needed: 7, Available: 3, RequestID: got.RequestID, Retryable: code == api.CodeUnavailable,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			line := l.log.line(t, got.RequestID)
			if line["code"] != string(code) || !strings.Contains(fmt.Sprint(line["error"]), "secret path") {
				t.Errorf("the log lacks code or cause: %v", line)
			}
		})
	}
}

func TestOtherErrorsAreHidden(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"plain":        errors.New("secret path"),
		"deadline":     fmt.Errorf("secret path: %w", context.DeadlineExceeded),
		"internal":     &fault.Error{Code: api.CodeInternal, Message: "secret path"},
		"unknown code": &fault.Error{Code: "STRANGE", Message: "secret path"},
		"no code":      &fault.Error{Message: "secret path"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.vms.remove = func(context.Context, string) error { return err }
			a := l.send("DELETE", "/v5/vms/a", "")
			e := a.failed(500, api.CodeInternal, "")
			if strings.Contains(string(a.body), "secret") {
				t.Errorf("the answer shows the error: %s", a.body)
			}
			line := l.log.line(t, e.RequestID)
			if line["level"] != "ERROR" || !strings.Contains(fmt.Sprint(line["error"]), "secret path") {
				t.Errorf("the log does not show the error: %v", line)
			}
		})
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.vms.start = func(context.Context, string) (vm.VM, error) { panic("secret state") }
	a := l.send("POST", "/v5/vms/a/start", "{}")
	e := a.failed(500, api.CodeInternal, "")
	if strings.Contains(string(a.body), "secret") {
		t.Errorf("the answer shows the panic: %s", a.body)
	}
	line := l.log.line(t, e.RequestID)
	if text := fmt.Sprint(line["error"]); line["level"] != "ERROR" || !strings.Contains(text, "secret state") || !strings.Contains(text, "handler_test.go") {
		t.Errorf("the log shows no panic with its stack: %v", line)
	}
}

// brokenWriter panics in the middle of an answer.
type brokenWriter struct{ http.ResponseWriter }

// Write implements io.Writer.
func (brokenWriter) Write([]byte) (int, error) { panic("broken") }

func TestPanicAfterTheAnswerBegan(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/status", nil)
	r.Header.Set("X-Request-Id", "half")
	defer func() {
		if recover() != http.ErrAbortHandler { //nolint:errorlint // It is the value that net/http compares with.
			t.Error("the connection is not cut")
		}
		if line := l.log.line(t, "half"); line["error"] == nil {
			t.Errorf("the log does not show the panic: %v", line)
		}
	}()
	l.handler.ServeHTTP(brokenWriter{httptest.NewRecorder()}, r)
}

func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	entered := make(chan struct{})
	l.commands.exec = func(ctx context.Context, _ string, _ command.Order) (command.Result, error) {
		close(entered)
		<-ctx.Done()
		return command.Result{}, fmt.Errorf("exec: %w", ctx.Err())
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", l.url+"/v5/vms/a/exec-await", strings.NewReader(`{"command":"sleep 9"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("X-Request-Id", "gone")
	go func() {
		<-entered
		cancel()
	}()
	if resp, err := l.client.Do(req); err == nil {
		resp.Body.Close()
		t.Fatalf("got an answer: %d", resp.StatusCode)
	}
	if line := l.log.line(t, "gone"); line["level"] != "DEBUG" || line["code"] != string(api.CodeUnavailable) {
		t.Errorf("got %v, want UNAVAILABLE at debug level", line)
	}
}

func TestBackgroundHeaderIsTolerated(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.vms.pause = func(context.Context, string) (vm.VM, error) { return vm.VM{ID: "vm-1", State: api.StatePaused}, nil }
	l.send("POST", "/v5/vms/a/pause", "{}", "X-Freestyle-Background-After-Secs", "5").ok(200, &api.VM{})
}

// brokenBody fails like a connection that is slow or gone.
type brokenBody struct{ err error }

// Read implements io.Reader.
func (b brokenBody) Read([]byte) (int, error) { return 0, b.err }

func TestBodyDoesNotArrive(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for want, err := range map[string]error{"in time": os.ErrDeadlineExceeded, "broke off": io.ErrUnexpectedEOF} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v5/vms/a/start", brokenBody{err})
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		l.handler.ServeHTTP(w, r)
		e := answer{t, w.Code, w.Header(), w.Body.Bytes()}.failed(400, api.CodeBadRequest, "body")
		if !strings.Contains(e.Message, want) {
			t.Errorf("%v: got %q", err, e.Message)
		}
	}
}

func TestBodyLimits(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.commands.exec = func(context.Context, string, command.Order) (command.Result, error) { return command.Result{}, nil }
	for _, op := range httpapi.Operations() {
		if op.Request == nil {
			continue
		}
		path := strings.ReplaceAll(op.Path, "{id}", "a")
		l.send(op.Method, path, strings.Repeat(" ", int(op.MaxBody)+1)).failed(413, api.CodePayloadTooLarge, "body")

		// The same without a length in front.
		r := httptest.NewRequestWithContext(t.Context(), op.Method, path, io.LimitReader(blanks{}, op.MaxBody+1))
		r.ContentLength = -1
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		l.handler.ServeHTTP(w, r)
		answer{t, w.Code, w.Header(), w.Body.Bytes()}.failed(413, api.CodePayloadTooLarge, "body")
	}
	body := `{"command":"cat"}`
	l.send("POST", "/v5/vms/a/exec-await", body+strings.Repeat(" ", httpapi.MaxExecBodyBytes-len(body))).ok(200, &api.ExecResponse{})
}

// blanks is an endless body.
type blanks struct{}

// Read implements io.Reader.
func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestOperationsAreWellFormed(t *testing.T) {
	t.Parallel()
	for _, op := range httpapi.Operations() {
		if op.Status/100 != 2 && op.Status != http.StatusSwitchingProtocols {
			t.Errorf("%s %s has status %d", op.Method, op.Path, op.Status)
		}
		for _, p := range op.Query {
			if p.Description == "" || p.Type != "string" && p.Type != "integer" {
				t.Errorf("%s: parameter %s is not described", op.ID, p.Name)
			}
		}
		for _, code := range op.Errors {
			if httpapi.StatusOf(code) == 0 {
				t.Errorf("%s: %s has no status", op.ID, code)
			}
		}
	}
}
