package cli

import "github.com/spf13/cobra"

func (a *app) snapshot() *cobra.Command {
	return group(&cobra.Command{
		Use:     "snapshot",
		Aliases: []string{"snapshots"},
		Short:   "List and delete snapshots",
		Long: `List and delete snapshots. To take one, use: pando vm snapshot

A snapshot is named by its id or its slug.`,
	}, a.snapshotLs(), a.snapshotRm())
}
