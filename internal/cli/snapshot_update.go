package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
)

// snapshotTimers are the timers of a snapshot.
type snapshotTimers struct{ autoDelete, ttl timerFlag }

func (t *snapshotTimers) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Var(&t.autoDelete, "auto-delete", "delete it so `long` after the last VM was created from it: 90s, 36h, or never")
	f.Var(&t.ttl, "ttl", "delete it so `long` after the capture")
}

func (a *app) snapshotUpdate() *cobra.Command {
	var slug, name string
	var timers snapshotTimers
	cmd := &cobra.Command{
		Use:     "update SNAPSHOT",
		Short:   "Change the names and timers of a snapshot",
		Long:    `Change the names and timers of a snapshot; what is not named stays as it is.`,
		Example: `  pando snapshot update prepared --slug golden --auto-delete never`,
		Args:    wantArgs(1, 1, "SNAPSHOT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runSnapshotUpdate(cmd, args[0], api.UpdateSnapshotRequest{
				Slug: ifGiven(cmd, "slug", slug), DisplayName: ifGiven(cmd, "name", name),
				AutoDeleteSeconds: timers.autoDelete.seconds, TTLSeconds: timers.ttl.seconds,
			})
		},
	}
	cmd.Flags().StringVar(&slug, "slug", "", `a unique name: a-z, 0-9 and single hyphens; "" removes it`)
	cmd.Flags().StringVar(&name, "name", "", `a name for people to read; "" removes it`)
	timers.register(cmd)
	return cmd
}

func (a *app) runSnapshotUpdate(cmd *cobra.Command, ref string, r api.UpdateSnapshotRequest) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	s, err := c.Snapshots.Update(cmd.Context(), ref, r)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(s)
	}
	return a.printBlock(a.describeSnapshot(s))
}

func (a *app) describeSnapshot(s api.Snapshot) *block {
	var b block
	b.add("Id", s.ID)
	b.add("Slug", text(s.Slug))
	b.add("Name", text(s.DisplayName))
	b.add("Source", strings.TrimSpace(text(s.SourceVMID)+" "+text(s.SourceVMSlug)))
	b.add("Image", text(s.Image))
	b.add("Size", bytesText(s.Bytes))
	b.add("Auto delete", length(s.AutoDeleteSeconds))
	b.add("TTL", length(s.TTLSeconds))
	if s.LastUsedAt != nil {
		b.add("Last used", a.moment(*s.LastUsedAt))
	}
	b.add("Created", a.moment(s.CreatedAt))
	b.add("Updated", a.moment(s.UpdatedAt))
	return &b
}
