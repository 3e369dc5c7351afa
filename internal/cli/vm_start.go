package cli

import (
	"github.com/spf13/cobra"

	pando "github.com/pandovm/pando/sdk"
)

func (a *app) vmStart() *cobra.Command {
	return a.changeCommand(change{
		use: "start", short: "Resume a paused VM or boot a stopped one", doing: "starting", call: (*pando.VMs).Start,
		long: `Resume a paused VM or boot a stopped one, and wait until it answers.

Starting a running VM changes nothing.`,
	})
}
