package httpapi_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/vm"
)

// fullVM is a record with every field set, and fullObject is how it is shown.
func fullVM() vm.VM {
	return vm.VM{
		ID: "vm-1", Slug: "web", DisplayName: "Web", State: api.StateRunning, StateReason: "because",
		Resources:  api.Resources{CPU: 2, Memory: 2048, Storage: 16384},
		SnapshotID: "sh-1", SnapshotSlug: "old-name", Image: "pando/debian", ParentID: "vm-0", Ancestry: []string{"vm-0"},
		ForkedAt: moment().In(time.FixedZone("", 3600)), Generation: 3,
		RunTime: 90 * time.Second, RunningSince: moment().Add(-2500 * time.Millisecond),
		Metadata: map[string]string{"job": "7"}, AgentVersion: "1.0", CreatedAt: moment(), UpdatedAt: moment(),
		Timers: vm.Timers{
			Idle: new(time.Minute), AutoDelete: new(time.Duration(0)), TTL: new(time.Hour), MaxRun: new(2 * time.Minute), MaxRunTotal: new(3 * time.Minute),
		},
		AutomaticRestart: true, Placement: []vm.AntiAffinity{{Topology: "node", MatchLabels: map[string]string{"app": "db"}}},
	}
}

func fullObject() api.VM {
	return api.VM{
		ID: "vm-1", Slug: new("web"), DisplayName: new("Web"), State: api.StateRunning, StateReason: "because",
		Resources:  api.Resources{CPU: 2, Memory: 2048, Storage: 16384},
		SnapshotID: new("sh-1"), SourceSnapshotSlugAtCreate: new("old-name"),
		SourceSnapshotSlug: new("new-name"), SourceSnapshotDisplayName: new("New name"),
		Image: new("pando/debian"), ParentVMID: new("vm-0"), Ancestry: []string{"vm-0"},
		ForkedAt: new(moment()), Generation: 3, TotalRunSeconds: 92, Metadata: map[string]string{"job": "7"},
		IdleTimeoutSeconds: new(int64(60)), AutoDeleteSeconds: new(int64(0)), TTLSeconds: new(int64(3600)),
		MaxRunSeconds: new(int64(120)), MaxRunTotalSeconds: new(int64(180)), AutomaticRestart: true,
		Placement: &api.Placement{AntiAffinity: []api.AntiAffinity{{Topology: "node", Selector: api.Selector{MatchLabels: map[string]string{"app": "db"}}}}},
		Networks:  []api.VMNetwork{}, VPCs: []api.VMNetwork{}, AgentVersion: "1.0", CreatedAt: moment(), UpdatedAt: moment(),
	}
}

func (l *lab) renamedSource() {
	l.snapshots.get = func(_ context.Context, ref string) (snapshot.Snapshot, error) {
		if ref != "sh-1" {
			return snapshot.Snapshot{}, fault.NotFound("snapshot", ref)
		}
		return snapshot.Snapshot{ID: "sh-1", Slug: "new-name", DisplayName: "New name"}, nil
	}
}

func TestGetVM(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.renamedSource()
	l.vms.get = func(_ context.Context, ref string) (vm.VM, error) {
		if ref == "web" {
			return fullVM(), nil
		}
		return vm.VM{}, fault.NotFound("vm", ref)
	}
	var got api.VM
	l.send("GET", "/v5/vms/web", "").ok(200, &got)
	if diff := cmp.Diff(fullObject(), got); diff != "" {
		t.Error(diff)
	}
	l.send("GET", "/v5/vms/nope", "").failed(404, api.CodeNotFound, "")
}

