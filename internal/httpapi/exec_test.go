package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/fault"
)

func chunk(stream command.Stream, seq, offset int64, data string) command.Event {
	return command.Event{Chunk: &command.Chunk{Stream: stream, Seq: seq, Offset: offset, Data: []byte(data)}}
}

func infoEvent(state command.State) command.Event {
	i := command.Info{ID: "exec-1", State: state, StartedAt: moment(), StdoutFrom: 2}
	if state == command.Exited {
		i.ExitCode, i.Ended = new(3), moment()
	}
	return command.Event{Info: &i}
}

// whole sends a request and returns the answer as it is.
func (l *lab) whole(method, path, body string) (*http.Response, []byte, error) {
	l.t.Helper()
	req, err := http.NewRequestWithContext(l.t.Context(), method, l.url+path, strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := l.client.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp, data, err
}

func TestStartExecStreams(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var got command.Order
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	ascii := string(every[:128])
	out := &fakeOutput{events: []command.Event{
		infoEvent(command.Running), chunk(command.Stdout, 1, 0, ascii+"é<&>\u2028"), chunk(command.Stderr, 2, 0, string(every)), infoEvent(command.Exited),
	}}
	l.commands.start = func(_ context.Context, ref string, o command.Order) (command.Output, error) {
		got = o
		return out, nil
	}
	resp, body, err := l.whole("POST", "/v5/vms/web/exec", `{"command":"x","openStdin":true,"stdin":"YQ==","timeoutMs":null}`)
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%d %v: %s", resp.StatusCode, err, body)
	}
	if diff := cmp.Diff(command.Order{Command: "x", Stdin: []byte("a"), OpenStdin: true}, got); diff != "" {
		t.Error(diff)
	}
	var events []api.ExecEvent
	for line := range bytes.Lines(body) {
		var e api.ExecEvent
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		events = append(events, e)
	}
	if len(events) != 4 || events[0].Exec.State != api.ExecRunning || *events[3].Exec.StatusCode != 3 ||
		events[1].Text != ascii+"é<&>\u2028" || !bytes.Equal(events[2].Data, every) || events[2].Seq != 2 {
		t.Errorf("got %s", body)
	}
	if !out.closed {
		t.Error("the output was not closed")
	}
}

func TestStreamBreaksOff(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.commands.follow = func(_ context.Context, _ string, f command.Follow) (command.Output, error) {
		return &fakeOutput{
			events: []command.Event{infoEvent(command.Running), chunk(command.Stdout, 1, 2, "ab")},
			err:    &fault.Error{Code: api.CodeVMNonResponsive, Message: "gone", Remedy: "look"},
		}, nil
	}
	_, body, err := l.whole("GET", "/v5/vms/web/exec/exec-1/output?follow=true&seq=1", "")
	if err != nil || !strings.Contains(string(body), `"type":"error"`) || !strings.Contains(string(body), `"VM_NON_RESPONSIVE"`) {
		t.Errorf("%v: %s", err, body)
	}
	// Bytes that are not whole do not look as if they were.
	if _, body, err = l.whole("GET", "/v5/vms/web/exec/exec-1/output?stream=stdout", ""); err == nil {
		t.Errorf("a broken output was passed off as whole: %q", body)
	}
}

func TestOutputBytes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var got command.Follow
	l.commands.follow = func(_ context.Context, _ string, f command.Follow) (command.Output, error) {
		got = f
		return &fakeOutput{events: []command.Event{infoEvent(command.Exited), chunk(command.Stdout, 4, 5000000000, "a\xff"), chunk(command.Stdout, 7, 5000000002, "b")}}, nil
	}
	resp, body, err := l.whole("GET", "/v5/vms/web/exec/exec-1/output?stream=stdout&offset=5000000000", "")
	if err != nil || string(body) != "a\xffb" || resp.Header.Get("X-Exec-Offset") != "5000000000" {
		t.Errorf("%q, %v, %v", body, err, resp.Header)
	}
	if diff := cmp.Diff(command.Follow{ID: "exec-1", Stream: command.Stdout, Offset: 5000000000}, got); diff != "" {
		t.Error(diff)
	}
}

