package cli

import "github.com/spf13/cobra"

func (a *app) image() *cobra.Command {
	return group(&cobra.Command{
		Use:     "image",
		Aliases: []string{"images"},
		Short:   "Build and list base images",
		Long: `Build and list base images in this host's cache (PANDO_CACHE).

Images are built once and shared by all data folders of this host. The commands
work without a daemon.`,
	}, a.imageBuild(), a.imageLs(), a.imageShow(), a.imageRm())
}
