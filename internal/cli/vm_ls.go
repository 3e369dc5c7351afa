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
	state      string
	all, quiet bool
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

func (o listOptions) check() error {
	if o.state != "" && !slices.Contains(stateNames(), o.state) {
		return &usageError{message: "--state " + o.state + ": want one of " + strings.Join(stateNames(), ", ")}
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
	list, err := c.VMs.List(ctx, pando.VMFilter{State: api.State(o.state)})
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