func TestFeedExec(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var body string
	var got command.Input
	l.commands.feed = func(_ context.Context, _ string, in command.Input) (command.Info, error) {
		b, err := io.ReadAll(in.Body)
		body, got = string(b), in
		got.Body = nil
		return command.Info{ID: in.ID, State: command.Running, StdinBytes: 7}, err
	}
	var e api.Exec
	l.send("POST", "/v5/vms/web/exec/exec-1/stdin?close=true&offset=5", "x\x00y").ok(200, &e)
	if diff := cmp.Diff(command.Input{ID: "exec-1", Offset: 5, Close: true}, got); diff != "" || body != "x\x00y" || e.StdinBytes != 7 {
		t.Errorf("%q %+v %s", body, e, diff)
	}
	l.send("DELETE", "/v5/vms/web/exec/exec-1/stdin", "").ok(200, &e)
	if diff := cmp.Diff(command.Input{ID: "exec-1", Offset: -1, Close: true}, got); diff != "" {
		t.Error(diff)
	}
}

func TestExecRoutesRefuse(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for request, field := range map[string]string{
		`POST exec {"command":"x","timeoutMs":0}`:          "timeoutMs",
		`POST exec {"command":"x","timeoutMs":86400001}`:   "timeoutMs",
		`POST exec {"command":"x","stdin":"%"}`:            "stdin",
		`POST exec {"command":"x","cwd":"/"}`:              "cwd",
		`POST exec {"command":1}`:                          "command",
		`POST exec {"command":"x","detach":"yes"}`:         "detach",
		`GET exec/exec-1/output?stream=stdin `:             "stream",
		`GET exec/exec-1/output?offset=-1 `:                "offset",
		`GET exec/exec-1/output?follow=1 `:                 "follow",
		`GET exec/exec-1/output?from=1 `:                   "from",
		`POST exec/exec-1/stdin?offset=x a`:                "offset",
		`POST exec/exec-1/stdin?close=maybe a`:             "close",
		`POST exec/exec-1/signal {"signal":9}`:             "signal",
		`POST exec/exec-1/signal {"sig":"TERM"}`:           "sig",
		`POST processes/x/signal {"signal":"TERM"}`:        "pid",
		`POST processes/0/signal {"signal":"TERM"}`:        "pid",
		`POST processes/99999999999/signal {"signal":"9"}`: "pid",
	} {
		parts := strings.SplitN(request, " ", 3)
		l.send(parts[0], "/v5/vms/web/"+parts[1], parts[2]).failed(400, api.CodeBadRequest, field)
	}
	conflict := fault.Conflict(api.ReasonCommandEnded, "ended").Hint("look")
	l.commands.signal = func(context.Context, string, string, string) (command.Info, error) { return command.Info{}, conflict }
	l.send("POST", "/v5/vms/web/exec/exec-1/signal", `{"signal":"TERM"}`).failed(409, api.CodeConflict, "")
	l.commands.get = func(context.Context, string, string) (command.Info, error) {
		return command.Info{}, fault.NotFound("command", "exec-1")
	}
	l.send("GET", "/v5/vms/web/exec/exec-1", "").failed(404, api.CodeNotFound, "")
	l.commands.start = func(context.Context, string, command.Order) (command.Output, error) {
		return nil, (&fault.Error{Code: api.CodeLimitExceeded, Message: "too many"}).Hint("wait")
	}
	l.send("POST", "/v5/vms/web/exec", `{"command":"x"}`).failed(429, api.CodeLimitExceeded, "")
	l.commands.processes = func(context.Context, string) ([]command.Process, error) { return nil, errors.New("broken") }
	l.send("GET", "/v5/vms/web/processes", "").failed(500, api.CodeInternal, "")
}
