package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) imageShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show IMAGE",
		Short: "Show one base image",
		Args:  wantArgs(1, 1, "IMAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			image, err := a.Images.Show(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(image)
			}
			var b block
			b.add("Image", image.Name)
			b.add("Also called", strings.Join(image.Aliases, " "))
			b.add("Size", resources(image.Resources))
			b.add("Version", image.Version)
			if image.BuiltAt != nil {
				b.add("Built", a.moment(*image.BuiltAt))
			} else {
				b.add("Built", a.builtText(image))
			}
			if image.Built {
				b.add("In the cache", bytesText(image.Bytes))
			}
			return a.printBlock(&b)
		},
	}
}
