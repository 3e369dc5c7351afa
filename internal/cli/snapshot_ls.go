package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

func (a *app) snapshotLs() *cobra.Command {
	var filter pando.SnapshotFilter
	var quiet bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List snapshots",
		Args:    wantArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkPage(filter.Limit, filter.Offset); err != nil {
				return err
			}
			return a.runSnapshotList(cmd.Context(), filter, quiet)
		},
	}
	f := cmd.Flags()
	f.StringVar(&filter.SourceVMID, "source", "", "only snapshots of this `vm`")
	f.StringVar(&filter.Search, "search", "", "only snapshots with this `text` in id, slug, name or image")
	f.IntVar(&filter.Limit, "limit", 0, "at most this many")
	f.IntVar(&filter.Offset, "offset", 0, "leave out this many of the newest")
	f.BoolVarP(&quiet, "quiet", "q", false, "print ids only")
	return cmd
}

func (a *app) runSnapshotList(ctx context.Context, filter pando.SnapshotFilter, quiet bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	list, err := c.Snapshots.List(ctx, filter)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(list)
	}
	if quiet {
		for _, s := range list.Snapshots {
			if err := a.print("%s", s.ID); err != nil {
				return err
			}
		}
		return nil
	}
	return a.printSnapshots(list.Snapshots)
}

func (a *app) printSnapshots(snapshots []api.Snapshot) error {
	t := newTable(1, "ID", "SLUG", "SOURCE", "IMAGE", "SIZE", "ON DISK", "AGE")
	for _, s := range snapshots {
		source := text(s.SourceVMSlug)
		if source == "" {
			source = text(s.SourceVMID)
		}
		durable := "yes"
		if !s.Durable {
			durable = "not yet"
		}
		t.add(s.ID, text(s.Slug), source, text(s.Image), bytesText(s.Bytes), durable, a.age(s.CreatedAt))
	}
	return a.printTable(t)
}
