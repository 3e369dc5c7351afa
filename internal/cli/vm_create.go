package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

func (a *app) vmCreate() *cobra.Command {
	var n naming
	var o createOptions
	var quiet bool
	cmd := &cobra.Command{
		Use:   "create [SNAPSHOT]",
		Short: "Create a VM from a snapshot or a base image",
		Long: `Create a VM from a snapshot or a base image and wait until it answers.

SNAPSHOT is a snapshot's id or slug or an image such as pando/debian; without
it the default image is taken. The first use of an image builds it, which takes
some minutes.`,
		Example: `  pando vm create
  pando vm create pando/busybox --slug tiny
  pando vm create my-snapshot --metadata task=42 --identity keep
  pando vm create --ephemeral --idle-timeout 15m --ttl 24h
  pando vm create new-version --slug web --replace-slug`,
		Args: wantArgs(0, 1, "SNAPSHOT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := n.createRequest(args)
			if err != nil {
				return err
			}
			if err := o.apply(&request); err != nil {
				return err
			}
			return a.runCreate(cmd.Context(), request, quiet)
		},
	}
	n.register(cmd, "a unique name: a-z, 0-9 and single hyphens, at most 63 characters")
	o.register(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the id only")
	return cmd
}

// createOptions are the settings that only a create and an update know.
type createOptions struct {
	replaceSlug, noRestart bool
	timers                 timerFlags
	apart                  []string
}

func (o *createOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.replaceSlug, "replace-slug", false, "take the slug from the VM that has it, which runs on")
	f.BoolVar(&o.noRestart, "no-restart", false, "do not boot it again after a crash")
	f.StringArrayVar(&o.apart, "apart-from", nil, "not on a host of a VM with this metadata: `key=value,key=value`; may be repeated")
	o.timers.register(cmd)
}

func (o *createOptions) apply(r *api.CreateVMRequest) error {
	if err := o.timers.check(); err != nil {
		return err
	}
	if o.replaceSlug {
		r.ReassignSlug = new(true)
	}
	if o.noRestart {
		r.AutomaticRestart = new(false)
	}
	r.IdleTimeoutSeconds, r.AutoDeleteSeconds, r.TTLSeconds = o.timers.idle.seconds, o.timers.autoDelete.seconds, o.timers.ttl.seconds
	r.MaxRunSeconds, r.MaxRunTotalSeconds = o.timers.maxRun.seconds, o.timers.maxRunTotal.seconds
	for _, rule := range o.apart {
		labels, err := pairs("apart-from", strings.Split(rule, ","))
		if err != nil {
			return err
		}
		if r.Placement == nil {
			r.Placement = &api.Placement{}
		}
		r.Placement.AntiAffinity = append(r.Placement.AntiAffinity, api.AntiAffinity{Topology: "node", Selector: api.Selector{MatchLabels: labels}})
	}
	return nil
}

func (n *naming) createRequest(args []string) (api.CreateVMRequest, error) {
	metadata, err := pairs("metadata", n.metadata)
	if err != nil {
		return api.CreateVMRequest{}, err
	}
	identity, err := identityOf(n.identity)
	if err != nil {
		return api.CreateVMRequest{}, err
	}
	r := api.CreateVMRequest{
		Slug: optional(n.slug), DisplayName: optional(n.name), Metadata: metadata, Identity: identity,
	}
	if len(args) == 1 {
		r.SnapshotID = &args[0]
	}
	return r, nil
}

func (a *app) runCreate(ctx context.Context, r api.CreateVMRequest, quiet bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	start := a.Now()
	t := a.begin("creating a VM")
	t.onLong(ctx, func(ctx context.Context) { announceBuild(ctx, c, r.SnapshotID, t) })
	vm, err := c.VMs.Create(ctx, r)
	t.end()
	if err != nil {
		return err
	}
	switch {
	case a.json:
		return a.printJSON(vm)
	case quiet:
		return a.print("%s", vm.ID)
	default:
		return a.print("%s is %s: %s, %s (%s)", printable(label(vm)), vm.State, printable(text(vm.Image)), resources(vm.Resources), a.took(start))
	}
}

// announceBuild explains a long create if its image is not built yet. It is a
// courtesy: whatever fails here, the create itself will report.
func announceBuild(ctx context.Context, c *pando.Client, ref *string, t *task) {
	list, err := c.Images.List(ctx)
	if err != nil {
		return
	}
	for _, image := range list.Images {
		wanted := image.Default
		if ref != nil {
			wanted = image.Name == *ref || slices.Contains(image.Aliases, *ref)
		}
		if wanted && !image.Built {
			t.explain("building image " + printable(image.Name) + ", once: this takes some minutes")
		}
	}
}
