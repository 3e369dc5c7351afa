package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/operation"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/vm"
)

const (
	afterHeader = "x-freestyle-background-after-secs"
	idHeader    = "x-freestyle-background-request-id"
)

// slowExec makes exec wait for the returned function, then answer with out.
func (l *lab) slowExec(out string) (goOn func()) {
	gate := make(chan struct{})
	l.commands.exec = func(ctx context.Context, _ string, _ command.Order) (command.Result, error) {
		select {
		case <-gate:
			return command.Result{Stdout: []byte(out), ExitCode: new(7)}, nil
		case <-ctx.Done():
			return command.Result{}, ctx.Err()
		}
	}
	return func() { close(gate) }
}

// promised checks a 202 and returns where the answer will be.
func (a answer) promised() api.BackgroundRequest {
	a.t.Helper()
	var p api.BackgroundRequest
	a.ok(http.StatusAccepted, &p)
	id := a.header.Get(idHeader)
	if !strings.HasPrefix(id, "bgr-") || p.RequestID != id || p.Status != "pending" || p.ResultURL != "/v5/background-requests/"+id {
		a.t.Fatalf("got %+v with the header %q", p, id)
	}
	return p
}

// fetch polls until the work has ended.
func (l *lab) fetch(url string) answer {
	l.t.Helper()
	for {
		a := l.send("GET", url, "")
		if a.status != http.StatusAccepted {
			return a
		}
		a.promised()
		select {
		case <-l.t.Context().Done():
			l.t.Fatal("the work did not end")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestBackground(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	goOn := l.slowExec("done")
	first := l.send("POST", "/v5/vms/a/exec-await", `{"command":"x"}`, afterHeader, "0", "X-Request-Id", "req-mine")
	p := first.promised()
	l.send("GET", p.ResultURL, "").promised()
	goOn()
	for range 2 {
		a := l.fetch(p.ResultURL)
		var r api.ExecResponse
		a.ok(200, &r)
		if r.Stdout != "done" || *r.StatusCode != 7 {
			t.Errorf("got %s", a.body)
		}
		for name, want := range map[string]string{idHeader: p.RequestID, "X-Request-Id": "req-mine", "Content-Type": "application/json"} {
			if got := a.header.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	}
	l.log.await(t, func(line map[string]any) bool {
		return line["msg"] == "background request ended" && line["request_id"] == "req-mine" &&
			line["background_id"] == p.RequestID && line["status"] == 200.0
	})
	l.log.await(t, func(line map[string]any) bool {
		return line["replays"] == "req-mine" && line["background_id"] == p.RequestID
	})
	l.send("GET", p.ResultURL, "", "Authorization", "").failed(401, api.CodeMissingCredentials, "")
}

// TestBackgroundFailures: an error is replayed like a success, and its id in
// the envelope is the one under which it was logged.
func TestBackgroundFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail   func() error
		status int
		code   api.Code
	}{
		"fault": {func() error { return fault.NotFound("vm", "a") }, 404, api.CodeNotFound},
		"other": {func() error { return context.DeadlineExceeded }, 500, api.CodeInternal},
		"panic": {func() error { panic("boom") }, 500, api.CodeInternal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			gate := make(chan struct{})
			l.vms.start = func(context.Context, string) (vm.VM, error) {
				<-gate
				return vm.VM{}, c.fail()
			}
			p := l.send("POST", "/v5/vms/a/start", "{}", afterHeader, "0", "X-Request-Id", "req-mine").promised()
			close(gate)
			a := l.fetch(p.ResultURL)
			if e := a.failed(c.status, c.code, ""); e.RequestID != "req-mine" {
				t.Errorf("the request id is %q", e.RequestID)
			}
			if a.header.Get(idHeader) != p.RequestID {
				t.Error("a terminal answer has no id")
			}
			l.log.await(t, func(line map[string]any) bool {
				return line["background_id"] == p.RequestID && line["request_id"] == "req-mine" && line["code"] == string(c.code) && line["error"] != nil
			})
		})
	}
}

func TestInLine(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.vms.list = func(context.Context, vm.Filter) ([]vm.VM, map[api.State]int, error) { return nil, nil, nil }
	for _, after := range []string{"1", "5", "86400"} {
		a := l.send("GET", "/v5/vms", "", afterHeader, after)
		if a.status != 200 || a.header.Get(idHeader) != "" {
			t.Errorf("%s: got %d with the id %q", after, a.status, a.header.Get(idHeader))
		}
	}
}

func TestBackgroundHeaderIsChecked(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"-1", "+1", "x", "1.5", "1e3", "0x1", "86401", "99999999999999999999", "1,2", "5 ", "5;q=1"} {
		l := newLab(t)
		a := l.send("GET", "/v5/vms", "", afterHeader, value)
		if strings.TrimSpace(value) != value {
			continue // The protocol takes the blanks away.
		}
		a.failed(400, api.CodeBadRequest, "X-Freestyle-Background-After-Secs")
	}
	l := newLab(t)
	raw := l.raw("GET /v5/vms HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\n" +
		afterHeader + ": 1\r\n" + afterHeader + ": 2\r\nConnection: close\r\n\r\n")
	raw.failed(400, api.CodeBadRequest, "X-Freestyle-Background-After-Secs")
	empty := l.raw("GET /v5/vms HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\n" +
		afterHeader + ":\r\nConnection: close\r\n\r\n")
	empty.failed(400, api.CodeBadRequest, "X-Freestyle-Background-After-Secs")
}

