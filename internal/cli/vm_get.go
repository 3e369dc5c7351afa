package cli

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
)

func (a *app) vmGet() *cobra.Command {
	return &cobra.Command{
		Use:   "get VM",
		Short: "Show one VM",
		Args:  wantArgs(1, 1, "VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			vm, err := c.VMs.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(vm)
			}
			return a.printBlock(a.describeVM(vm))
		},
	}
}

func (a *app) describeVM(vm api.VM) *block {
	var b block
	b.add("Id", vm.ID)
	b.add("Slug", text(vm.Slug))
	b.add("Name", text(vm.DisplayName))
	b.add("State", state(vm))
	b.add("Size", resources(vm.Resources))
	b.add("Image", text(vm.Image))
	b.add("Snapshot", text(vm.SnapshotID))
	b.add("Forked from", text(vm.ParentVMID))
	if vm.ForkedAt != nil {
		b.add("Forked at", a.moment(*vm.ForkedAt))
	}
	b.add("Ancestry", strings.Join(vm.Ancestry, " < "))
	b.add("Generation", strconv.FormatInt(vm.Generation, 10))
	b.add("Running time", (time.Duration(vm.TotalRunSeconds) * time.Second).String())
	a.addTimers(&b, vm)
	for _, key := range slices.Sorted(maps.Keys(vm.Metadata)) {
		b.add("Metadata", key+"="+vm.Metadata[key])
	}
	b.add("Agent", vm.AgentVersion)
	b.add("Created", a.moment(vm.CreatedAt))
	b.add("Updated", a.moment(vm.UpdatedAt))
	return &b
}
