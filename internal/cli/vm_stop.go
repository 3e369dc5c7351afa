package cli

import (
	"github.com/spf13/cobra"

	pando "github.com/pandovm/pando/sdk"
)

func (a *app) vmStop() *cobra.Command {
	return a.changeCommand(change{
		use: "stop", short: "Shut a VM down", doing: "stopping", call: (*pando.VMs).Stop,
		long: `Shut a VM down: its processes end, its disk remains.

To keep the processes too, use: pando vm pause`,
	})
}