func TestBackgroundUnknown(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, id := range []string{"bgr-0", "x", "a%2Fb", "%00", "..%2f..%2fvms", strings.Repeat("a", 5000)} {
		a := l.send("GET", "/v5/background-requests/"+id, "")
		a.failed(404, api.CodeNotFound, "")
		if a.header.Get(idHeader) != "" {
			t.Errorf("%.20s: an unknown request has an id", id)
		}
	}
	l.send("DELETE", "/v5/background-requests/bgr-0", "").failed(405, api.CodeMethodNotAllowed, "")
}

func TestBackgroundUnstorable(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	goOn := l.slowExec(strings.Repeat("x", operation.MaxResultBytes))
	p := l.send("POST", "/v5/vms/a/exec-await", `{"command":"x"}`, afterHeader, "0").promised()
	goOn()
	a := l.fetch(p.ResultURL)
	a.failed(507, api.CodeBackgroundResultUnstorable, "")
	if a.header.Get(idHeader) != p.RequestID {
		t.Error("a terminal answer has no id")
	}
}

// TestBackgroundOnEveryRoute: the mechanism is in one place, so a request that
// is refused before its work begins is refused in line.
func TestBackgroundOnEveryRoute(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.send("POST", "/v5/vms", `{`, afterHeader, "0").failed(400, api.CodeBadRequest, "body")
	l.send("POST", "/v5/vms/a/exec-await", `{"no":1}`, afterHeader, "0").failed(400, api.CodeBadRequest, "no")
	l.snapshots.list = func(context.Context, snapshot.Filter) ([]snapshot.Snapshot, int, error) { return nil, 0, nil }
	p := l.send("GET", "/v5/snapshots", "", afterHeader, "0")
	if p.status == http.StatusAccepted {
		p = l.fetch(p.promised().ResultURL)
	}
	if p.status != 200 || !json.Valid(bytes.TrimSpace(p.body)) {
		t.Errorf("got %d %s", p.status, p.body)
	}
}

// TestClientVanishesInLine: whoever leaves before the promise has asked for
// nothing more, so the work is cancelled.
func TestClientVanishesInLine(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	begun, cancelled := make(chan struct{}), make(chan struct{})
	l.commands.exec = func(ctx context.Context, _ string, _ command.Order) (command.Result, error) {
		close(begun)
		<-ctx.Done()
		close(cancelled)
		return command.Result{}, ctx.Err()
	}
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", l.url+"/v5/vms/a/exec-await", strings.NewReader(`{"command":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set(afterHeader, "3600")
	go func() {
		<-begun
		leave()
	}()
	if resp, err := l.client.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("got %s", resp.Status)
	}
	<-cancelled
}
