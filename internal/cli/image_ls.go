package cli

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
)

func (a *app) imageLs() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List base images, built or not",
		Args:    wantArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			images, err := a.Images.List(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string][]api.Image{"images": images})
			}
			return a.printImages(images)
		},
	}
}

func (a *app) printImages(images []api.Image) error {
	t := newTable(6, "IMAGE", "CPU", "MEMORY", "DISK", "BUILT", "SIZE", "ALSO CALLED")
	for _, i := range images {
		name, size := i.Name, ""
		if i.Default {
			name += " (default)"
		}
		if i.Built {
			size = bytesText(i.Bytes)
		}
		t.add(
			name, strconv.Itoa(i.Resources.CPU), mebibytes(i.Resources.Memory), mebibytes(i.Resources.Storage),
			a.builtText(i), size, strings.Join(i.Aliases, " "),
		)
	}
	return a.printTable(t)
}

func (a *app) builtText(i api.Image) string {
	switch {
	case !i.Built:
		return "no"
	case i.BuiltAt == nil:
		return "yes"
	default:
		return a.age(*i.BuiltAt) + " ago"
	}
}
