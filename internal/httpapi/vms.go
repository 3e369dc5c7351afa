package httpapi

import (
	"context"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/vm"
)

func (s *server) vmRoutes() []route {
	return []route{
		handleOnce(Operation{
			Method: "POST", Path: "/v5/vms", ID: "createVM", Status: 201,
			Summary: "Create a VM from a snapshot or a base image.",
			Description: "Answers once the guest has confirmed its clock, entropy and identity. " +
				"A VM made from a snapshot goes on with the processes that ran in it. " +
				"The firewall block is required, and nothing is allowed that it does not say. " + notEnforced,
			Lenient: true, Unsupported: unsupportedInCreate(),
			Errors: []api.Code{api.CodeBadRequest, api.CodeNotFound, api.CodeConflict, api.CodeVMNonResponsive, api.CodeUnavailable},
		}, s.createVM, s.findCreated),
		handle(Operation{
			Method: "GET", Path: "/v5/vms", ID: "listVMs", Status: 200,
			Summary: "List VMs, newest first, and count them by state.",
			Query:   listParameters(), Errors: []api.Code{api.CodeNotFound},
		}, s.listVMs),
		handle(Operation{
			Method: "GET", Path: "/v5/vms/{id}", ID: "getVM", Status: 200,
			Summary: "Get a VM by id or slug.", Errors: []api.Code{api.CodeNotFound},
		}, s.getVM),
		handle(Operation{
			Method: "PATCH", Path: "/v5/vms/{id}", ID: "updateVM", Status: 200,
			Summary: "Change the settings of a VM in any state.",
			Description: "What is left out stays as it is. It is no use of the VM: an idle timer runs on. " +
				"A timer whose moment has passed acts at once.",
			Errors: []api.Code{api.CodeBadRequest, api.CodeNotFound, api.CodeConflict},
		}, s.updateVM),
		handle(Operation{
			Method: "DELETE", Path: "/v5/vms/{id}", ID: "deleteVM", Status: 204,
			Summary:     "Delete a VM in any state.",
			Description: "Its snapshots and the VMs forked from it are not affected.",
			Errors:      []api.Code{api.CodeNotFound},
		}, s.deleteVM),
	}
}

// unsupportedInCreate names what the reference lets a create ask for and this
// version cannot give.
func unsupportedInCreate() []string {
	return []string{
		"vpcs", "networks",
	}
}

func listParameters() []Parameter {
	states := []string{
		string(api.StateStarting), string(api.StateRunning), string(api.StatePausing),
		string(api.StatePaused), string(api.StateStopped),
	}
	return append([]Parameter{
		{Name: "state", Type: "string", Values: states, Description: "Only VMs in this state."},
		{Name: "slug", Type: "string", Description: "Only the VM with exactly this slug."},
		{Name: "snapshotId", Type: "string", Description: "Only VMs created from the snapshot with this id or slug."},
		{Name: "metadata", Type: "string", Description: "Only VMs with all these entries: key:value,key:value."},
		{Name: "vpc", Type: "string", Description: "Only VMs in this private network. There are none in this version: NOT_FOUND."},
		searchParameter(),
	}, pageParameters()...)
}

func (s *server) createVM(ctx context.Context, c call[api.CreateVMRequest]) (api.VM, error) {
	b := c.body
	if b.Firewall == nil {
		return api.VM{}, fault.BadField("firewall", "is required").Hint(`send "firewall": {"rules": []}`)
	}
	plan, err := s.network.Plan(ctx, b.Firewall.Rules, tlsRules(b))
	if err != nil {
		return api.VM{}, err
	}
	p := vm.CreateParams{
		SnapshotRef: orZero(b.SnapshotID), Slug: orZero(b.Slug), DisplayName: orZero(b.DisplayName),
		Metadata: b.Metadata, Identity: b.Identity, Seed: c.seed,
		ReassignSlug:     orZero(b.ReassignSlug),
		Timers:           vm.TimerChanges{Idle: b.IdleTimeoutSeconds, AutoDelete: b.AutoDeleteSeconds, TTL: b.TTLSeconds, MaxRun: b.MaxRunSeconds, MaxRunTotal: b.MaxRunTotalSeconds},
		AutomaticRestart: b.AutomaticRestart, Placement: placementRules(b.Placement),
	}
	if len(plan.Firewall)+len(plan.TLS) > 0 {
		p.Attach = plan.Attach
	}
	v, err := s.vms.Create(ctx, p)
	if err != nil {
		return api.VM{}, err
	}
	out, err := s.viewVM(ctx, v)
	if err != nil {
		return api.VM{}, err
	}
	return s.withRules(ctx, out, plan.Firewall, plan.TLS)
}

