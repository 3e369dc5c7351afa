package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

type listOptions struct {
	state, slug, snapshot, search string
	metadata                      []string
	limit, offset                 int
	all, quiet                    bool
}

func (a *app) vmLs() *cobra.Command {
	var o listOptions
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List VMs",
		Long: `List VMs, newest first.

Stopped VMs are left out unless --all or --state asks for them.`,
		Args: wantArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return a.runList(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.state, "state", "", "only VMs in this `state`: "+strings.Join(stateNames(), ", "))
	f := cmd.Flags()
	f.StringVar(&o.slug, "slug", "", "only the VM with exactly this slug")
	f.StringVar(&o.snapshot, "snapshot", "", "only VMs created from this `snapshot`")
	f.StringVar(&o.search, "search", "", "only VMs with this `text` in id, slug, name or image")
	f.StringArrayVar(&o.metadata, "metadata", nil, "only VMs with this `key=value`; may be repeated")
	f.IntVar(&o.limit, "limit", 0, "at most this many")
	f.IntVar(&o.offset, "offset", 0, "leave out this many of the newest")
	cmd.Flags().BoolVarP(&o.all, "all", "a", false, "stopped VMs too")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print ids only")
	return cmd
}

func stateNames() []string {
	return []string{
		string(api.StateStarting), string(api.StateRunning), string(api.StatePausing),
		string(api.StatePaused), string(api.StateStopped),
	}
}

func (o listOptions) filter() (pando.VMFilter, error) {
	metadata, err := pairs("metadata", o.metadata)
	return pando.VMFilter{
		State: api.State(o.state), Slug: o.slug, SnapshotID: o.snapshot, Search: o.search, Metadata: metadata,
		Limit: o.limit, Offset: o.offset,
	}, err
}

func (o listOptions) check() error {
	if err := checkPage(o.limit, o.offset); err != nil {
		return err
	}
	if o.state != "" && !slices.Contains(stateNames(), o.state) {
		return &usageError{message: "--state " + o.state + ": want one of " + strings.Join(stateNames(), ", ")}
	}
	return nil
}

func checkPage(limit, offset int) error {
	if limit < 0 || offset < 0 {
		return &usageError{message: "--limit and --offset: want numbers of at least 0"}
	}
	return nil
}

func (o listOptions) hides(vm api.VM) bool {
	return !o.all && o.state == "" && vm.State == api.StateStopped
}

func (a *app) runList(ctx context.Context, o listOptions) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	filter, err := o.filter()
	if err != nil {
		return err
	}
	list, err := c.VMs.List(ctx, filter)
	if err != nil {
		return err
	}
	found := len(list.VMs)
	list.VMs = slices.DeleteFunc(list.VMs, o.hides)
	switch {
	case a.json:
		return a.printJSON(list)
	case o.quiet:
		return a.printIDs(list.VMs)
	}
	if err := a.printVMs(list.VMs); err != nil {
		return err
	}
	if hidden := found - len(list.VMs); hidden > 0 {
		a.say("%s not shown: pando vm ls --all", count(hidden, "stopped VM"))
	}
	return nil
}

func (a *app) printIDs(vms []api.VM) error {
	for _, vm := range vms {
		if err := a.print("%s", vm.ID); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printVMs(vms []api.VM) error {
	t := newTable(1, "ID", "SLUG", "STATE", "IMAGE", "CPU", "MEMORY", "AGE")
	for _, vm := range vms {
		t.add(
			vm.ID, text(vm.Slug), string(vm.State), text(vm.Image), strconv.Itoa(vm.Resources.CPU),
			mebibytes(vm.Resources.Memory), a.age(vm.CreatedAt),
		)
	}
	return a.printTable(t)
}
