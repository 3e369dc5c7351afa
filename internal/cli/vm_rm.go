package cli

import (
	"github.com/spf13/cobra"
)

func (a *app) vmRm() *cobra.Command {
	return &cobra.Command{
		Use:     "rm VM...",
		Aliases: []string{"delete", "remove"},
		Short:   "Delete VMs in any state",
		Long: `Delete VMs in any state, with their disks. Their forks and snapshots remain.

If one cannot be deleted the others still are, and the exit code is 1.`,
		Args: wantArgs(1, -1, "VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return a.removeEach(cmd.Context(), args, c.VMs.Delete)
		},
	}
}
