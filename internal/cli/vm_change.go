package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

// change is the common part of the commands that move one VM to another state.
type change struct {
	use, short, long string
	// doing is shown while it lasts, followed by the VM.
	doing string
	call  func(*pando.VMs, context.Context, string) (api.VM, error)
}

func (a *app) changeCommand(ch change) *cobra.Command {
	return &cobra.Command{
		Use:   ch.use + " VM",
		Short: ch.short,
		Long:  ch.long,
		Args:  wantArgs(1, 1, "VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runChange(cmd.Context(), ch, args[0])
		},
	}
}

func (a *app) runChange(ctx context.Context, ch change, ref string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	start := a.Now()
	t := a.begin(ch.doing + " " + printable(ref))
	vm, err := ch.call(c.VMs, ctx, ref)
	t.end()
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(vm)
	}
	return a.print("%s is %s (%s)", printable(label(vm)), vm.State, a.took(start))
}
