package httpapi_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/vm"
)

func TestUpdateVM(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		want vm.UpdateParams
	}{
		"nothing": {`{}`, vm.UpdateParams{}},
		"empty":   {``, vm.UpdateParams{}},
		"nulls": {
			`{"slug":null,"reassignSlug":null,"displayName":null,"idleTimeoutSeconds":null,"automaticRestart":null,"metadata":null}`,
			vm.UpdateParams{},
		},
		"no metadata": {`{"metadata":{}}`, vm.UpdateParams{Metadata: map[string]string{}}},
		"all": {
			`{"slug":"","reassignSlug":true,"displayName":"","idleTimeoutSeconds":-1,"autoDeleteSeconds":0,"ttlSeconds":3,
			"maxRunSeconds":4,"maxRunTotalSeconds":5,"automaticRestart":false,"metadata":{"a":"","b":"c"}}`,
			vm.UpdateParams{
				Slug: new(""), ReassignSlug: true, DisplayName: new(""),
				Timers: vm.TimerChanges{
					Idle: new(int64(-1)), AutoDelete: new(int64(0)), TTL: new(int64(3)), MaxRun: new(int64(4)), MaxRunTotal: new(int64(5)),
				},
				AutomaticRestart: new(false), Metadata: map[string]string{"a": "", "b": "c"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.renamedSource()
			var got vm.UpdateParams
			l.vms.update = func(_ context.Context, ref string, p vm.UpdateParams) (vm.VM, error) {
				if ref != "web" {
					t.Errorf("the update is for %q", ref)
				}
				got = p
				return fullVM(), nil
			}
			var object api.VM
			l.send("PATCH", "/v5/vms/web", c.body).ok(200, &object)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(fullObject(), object); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUpdateVMRefuses(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for body, field := range map[string]string{
		`{"slug":7}`: "slug", `{"metadata":{"a":null}}`: "metadata.a", `{"metadata":[]}`: "metadata", `{"ttlSeconds":"1"}`: "ttlSeconds",
		`{"maxRunSeconds":1.5}`: "maxRunSeconds", `{"automaticRestart":1}`: "automaticRestart", `{"Slug":"x"}`: "Slug",
		`{"placement":null}`: "placement", `{"snapshotId":"x"}`: "snapshotId", `[]`: "body",
	} {
		l.send("PATCH", "/v5/vms/web", body).failed(400, api.CodeBadRequest, field)
	}
}

// TestOutlook: the object says what the timers will do next.
func TestOutlook(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.vms.get = func(context.Context, string) (vm.VM, error) { return fullVM(), nil }
	l.vms.outlook = func(v vm.VM) vm.Outlook {
		if v.ID != "vm-1" {
			t.Errorf("asked about %q", v.ID)
		}
		return vm.Outlook{
			Pause:  vm.Due{At: moment().In(time.FixedZone("", 3600)), Timer: "idleTimeoutSeconds"},
			Delete: vm.Due{At: moment().Add(time.Hour), Timer: "ttlSeconds"},
		}
	}
	var got api.VM
	l.send("GET", "/v5/vms/vm-1", "").ok(200, &got)
	want := fullObject()
	want.SourceSnapshotSlug, want.SourceSnapshotDisplayName = nil, nil
	want.NextPauseAt, want.NextPauseReason = new(moment()), new("idleTimeoutSeconds")
	want.NextDeleteAt, want.NextDeleteReason = new(moment().Add(time.Hour)), new("ttlSeconds")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestUpdateSnapshot(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var got snapshot.UpdateParams
	l.snapshots.update = func(_ context.Context, ref string, p snapshot.UpdateParams) (snapshot.Snapshot, error) {
		if ref != "mine/one" {
			t.Errorf("the update is for %q", ref)
		}
		got = p
		return fullSnapshot(), nil
	}
	var object api.Snapshot
	l.send("PATCH", "/v5/snapshots/mine%2Fone", `{"slug":"","displayName":"N","autoDeleteSeconds":-1,"ttlSeconds":60}`).ok(200, &object)
	want := snapshot.UpdateParams{Slug: new(""), DisplayName: new("N"), AutoDelete: new(int64(-1)), TTL: new(int64(60))}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(fullSnapshotObject(), object); diff != "" {
		t.Error(diff)
	}
	for body, field := range map[string]string{`{"ttlSeconds":false}`: "ttlSeconds", `{"public":true}`: "public", `{"reassignSlug":true}`: "reassignSlug"} {
		l.send("PATCH", "/v5/snapshots/s", body).failed(400, api.CodeBadRequest, field)
	}
}
