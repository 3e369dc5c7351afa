package cli

import (
	"github.com/spf13/cobra"

	pando "github.com/pandovm/pando/sdk"
)

func (a *app) vmPause() *cobra.Command {
	return a.changeCommand(change{
		use: "pause", short: "Save a VM's memory and free the host's", doing: "pausing", call: (*pando.VMs).Pause,
		long: `Save memory, devices and disk of a running VM and free what it uses of the
host. Its processes go on where they were with: pando vm start`,
	})
}
