package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
)

func (a *app) vmSessions() *cobra.Command {
	var closing []string
	cmd := &cobra.Command{
		Use:   "sessions VM",
		Short: "List the terminal sessions of a VM, or close some",
		Long: `List the terminal sessions of a VM, the oldest first, or close some.

A session whose program has ended is kept for ten minutes, so that its last
screen can be looked at. Closing one that runs sends its program SIGHUP.`,
		Example: `  pando vm sessions web
  pando vm sessions web --close build --close 3`,
		Args: wantArgs(1, 1, "VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(closing) > 0 {
				return a.closeSessions(cmd.Context(), args[0], closing)
			}
			return a.listSessions(cmd.Context(), args[0])
		},
	}
	cmd.Flags().StringArrayVar(&closing, "close", nil, "close the `session` of that id or name; may be repeated")
	return cmd
}

func (a *app) listSessions(ctx context.Context, ref string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	sessions, err := c.VMs.Terminals(ref).List(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(api.PTYSessionList{Sessions: sessions})
	}
	if len(sessions) == 0 {
		a.say("no sessions; open one with: pando vm shell %s", ref)
		return nil
	}
	t := newTable(6, "ID", "NAME", "USER", "STATE", "SIZE", "AGE", "TITLE")
	for _, s := range sessions {
		t.add(strconv.FormatInt(s.SessionID, 10), dash(s.Slug), printable(s.LinuxUser), sessionState(s),
			fmt.Sprintf("%dx%d", s.Cols, s.Rows), a.age(time.Unix(s.CreatedUnix, 0)), printable(s.Title))
	}
	return a.printTable(t)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// sessionState says whether the program runs, and how many look at it.
func sessionState(s api.PTYSession) string {
	switch {
	case s.ExitCode != nil:
		return fmt.Sprintf("exited %d", *s.ExitCode)
	case s.Viewers == 1:
		return "running, 1 viewer"
	case s.Viewers > 1:
		return fmt.Sprintf("running, %d viewers", s.Viewers)
	}
	return string(s.State)
}

func (a *app) closeSessions(ctx context.Context, ref string, names []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	closed := make([]api.ClosePTYSessionResponse, 0, len(names))
	for _, name := range names {
		r, err := c.VMs.Terminals(ref).Close(ctx, name)
		if err != nil {
			return err
		}
		closed = append(closed, r)
		if !a.json {
			a.say("closed session %d", r.SessionID)
		}
	}
	if a.json {
		return a.printJSON(closed)
	}
	return nil
}
