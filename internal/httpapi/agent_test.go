package httpapi_test

import (
	"context"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/vm"
)

// fakeAgents finds no VM until it has an upgrade.
type fakeAgents struct {
	upgrade func(ref string, force bool) (vm.VM, error)
}

func (f *fakeAgents) UpgradeAgent(_ context.Context, ref string, force bool) (vm.VM, error) {
	if f.upgrade == nil {
		return vm.VM{}, fault.NotFound("vm", ref)
	}
	return f.upgrade(ref, force)
}

func TestUpgradeAgent(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.send("POST", "/v5/vms/nobody/agent", "{}").failed(404, api.CodeNotFound, "")
	l.send("POST", "/v5/vms/web/agent", `{"force":"yes"}`).failed(400, api.CodeBadRequest, "force")
	l.send("POST", "/v5/vms/web/agent", `{"version":"2"}`).failed(400, api.CodeBadRequest, "version")
	var forced []bool
	l.agents.upgrade = func(ref string, force bool) (vm.VM, error) {
		forced = append(forced, force)
		if ref != "web" {
			t.Errorf("it was asked for %q", ref)
		}
		if !force {
			return vm.VM{}, fault.Conflict(api.ReasonCommandsRunning, "commands run: 12 make").Hint("wait")
		}
		return fullVM(), nil
	}
	l.renamedSource()
	l.vms.outlook = func(vm.VM) vm.Outlook { return vm.Outlook{} }
	for _, body := range []string{"", "{}", `{"force":false}`} {
		l.send("POST", "/v5/vms/web/agent", body).failed(409, api.CodeConflict, "")
	}
	var got api.VM
	l.send("POST", "/v5/vms/web/agent", `{"force":true}`).ok(200, &got)
	if got.AgentVersion != fullVM().AgentVersion {
		t.Errorf("the vm is %+v", got)
	}
	if len(forced) != 4 || !forced[3] {
		t.Errorf("it was asked with %v", forced)
	}
}
