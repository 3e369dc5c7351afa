package cli

import "github.com/spf13/cobra"

func (a *app) imageRm() *cobra.Command {
	return &cobra.Command{
		Use:     "rm IMAGE...",
		Aliases: []string{"delete", "remove"},
		Short:   "Delete built base images from the cache",
		Long: `Delete built base images from the cache. VMs and snapshots that come from them
are not affected; the next use of the image builds it again.`,
		Args: wantArgs(1, -1, "IMAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.removeEach(cmd.Context(), args, a.Images.Remove)
		},
	}
}
