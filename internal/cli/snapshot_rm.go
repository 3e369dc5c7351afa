package cli

import "github.com/spf13/cobra"

func (a *app) snapshotRm() *cobra.Command {
	return &cobra.Command{
		Use:     "rm SNAPSHOT...",
		Aliases: []string{"delete", "remove"},
		Short:   "Delete snapshots",
		Long: `Delete snapshots. VMs and snapshots that come from them are not affected.

If one cannot be deleted the others still are, and the exit code is 1.`,
		Args: wantArgs(1, -1, "SNAPSHOT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return a.removeEach(cmd.Context(), args, c.Snapshots.Delete)
		},
	}
}
