package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
)

func (a *app) vmFork() *cobra.Command {
	var n naming
	var children int
	var quiet bool
	cmd := &cobra.Command{
		Use:   "fork VM",
		Short: "Make exact running copies of a running VM",
		Long: `Make exact running copies of a running VM: memory, disk and processes.

The VM is captured once, stands still for some milliseconds and goes on; all
copies continue from that moment and wait until they answer. If some of them
fail the others remain, and the exit code is 1.`,
		Example: `  pando vm fork web
  pando vm fork web -n 3 --slug try     # try-1, try-2, try-3`,
		Args: wantArgs(1, 1, "VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := n.forkRequest(children)
			if err != nil {
				return err
			}
			return a.runFork(cmd.Context(), args[0], request, quiet)
		},
	}
	cmd.Flags().IntVarP(&children, "count", "n", 1, "how many copies, 1 to 100")
	n.register(cmd, "the beginning of the copies' slugs: try gives try-1, try-2, …")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print ids only")
	return cmd
}

func (n *naming) forkRequest(children int) (api.ForkVMRequest, error) {
	metadata, err := pairs("metadata", n.metadata)
	if err != nil {
		return api.ForkVMRequest{}, err
	}
	identity, err := identityOf(n.identity)
	if err != nil {
		return api.ForkVMRequest{}, err
	}
	return api.ForkVMRequest{
		Count: &children, Slug: optional(n.slug), DisplayName: optional(n.name), Metadata: metadata, Identity: identity,
	}, nil
}

func (a *app) runFork(ctx context.Context, ref string, r api.ForkVMRequest, quiet bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	start := a.Now()
	t := a.begin(fmt.Sprintf("forking %s into %d", printable(ref), *r.Count))
	forks, err := c.VMs.Fork(ctx, ref, r)
	t.end()
	if err != nil {
		return err
	}
	return a.printForks(ref, forks, quiet, a.took(start))
}

func (a *app) printForks(ref string, forks api.ForkVMResponse, quiet bool, took string) error {
	var vms []api.VM
	var failed []*api.Error
	for _, f := range forks.Forks {
		switch {
		case f.VM != nil:
			vms = append(vms, *f.VM)
		case f.Error != nil:
			failed = append(failed, f.Error)
		}
	}
	if err := a.printForked(ref, forks, vms, quiet, took); err != nil {
		return err
	}
	if len(failed) == 0 {
		return nil
	}
	if !a.json { // there, the failures are in the document
		for _, e := range failed {
			a.reportFor("a copy failed", e)
		}
	}
	return exitError(exitFailure)
}

func (a *app) printForked(ref string, forks api.ForkVMResponse, vms []api.VM, quiet bool, took string) error {
	switch {
	case a.json:
		return a.printJSON(forks)
	case quiet:
		return a.printIDs(vms)
	}
	if err := a.printVMs(vms); err != nil {
		return err
	}
	a.say("%s of %s in %s; it stood still for %s", count(len(vms), "running fork"), printable(ref), took, millis(forks.PauseMs))
	return nil
}
