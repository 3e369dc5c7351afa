package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
)

func (a *app) vmSnapshot() *cobra.Command { return a.capture("snapshot") }

func (a *app) snapshotCreate() *cobra.Command { return a.capture("create") }

// capture is the command that saves a VM, under one of its names.
func (a *app) capture(name string) *cobra.Command {
	var slug, label string
	var timers snapshotTimers
	var quiet bool
	cmd := &cobra.Command{
		Use:   name + " VM",
		Short: "Save memory and disk of a VM",
		Long: `Save memory and disk of a running or paused VM. A running VM goes on at once.

Any number of VMs can be created from the snapshot: pando vm create SNAPSHOT`,
		Args: wantArgs(1, 1, "VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := api.CreateSnapshotRequest{Slug: optional(slug), DisplayName: optional(label), AutoDeleteSeconds: timers.autoDelete.seconds, TTLSeconds: timers.ttl.seconds}
			return a.runSnapshot(cmd.Context(), args[0], request, quiet)
		},
	}
	cmd.Flags().StringVar(&slug, "slug", "", "a unique name: a-z, 0-9 and single hyphens, at most 63 characters")
	cmd.Flags().StringVar(&label, "name", "", "a name for people to read")
	timers.register(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the id only")
	return cmd
}

func (a *app) runSnapshot(ctx context.Context, ref string, r api.CreateSnapshotRequest, quiet bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	t := a.begin("saving " + printable(ref))
	s, err := c.VMs.Snapshot(ctx, ref, r)
	t.end()
	if err != nil {
		return err
	}
	switch {
	case a.json:
		return a.printJSON(s)
	case quiet:
		return a.print("%s", s.SnapshotID)
	default:
		return a.print("%s is a snapshot of %s: %s of its own; the VM stood still for %s",
			s.SnapshotID, printable(ref), bytesText(s.Snapshot.Bytes), millis(s.PauseMs))
	}
}
