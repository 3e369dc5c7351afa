package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
)

func (a *app) imageBuild() *cobra.Command {
	return &cobra.Command{
		Use:   "build [IMAGE...]",
		Short: "Build base images that are not built yet",
		Long: `Build base images: root file system, first boot, snapshot. An image that is
built already is left as it is. Without a name the default image is built.`,
		Example: `  pando image build
  pando image build pando/busybox pando/debian-lg`,
		Args: wantArgs(0, -1, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				name, err := a.defaultImage(cmd.Context())
				if err != nil {
					return err
				}
				args = []string{name}
			}
			return a.buildEach(cmd.Context(), args)
		},
	}
}

func (a *app) defaultImage(ctx context.Context) (string, error) {
	images, err := a.Images.List(ctx)
	if err != nil {
		return "", err
	}
	for _, image := range images {
		if image.Default {
			return image.Name, nil
		}
	}
	return "", &usageError{message: "there is no default image", fix: "name one of: pando image ls"}
}

func (a *app) buildEach(ctx context.Context, names []string) error {
	built := make([]api.Image, 0, len(names))
	for _, name := range names {
		start := a.Now()
		t := a.begin("building " + printable(name))
		image, err := a.Images.Build(ctx, name, func(step string, done, total int64) {
			t.step(printable(name)+": "+printable(step), done, total)
		})
		t.end()
		if err != nil {
			return err
		}
		built = append(built, image)
		if a.json {
			continue
		}
		if err := a.print("%s is built: %s (%s)", image.Name, bytesText(image.Bytes), a.took(start)); err != nil {
			return err
		}
	}
	if a.json {
		return a.printJSON(map[string][]api.Image{"images": built})
	}
	return nil
}
