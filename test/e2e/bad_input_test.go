package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
	pando "github.com/pandovm/pando/sdk"
)

func TestBadInput(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	ctx := t.Context()
	v := l.Create(testlab.Busybox)
	stopped := l.Create(testlab.Busybox)
	if _, err := l.Client.VMs.Stop(ctx, stopped.ID); err != nil {
		t.Fatal(err)
	}
	create := func(change func(*api.CreateVMRequest)) error {
		r := api.CreateVMRequest{SnapshotID: new(testlab.Busybox), Firewall: &api.Firewall{Rules: []api.FirewallRuleRequest{}}}
		change(&r)
		_, err := l.Client.VMs.Create(ctx, r)
		return err
	}
	fork := func(id string, count int) error {
		_, err := l.Client.VMs.Fork(ctx, id, api.ForkVMRequest{Count: &count})
		return err
	}
	for name, c := range map[string]struct {
		err    error
		code   api.Code
		reason api.Reason
		field  string
	}{
		"unknown snapshot":   {create(func(r *api.CreateVMRequest) { r.SnapshotID = new("sh-nope") }), api.CodeNotFound, "", "snapshotId"},
		"bad slug":           {create(func(r *api.CreateVMRequest) { r.Slug = new("Not A Slug") }), api.CodeBadRequest, "", "slug"},
		"fork of a stopped":  {fork(stopped.ID, 1), api.CodeConflict, api.ReasonWrongState, ""},
		"fork of none":       {fork(v.ID, 0), api.CodeBadRequest, "", "count"},
		"fork of too many":   {fork(v.ID, 101), api.CodeBadRequest, "", "count"},
		"exec on a stopped":  {execOn(ctx, l, stopped.ID, api.ExecRequest{Command: "true"}), api.CodeConflict, api.ReasonWrongState, ""},
		"exec as nobody":     {execOn(ctx, l, v.ID, api.ExecRequest{Command: "true", LinuxUser: new("who")}), api.CodeBadRequest, "", "linuxUser"},
		"unknown vm":         {execOn(ctx, l, "vm-none", api.ExecRequest{Command: "true"}), api.CodeNotFound, "", ""},
		"timeout of a week":  {execOn(ctx, l, v.ID, api.ExecRequest{Command: "true", TimeoutMs: new(int64(7 * 24 * 3600 * 1000))}), api.CodeBadRequest, "", "timeoutMs"},
		"timeout of nothing": {execOn(ctx, l, v.ID, api.ExecRequest{Command: "true", TimeoutMs: new(int64(0))}), api.CodeBadRequest, "", "timeoutMs"},
		"stdin not base64":   {execOn(ctx, l, v.ID, api.ExecRequest{Command: "true", Stdin: new("%%%")}), api.CodeBadRequest, "", "stdin"},
	} {
		e := wantError(t, c.err, c.code, c.reason)
		if e.Field != c.field || e.Remedy == "" || e.RequestID == "" {
			t.Errorf("%s: %+v, want field %q, a remedy and a request id", name, e, c.field)
		}
	}
	wantFirewall(t, l)
	list, err := l.Client.VMs.List(ctx, pando.VMFilter{})
	if err != nil || list.TotalCount != 2 || list.RunningCount != 1 || list.StoppedCount != 1 {
		t.Errorf("after all that: %+v, %v", list, err)
	}
	if got := l.Run(v.ID, "echo alive"); got != "alive\n" {
		t.Errorf("the vm says %q", got)
	}
}

func execOn(ctx context.Context, l *testlab.Lab, id string, r api.ExecRequest) error {
	_, err := l.Client.VMs.Exec(ctx, id, r)
	return err
}

// wantFirewall checks that a create without a firewall is refused. The SDK
// would add one.
func wantFirewall(t *testing.T, l *testlab.Lab) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.URL+"/v5/vms", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+l.Key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var e api.Error
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusBadRequest || e.Code != api.CodeBadRequest || e.Field != "firewall" {
		t.Errorf("a create without a firewall: %d %+v", resp.StatusCode, e)
	}
}