// TestEmptyVM: clients map over the lists and read the nullable fields without
// asking whether they are there.
func TestEmptyVM(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.vms.get = func(context.Context, string) (vm.VM, error) {
		return vm.VM{ID: "vm-1", State: api.StateStopped, SnapshotID: "sh-gone", CreatedAt: moment(), UpdatedAt: moment()}, nil
	}
	got := map[string]any{}
	l.send("GET", "/v5/vms/vm-1", "").ok(200, &got)
	want := map[string]any{
		"id": "vm-1", "state": "stopped", "slug": nil, "displayName": nil,
		"resources":  map[string]any{"cpu": 0.0, "memory": 0.0, "storage": 0.0},
		"snapshotId": "sh-gone", "sourceSnapshotSlugAtCreate": nil, "sourceSnapshotSlug": nil, "sourceSnapshotDisplayName": nil,
		"image": nil, "parentVmId": nil, "ancestry": []any{}, "forkedAt": nil, "generation": 0.0, "totalRunSeconds": 0.0,
		"idleTimeoutSeconds": nil, "autoDeleteSeconds": nil, "autoDeleteFromPlan": false, "ttlSeconds": nil, "maxRunSeconds": nil,
		"maxRunTotalSeconds": nil, "nextPauseAt": nil, "nextPauseReason": nil, "nextDeleteAt": nil, "nextDeleteReason": nil,
		"automaticRestart": false, "cpuTimeSeconds": nil, "publicIpv6": nil, "egressIpv4": nil, "egressIpv6": nil,
		"lastNetworkActivity": nil, "placement": nil,
		"metadata": map[string]any{}, "networks": []any{}, "vpcs": []any{},
		"createdAt": "2026-03-01T12:00:00Z", "updatedAt": "2026-03-01T12:00:00Z",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSourceCannotBeRead(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.vms.get = func(context.Context, string) (vm.VM, error) { return fullVM(), nil }
	l.snapshots.get = func(context.Context, string) (snapshot.Snapshot, error) {
		return snapshot.Snapshot{}, errors.New("disk is gone")
	}
	l.send("GET", "/v5/vms/vm-1", "").failed(500, api.CodeInternal, "")
}

func TestCreateVM(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		want vm.CreateParams
	}{
		"least": {`{"firewall":{"rules":[]}}`, vm.CreateParams{}},
		"all": {
			`{"snapshotId":"pando/debian","slug":"web","displayName":"Web","metadata":{"a":"b"},"identity":"keep","firewall":{"rules":[]}}`,
			vm.CreateParams{SnapshotRef: "pando/debian", Slug: "web", DisplayName: "Web", Metadata: map[string]string{"a": "b"}, Identity: api.IdentityKeep},
		},
		"lifecycle": {
			`{"firewall":{"rules":[]},"slug":"web","reassignSlug":true,"idleTimeoutSeconds":60,"autoDeleteSeconds":0,"ttlSeconds":-1,
			"maxRunSeconds":5,"maxRunTotalSeconds":6,"automaticRestart":false,
			"placement":{"antiAffinity":[{"topology":"node","selector":{"matchLabels":{"app":"db"}}}]}}`,
			vm.CreateParams{
				Slug: "web", ReassignSlug: true, AutomaticRestart: new(false),
				Timers: vm.TimerChanges{
					Idle: new(int64(60)), AutoDelete: new(int64(0)), TTL: new(int64(-1)), MaxRun: new(int64(5)), MaxRunTotal: new(int64(6)),
				},
				Placement: []vm.AntiAffinity{{Topology: "node", MatchLabels: map[string]string{"app": "db"}}},
			},
		},
		"nulls":               {`{"snapshotId":null,"slug":null,"displayName":null,"metadata":null,"firewall":{"rules":null}}`, vm.CreateParams{}},
		"fields nobody knows": {`{"firewall":{},"color":"red","Slug":"x","nested":{"firewall":1}}`, vm.CreateParams{}},
		"known fields that ask for nothing": {
			`{"firewall":{"rules":[]},"reassignSlug":null,"autoDeleteSeconds":null,"automaticRestart":null,"vpcs":[],"networks":[],
			"placement":{"antiAffinity":[]},"tls":{"rules":[]}}`, vm.CreateParams{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.renamedSource()
			var got vm.CreateParams
			l.vms.create = func(_ context.Context, p vm.CreateParams) (vm.VM, error) {
				got = p
				return fullVM(), nil
			}
			var object api.VM
			l.send("POST", "/v5/vms", c.body).ok(201, &object)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(fullObject(), object); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCreateVMRefuses(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for body, field := range map[string]string{
		``:                                 "firewall",
		`{}`:                               "firewall",
		`{"firewall":null}`:                "firewall",
		`{"Firewall":{"rules":[]}}`:        "firewall",
		`{"firewall":{"rules":[{"a":1}]}}`: "firewall.rules[0].a",
		`{"firewall":{"rules":{}}}`:        "firewall.rules",
		`{"firewall":{"rule":[]}}`:         "firewall.rule",
		`{"firewall":[]}`:                  "firewall",
		`{"firewall":{},"reassignSlug":1}`: "reassignSlug",
		`{"firewall":{},"idleTimeoutSeconds":"60"}`:                     "idleTimeoutSeconds",
		`{"firewall":{},"autoDeleteSeconds":0.5}`:                       "autoDeleteSeconds",
		`{"firewall":{},"ttlSeconds":1e300}`:                            "ttlSeconds",
		`{"firewall":{},"maxRunSeconds":true}`:                          "maxRunSeconds",
		`{"firewall":{},"maxRunTotalSeconds":[]}`:                       "maxRunTotalSeconds",
		`{"firewall":{},"automaticRestart":"true"}`:                     "automaticRestart",
		`{"firewall":{},"placement":{"affinity":[]}}`:                   "placement.affinity",
		`{"firewall":{},"vpcs":[{"vpcId":"v"}]}`:                        "vpcs",
		`{"firewall":{},"networks":[{}]}`:                               "networks",
		`{"firewall":{},"placement":{"antiAffinity":[{"topology":1}]}}`: "placement.antiAffinity[0].topology",
		`{"firewall":{},"tls":{"rules":[{}]}}`:                          "tls.rules[0].action",
		`{"firewall":{},"slug":7}`:                                      "slug",
		`{"firewall":{},"metadata":{"a":null}}`:                         "metadata.a",
		`{"firewall":{},"metadata":{"a":1}}`:                            "metadata.a",
		`{"firewall":{},"metadata":["a"]}`:                              "metadata",
		`{"firewall":{},"identity":null}`:                               "identity",
	} {
		l.send("POST", "/v5/vms", body).failed(400, api.CodeBadRequest, field)
	}
	e := l.send("POST", "/v5/vms", `{"firewall":{},"vpcs":[{}]}`).failed(400, api.CodeBadRequest, "vpcs")
	if !strings.Contains(e.Message, "not supported by this version") {
		t.Errorf("got %q", e.Message)
	}
	l.send("POST", "/v5/vms?wait=1", `{"firewall":{}}`).failed(400, api.CodeBadRequest, "wait")
}

func TestListVMs(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	lookups := 0
	l.snapshots.get = func(context.Context, string) (snapshot.Snapshot, error) {
		lookups++
		return snapshot.Snapshot{ID: "sh-1", Slug: "new-name", DisplayName: "New name"}, nil
	}
	var filter vm.Filter
	l.vms.list = func(_ context.Context, f vm.Filter) ([]vm.VM, map[api.State]int, error) {
		filter = f
		return []vm.VM{fullVM(), fullVM()}, map[api.State]int{
			api.StateRunning: 5, api.StateStarting: 4, api.StatePausing: 3, api.StatePaused: 2, api.StateStopped: 1,
		}, nil
	}
	want := api.VMList{
		VMs: []api.VM{fullObject(), fullObject()}, TotalCount: 15,
		RunningCount: 5, StartingCount: 4, PausingCount: 3, PausedCount: 2, StoppedCount: 1,
	}
	var got api.VMList
	l.send("GET", "/v5/vms", "").ok(200, &got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(vm.Filter{}, filter); diff != "" {
		t.Error(diff)
	}
	if lookups != 1 {
		t.Errorf("one snapshot was looked up %d times", lookups)
	}

	want.TotalCount = 2
	l.send("GET", "/v5/vms?state=paused&slug=web&snapshotId=pando%2Fdebian&search=a+b&metadata=team:a,url:http://x&limit=2&offset=4", "").ok(200, &got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	wantFilter := vm.Filter{
		State: api.StatePaused, Slug: "web", SnapshotID: "pando/debian", Search: "a b",
		Metadata: map[string]string{"team": "a", "url": "http://x"}, Limit: 2, Offset: 4,
	}
	if diff := cmp.Diff(wantFilter, filter); diff != "" {
		t.Error(diff)
	}
}

func TestListVMsEmpty(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.vms.list = func(context.Context, vm.Filter) ([]vm.VM, map[api.State]int, error) { return nil, nil, nil }
	got := l.send("GET", "/v5/vms", "")
	if !strings.Contains(string(got.body), `"vms":[]`) {
		t.Errorf("got %s", got.body)
	}
}

func TestListVMsRefuses(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for query, field := range map[string]string{
		"state=sleeping": "state", "state=": "state", "limit=0": "limit", "limit=-1": "limit", "limit=x": "limit", "limit=": "limit",
		"limit=99999999999": "limit", "offset=-1": "offset", "offset=1.5": "offset", "metadata=a": "metadata", "metadata=:b": "metadata",
		"metadata=": "metadata", "metadata=a:b,": "metadata", "colour=red": "colour", "limit=1&limit=2": "limit", "a;b": "query", "x=%zz": "query",
	} {
		l.send("GET", "/v5/vms?"+query, "").failed(400, api.CodeBadRequest, field)
	}
	l.send("GET", "/v5/vms?vpc=v", "").failed(404, api.CodeNotFound, "vpc")
	l.send("GET", "/v5/vms/a?verbose=1", "").failed(400, api.CodeBadRequest, "verbose")
}

func TestDeleteVM(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.vms.remove = func(_ context.Context, ref string) error {
		if ref != "web" {
			return fault.NotFound("vm", ref)
		}
		return nil
	}
	if a := l.send("DELETE", "/v5/vms/web", ""); a.status != 204 || len(a.body) != 0 {
		t.Errorf("got %d %q", a.status, a.body)
	}
	l.send("DELETE", "/v5/vms/nope", "").failed(404, api.CodeNotFound, "")
}

func TestTransitions(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.renamedSource()
	var called string
	use := func(name string) func(context.Context, string) (vm.VM, error) {
		return func(_ context.Context, ref string) (vm.VM, error) {
			called = name + " " + ref
			if ref == "stuck" {
				return vm.VM{}, fault.Conflict(api.ReasonWrongState, "the vm is paused").Hint("start it")
			}
			return fullVM(), nil
		}
	}
	l.vms.start, l.vms.pause, l.vms.stop = use("start"), use("pause"), use("stop")
	for _, verb := range []string{"start", "pause", "stop"} {
		for _, body := range []string{"", "{}", " \n", "{ }"} {
			called = ""
			var got api.VM
			l.send("POST", "/v5/vms/web/"+verb, body).ok(200, &got)
			if diff := cmp.Diff(fullObject(), got); diff != "" {
				t.Error(diff)
			}
			if called != verb+" web" {
				t.Errorf("%s called %q", verb, called)
			}
		}
		if e := l.send("POST", "/v5/vms/stuck/"+verb, "").failed(409, api.CodeConflict, ""); e.Reason != api.ReasonWrongState {
			t.Errorf("got reason %q", e.Reason)
		}
		l.send("POST", "/v5/vms/web/"+verb, `{"force":true}`).failed(400, api.CodeBadRequest, "force")
		l.send("POST", "/v5/vms/web/"+verb, `null`).failed(400, api.CodeBadRequest, "body")
	}
}

func TestFork(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.renamedSource()
	var got vm.ForkParams
	l.vms.fork = func(_ context.Context, ref string, p vm.ForkParams) (vm.ForkOutcome, error) {
		got = p
		return vm.ForkOutcome{Pause: 12345 * time.Microsecond, Children: []vm.ForkedChild{
			{VM: fullVM()},
			{Err: fault.Conflict(api.ReasonNoMemory, "no memory").Hint("free some")},
			{Err: errors.New("secret")},
		}}, nil
	}
	a := l.send("POST", "/v5/vms/web/fork", `{"count":3,"slug":"try","displayName":"Try","metadata":{"a":"b"},"identity":"keep"}`)
	var resp api.ForkVMResponse
	a.ok(200, &resp)
	id := a.header.Get("X-Request-Id")
	want := api.ForkVMResponse{PauseMs: 12.345, Forks: []api.Fork{
		{VM: new(fullObject())},
		{Error: &api.Error{Code: api.CodeConflict, Reason: api.ReasonNoMemory, Message: "no memory", Remedy: "free some", RequestID: id}},
		{Error: &api.Error{Code: api.CodeInternal, Message: "internal error", Remedy: resp.Forks[2].Error.Remedy, RequestID: id}},
	}}
	if diff := cmp.Diff(want, resp); diff != "" {
		t.Error(diff)
	}
	wantParams := vm.ForkParams{Count: 3, Slug: "try", DisplayName: "Try", Metadata: map[string]string{"a": "b"}, Identity: api.IdentityKeep}
	if diff := cmp.Diff(wantParams, got); diff != "" {
		t.Error(diff)
	}
	for body, count := range map[string]int{``: 1, `{}`: 1, `{"count":null}`: 1, `{"count":0}`: 0, `{"count":101}`: 101, `{"count":-1}`: -1} {
		l.send("POST", "/v5/vms/web/fork", body).ok(200, &resp)
		if got.Count != count {
			t.Errorf("%s: count %d, want %d", body, got.Count, count)
		}
	}
	for body, field := range map[string]string{
		`{"counts":3}`: "counts", `{"count":"3"}`: "count", `{"count":1.5}`: "count", `{"count":1e99}`: "count", `{"Count":1}`: "Count",
	} {
		l.send("POST", "/v5/vms/web/fork", body).failed(400, api.CodeBadRequest, field)
	}
}

func TestSnapshotVM(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var got vm.SnapshotParams
	l.vms.snapshot = func(_ context.Context, ref string, p vm.SnapshotParams) (snapshot.Snapshot, time.Duration, error) {
		got = p
		return fullSnapshot(), 1500 * time.Microsecond, nil
	}
	var resp api.CreateSnapshotResponse
	l.send("POST", "/v5/vms/web/snapshot", `{"slug":"s","displayName":"S","autoDeleteSeconds":3,"ttlSeconds":null}`).ok(200, &resp)
	want := api.CreateSnapshotResponse{SnapshotID: "sh-1", SourceVMID: "vm-1", Snapshot: fullSnapshotObject(), PauseMs: 1.5}
	if diff := cmp.Diff(want, resp); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(vm.SnapshotParams{Slug: "s", DisplayName: "S", AutoDelete: new(int64(3))}, got); diff != "" {
		t.Error(diff)
	}
	l.send("POST", "/v5/vms/web/snapshot", ``).ok(200, &resp)
	for body, field := range map[string]string{`{"ttlSeconds":"60"}`: "ttlSeconds", `{"autoDeleteSeconds":{}}`: "autoDeleteSeconds", `{"name":"x"}`: "name"} {
		l.send("POST", "/v5/vms/web/snapshot", body).failed(400, api.CodeBadRequest, field)
	}
}

func fullSnapshot() snapshot.Snapshot {
	return snapshot.Snapshot{
		ID: "sh-1", Slug: "s", DisplayName: "S", SourceVMID: "vm-1", SourceVMSlug: "web", SourceVMDisplayName: "Web",
		Public: true, Resources: api.Resources{CPU: 1, Memory: 128, Storage: 1024}, Image: "pando/busybox", Durable: true,
		Ancestry: []string{"vm-1"}, Bytes: 42, LastUsedAt: moment(), CreatedAt: moment(), UpdatedAt: moment(),
		AutoDelete: new(time.Minute), TTL: new(time.Hour),
	}
}

func fullSnapshotObject() api.Snapshot {
	return api.Snapshot{
		ID: "sh-1", Slug: new("s"), DisplayName: new("S"), SourceVMID: new("vm-1"), SourceVMSlug: new("web"), SourceVMDisplayName: new("Web"),
		Public: true, Resources: api.Resources{CPU: 1, Memory: 128, Storage: 1024}, Image: new("pando/busybox"), Durable: true,
		Bytes: 42, LastUsedAt: new(moment()), CreatedAt: moment(), UpdatedAt: moment(),
		AccountID: new("pando"), AutoDeleteSeconds: new(int64(60)), TTLSeconds: new(int64(3600)),
	}
}

func TestExec(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var got command.Order
	result := command.Result{Stdout: []byte("out<&>"), Stderr: []byte("err\xff"), StdoutBytes: 6, StderrBytes: 99, ExitCode: new(7)}
	l.commands.exec = func(_ context.Context, ref string, p command.Order) (command.Result, error) {
		got = p
		return result, nil
	}
	stdin := base64.StdEncoding.EncodeToString([]byte("in\x00put"))
	body := `{"command":"cat","linuxUser":"agent","timeoutMs":86400000,"env":{"A":"b"},"stdin":"` + stdin + `"}`
	var resp api.ExecResponse
	l.send("POST", "/v5/vms/web/exec-await", body).ok(200, &resp)
	want := api.ExecResponse{Stdout: "out<&>", Stderr: "err\ufffd", StatusCode: new(7), StdoutBytes: 6, StderrBytes: 99, Truncated: true}
	if diff := cmp.Diff(want, resp); diff != "" {
		t.Error(diff)
	}
	wantParams := command.Order{Command: "cat", User: "agent", Env: map[string]string{"A": "b"}, Stdin: []byte("in\x00put"), Timeout: 24 * time.Hour}
	if diff := cmp.Diff(wantParams, got); diff != "" {
		t.Error(diff)
	}

	result = command.Result{TimedOut: true}
	a := l.send("POST", "/v5/vms/web/exec-await", `{"command":"x","linuxUser":null,"timeoutMs":null,"env":null,"stdin":null}`)
	var raw map[string]any
	a.ok(200, &raw)
	wantRaw := map[string]any{"stdout": "", "stderr": "", "statusCode": nil, "timedOut": true, "stdoutBytes": 0.0, "stderrBytes": 0.0}
	if diff := cmp.Diff(wantRaw, raw); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(command.Order{Command: "x"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestExecRefuses(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for body, field := range map[string]string{
		`{"command":"x","timeoutMs":0}`:                    "timeoutMs",
		`{"command":"x","timeoutMs":-1}`:                   "timeoutMs",
		`{"command":"x","timeoutMs":86400001}`:             "timeoutMs",
		`{"command":"x","timeoutMs":9223372036854775807}`:  "timeoutMs",
		`{"command":"x","timeoutMs":99999999999999999999}`: "timeoutMs",
		`{"command":"x","stdin":"%%"}`:                     "stdin",
		`{"command":"x","stdin":"YQ"}`:                     "stdin",
		`{"command":["x"]}`:                                "command",
		`{"command":null}`:                                 "command",
		`{"command":"x","env":{"A":1}}`:                    "env.A",
		`{"command":"x","cwd":"/"}`:                        "cwd",
		`{"command":"x","Command":"y"}`:                    "Command",
		`{"command":"x"`:                                   "body",
		`{"command":"x"} {}`:                               "body",
		`["x"]`:                                            "body",
		`"x"`:                                              "body",
		"{\"command\":\"\xff\"}":                           "body",
		"\ufeff{}":                                         "body",
		strings.Repeat("[", 20000):                         "body",
	} {
		l.send("POST", "/v5/vms/web/exec-await", body).failed(400, api.CodeBadRequest, field)
	}
	e := l.send("POST", "/v5/vms/web/exec-await", `{"command":"x","timeoutMs":"5"}`).failed(400, api.CodeBadRequest, "timeoutMs")
	if e.Message != "timeoutMs: expected an integer, got string" {
		t.Errorf("got %q", e.Message)
	}
	long := strings.Repeat("x", 1000)
	if e := l.send("POST", "/v5/vms/web/exec-await", `{"`+long+`":1}`); len(e.body) > 1000 {
		t.Errorf("the error repeats the whole request: %d bytes", len(e.body))
	}
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var filter snapshot.Filter
	l.snapshots.list = func(_ context.Context, f snapshot.Filter) ([]snapshot.Snapshot, int, error) {
		filter = f
		return []snapshot.Snapshot{fullSnapshot()}, 9, nil
	}
	var list api.SnapshotList
	l.send("GET", "/v5/snapshots?sourceVmId=web&search=x&limit=1&offset=2", "").ok(200, &list)
	if diff := cmp.Diff(api.SnapshotList{Snapshots: []api.Snapshot{fullSnapshotObject()}, TotalCount: 9}, list); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(snapshot.Filter{SourceVMID: "web", Search: "x", Limit: 1, Offset: 2}, filter); diff != "" {
		t.Error(diff)
	}
	l.snapshots.list = func(context.Context, snapshot.Filter) ([]snapshot.Snapshot, int, error) { return nil, 0, nil }
	if a := l.send("GET", "/v5/snapshots", ""); strings.TrimSpace(string(a.body)) != `{"snapshots":[],"totalCount":0}` {
		t.Errorf("got %s", a.body)
	}
	l.snapshots.get = func(context.Context, string) (snapshot.Snapshot, error) { return fullSnapshot(), nil }
	var one api.Snapshot
	l.send("GET", "/v5/snapshots/s", "").ok(200, &one)
	if diff := cmp.Diff(fullSnapshotObject(), one); diff != "" {
		t.Error(diff)
	}
	var removed string
	l.snapshots.remove = func(_ context.Context, ref string) error { removed = ref; return nil }
	if a := l.send("DELETE", "/v5/snapshots/pando%2Fdebian", ""); a.status != 204 || removed != "pando/debian" {
		t.Errorf("got %d, removed %q", a.status, removed)
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	want := []api.Image{{Name: "pando/debian", Aliases: []string{"freestyle/ubuntu"}, Default: true, Built: true, BuiltAt: new(moment()), Bytes: 7, Version: "v"}}
	l.images.list = func(context.Context) ([]api.Image, error) { return want, nil }
	var got api.ImageList
	l.send("GET", "/v5/images", "").ok(200, &got)
	if diff := cmp.Diff(api.ImageList{Images: want}, got); diff != "" {
		t.Error(diff)
	}
	l.images.list = func(context.Context) ([]api.Image, error) { return nil, nil }
	if a := l.send("GET", "/v5/images", ""); strings.TrimSpace(string(a.body)) != `{"images":[]}` {
		t.Errorf("got %s", a.body)
	}
	l.images.list = func(context.Context) ([]api.Image, error) { return nil, errors.New("secret") }
	l.send("GET", "/v5/images", "").failed(500, api.CodeInternal, "")
}

// TestAnswerCannotBeEncoded: a time beyond the year 9999 has no JSON form.
func TestAnswerCannotBeEncoded(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.snapshots.get = func(context.Context, string) (snapshot.Snapshot, error) {
		return snapshot.Snapshot{ID: "sh-1", CreatedAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, nil
	}
	l.send("GET", "/v5/snapshots/s", "").failed(500, api.CodeInternal, "")
}

func TestAnswersAreNotEscapedForHTML(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal("<")
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t)
	l.commands.exec = func(context.Context, string, command.Order) (command.Result, error) {
		return command.Result{Stdout: []byte("<"), StdoutBytes: 1, ExitCode: new(0)}, nil
	}
	if a := l.send("POST", "/v5/vms/a/exec-await", `{"command":"x"}`); strings.Contains(string(a.body), string(raw)) {
		t.Errorf("got %s", a.body)
	}
}
