package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
)

func (a *app) vmAgent() *cobra.Command {
	return group(&cobra.Command{
		Use:   "agent",
		Short: "Replace the agent in a VM",
		Long: `Replace the agent in a VM: the program in the guest that carries out what the
daemon asks for. Which version a VM has is shown by: pando vm get`,
	}, a.vmAgentUpgrade())
}

func (a *app) vmAgentUpgrade() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "upgrade VM",
		Short: "Give a running VM the agent that the daemon has",
		Long: `Give a running VM the agent that the daemon has. The VM runs on. If the new
agent does not answer, the old one comes back.

While commands or terminals run in the VM it is refused, unless it is forced:
then they run on, and nobody can read their output or learn how they end.`,
		Args: wantArgs(1, 1, "VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.upgradeAgent(cmd.Context(), args[0], force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "go on though commands or terminals run, and cut them off")
	return cmd
}

func (a *app) upgradeAgent(ctx context.Context, ref string, force bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	start := a.Now()
	t := a.begin("replacing the agent of " + printable(ref))
	vm, err := c.VMs.UpgradeAgent(ctx, ref, api.UpgradeAgentRequest{Force: force})
	t.end()
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(vm)
	}
	return a.print("%s has agent %s (%s)", printable(label(vm)), printable(vm.AgentVersion), a.took(start))
}