func tlsRules(b api.CreateVMRequest) []api.TLSRuleRequest {
	if b.TLS == nil {
		return nil
	}
	return b.TLS.Rules
}

// findCreated returns the VM of a daemon that was killed before it could answer.
func (s *server) findCreated(ctx context.Context, c call[api.CreateVMRequest]) (api.VM, bool, error) {
	v, err := s.vms.Get(ctx, vm.ID(c.seed, 0))
	if notFound(err) {
		return api.VM{}, false, nil
	}
	if err != nil {
		return api.VM{}, false, err
	}
	firewall, tls, err := s.network.RulesOf(ctx, v.ID)
	if err != nil {
		return api.VM{}, false, err
	}
	out, err := s.viewVM(ctx, v)
	if err != nil {
		return api.VM{}, false, err
	}
	out, err = s.withRules(ctx, out, firewall, tls)
	return out, err == nil, err
}

func (s *server) listVMs(ctx context.Context, c call[none]) (api.VMList, error) {
	f, err := vmFilter(c.query)
	if err != nil {
		return api.VMList{}, err
	}
	found, counts, err := s.vms.List(ctx, f)
	if err != nil {
		return api.VMList{}, err
	}
	list, err := s.viewVMs(ctx, found)
	if err != nil {
		return api.VMList{}, err
	}
	return api.VMList{
		VMs: list, TotalCount: total(counts, f.State),
		RunningCount: counts[api.StateRunning], StartingCount: counts[api.StateStarting],
		PausingCount: counts[api.StatePausing], PausedCount: counts[api.StatePaused], StoppedCount: counts[api.StateStopped],
	}, nil
}

func vmFilter(q query) (vm.Filter, error) {
	if name := q["vpc"]; name != "" {
		return vm.Filter{}, &fault.Error{
			Code: api.CodeNotFound, Field: "vpc", Message: "vpc: no private network is called " + clip(name),
			Remedy: "leave it out: VMs have no networks in this version",
		}
	}
	labels, err := q.labels("metadata")
	return vm.Filter{
		State: api.State(q["state"]), Slug: q["slug"], SnapshotID: q["snapshotId"], Search: q["search"],
		Metadata: labels, Limit: q.number("limit"), Offset: q.number("offset"),
	}, err
}

// total is the number of VMs that all pages together show.
func total(counts map[api.State]int, state api.State) int {
	if state != "" {
		return counts[state]
	}
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum
}

func (s *server) getVM(ctx context.Context, c call[none]) (api.VM, error) {
	v, err := s.vms.Get(ctx, c.ref)
	if err != nil {
		return api.VM{}, err
	}
	return s.viewVM(ctx, v)
}

func (s *server) updateVM(ctx context.Context, c call[api.UpdateVMRequest]) (api.VM, error) {
	b := c.body
	v, err := s.vms.Update(ctx, c.ref, vm.UpdateParams{
		Slug: b.Slug, ReassignSlug: orZero(b.ReassignSlug), DisplayName: b.DisplayName,
		Timers:           vm.TimerChanges{Idle: b.IdleTimeoutSeconds, AutoDelete: b.AutoDeleteSeconds, TTL: b.TTLSeconds, MaxRun: b.MaxRunSeconds, MaxRunTotal: b.MaxRunTotalSeconds},
		AutomaticRestart: b.AutomaticRestart, Metadata: b.Metadata,
	})
	if err != nil {
		return api.VM{}, err
	}
	return s.viewVM(ctx, v)
}

func placementRules(p *api.Placement) []vm.AntiAffinity {
	if p == nil {
		return nil
	}
	var rules []vm.AntiAffinity
	for _, r := range p.AntiAffinity {
		rules = append(rules, vm.AntiAffinity{Topology: r.Topology, MatchLabels: r.Selector.MatchLabels})
	}
	return rules
}

func (s *server) deleteVM(ctx context.Context, c call[none]) (none, error) {
	return none{}, s.vms.Delete(ctx, c.ref)
}
