package cli

import "github.com/spf13/cobra"

func (a *app) snapshotGet() *cobra.Command {
	return &cobra.Command{
		Use:   "get SNAPSHOT",
		Short: "Show one snapshot",
		Args:  wantArgs(1, 1, "SNAPSHOT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			s, err := c.Snapshots.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(s)
			}
			return a.printBlock(a.describeSnapshot(s))
		},
	}
}
