package httpapi

import (
	"context"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/vm"
)

// Agents are the use cases on the agents in VMs; ref is an id or a slug.
type Agents interface {
	// UpgradeAgent replaces a VM's agent by the daemon's own.
	UpgradeAgent(ctx context.Context, ref string, force bool) (vm.VM, error)
}

func (s *server) agentRoutes() []route {
	return []route{
		handle(Operation{
			Method: "POST", Path: "/v5/vms/{id}/agent", ID: "upgradeVMAgent", Status: 200,
			Summary: "Replace the agent in a VM by the one that this daemon has.",
			Description: "The VM runs on, and agentVersion of the answer is the new version. If the agent is of that version already, " +
				"nothing happens. If the new agent does not answer, the old one comes back and the call fails. " +
				"While commands or terminals run in the VM it is CONFLICT with reason commands_running, unless force is true: " +
				"then they go on, and nobody can read their output or learn how they end.",
			Errors: []api.Code{
				api.CodeBadRequest, api.CodeAgentUnsupported, api.CodeNotFound, api.CodeConflict, api.CodeVMNonResponsive, api.CodeUnavailable,
			},
		}, s.upgradeAgent),
	}
}

func (s *server) upgradeAgent(ctx context.Context, c call[api.UpgradeAgentRequest]) (api.VM, error) {
	v, err := s.agents.UpgradeAgent(ctx, c.ref, c.body.Force)
	if err != nil {
		return api.VM{}, err
	}
	return s.viewVM(ctx, v)
}
