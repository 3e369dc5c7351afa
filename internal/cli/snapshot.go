package cli

import "github.com/spf13/cobra"

func (a *app) snapshot() *cobra.Command {
	return group(&cobra.Command{
		Use:     "snapshot",
		Aliases: []string{"snapshots"},
		Short:   "Take, change and delete snapshots",
		Long: `Take, change and delete snapshots.

A snapshot is named by its id or its slug.`,
	}, a.snapshotCreate(), a.snapshotLs(), a.snapshotGet(), a.snapshotUpdate(), a.snapshotRm())
}
