package cli

import (
	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
)

type updateOptions struct {
	slug, name  string
	replaceSlug bool
	metadata    []string
	restart     bool
	timers      timerFlags
}

func (a *app) vmUpdate() *cobra.Command {
	var o updateOptions
	cmd := &cobra.Command{
		Use:   "update VM",
		Short: "Change the settings of a VM",
		Long: `Change the settings of a VM in any state; what is not named stays as it is.

It does not count as use of the VM: an idle timeout runs on. A timer whose
moment has passed acts at once.`,
		Example: `  pando vm update web --idle-timeout 30m --ttl 48h
  pando vm update web --slug "" --metadata task=43 --metadata owner=
  pando vm update spare --slug web --replace-slug`,
		Args: wantArgs(1, 1, "VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := o.request(cmd)
			if err != nil {
				return err
			}
			return a.runUpdate(cmd, args[0], request)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.slug, "slug", "", `a unique name: a-z, 0-9 and single hyphens; "" removes it`)
	f.BoolVar(&o.replaceSlug, "replace-slug", false, "take the slug from the VM that has it")
	f.StringVar(&o.name, "name", "", `a name for people to read; "" removes it`)
	f.StringArrayVar(&o.metadata, "metadata", nil, "a `key=value` to keep with it, key= to remove it; may be repeated")
	f.BoolVar(&o.restart, "restart", true, "boot it again after a crash; --restart=false does not")
	o.timers.register(cmd)
	return cmd
}

func (o *updateOptions) request(cmd *cobra.Command) (api.UpdateVMRequest, error) {
	var r api.UpdateVMRequest
	metadata, err := pairs("metadata", o.metadata)
	if err != nil {
		return r, err
	}
	if err := o.timers.check(); err != nil {
		return r, err
	}
	r = api.UpdateVMRequest{
		Slug: ifGiven(cmd, "slug", o.slug), DisplayName: ifGiven(cmd, "name", o.name), AutomaticRestart: ifGiven(cmd, "restart", o.restart),
		ReassignSlug: ifGiven(cmd, "replace-slug", o.replaceSlug), Metadata: metadata,
		IdleTimeoutSeconds: o.timers.idle.seconds, AutoDeleteSeconds: o.timers.autoDelete.seconds, TTLSeconds: o.timers.ttl.seconds,
		MaxRunSeconds: o.timers.maxRun.seconds, MaxRunTotalSeconds: o.timers.maxRunTotal.seconds,
	}
	return r, nil
}

// ifGiven is the value of a flag that stands on the command line, else nil.
func ifGiven[T any](cmd *cobra.Command, flag string, value T) *T {
	if !cmd.Flags().Changed(flag) {
		return nil
	}
	return &value
}

func (a *app) runUpdate(cmd *cobra.Command, ref string, r api.UpdateVMRequest) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	vm, err := c.VMs.Update(cmd.Context(), ref, r)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(vm)
	}
	return a.printBlock(a.describeVM(vm))
}
