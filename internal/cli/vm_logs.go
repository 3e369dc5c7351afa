package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

func (a *app) vmLogs() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs VM [EXEC]",
		Short: "Show what a command printed",
		Long: `Show what a command in a VM has printed, stdout and stderr apart. Without EXEC
the VM's commands are listed, newest first; ended ones for a day.

With --follow it goes on until the command ends, and exits with its exit code.`,
		Example: `  pando vm logs web
  pando vm logs web exec-7c9e6679-7425-40de-944b-e07fc1f90ae7 -f`,
		Args: wantArgs(1, 2, "VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1:
				return a.listExecs(cmd.Context(), args[0])
			case follow && !a.json:
				return a.attach(cmd.Context(), args[0], args[1], false)
			default:
				return a.showLogs(cmd.Context(), args[0], args[1])
			}
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the command ends")
	return cmd
}

func (a *app) vmAttach() *cobra.Command {
	var noStdin bool
	cmd := &cobra.Command{
		Use:   "attach VM EXEC",
		Short: "Attach to a command that runs",
		Long: `Attach to a command that was started before: its output is shown from the
beginning, or from what is kept of it, standard input is passed on if the command
takes more, what is typed at a terminal line by line, and the exit code is the
command's. An interrupt is passed on; the third one leaves the command to itself.`,
		Example: `  id=$(pando vm exec web --detach --open-stdin 'bc -l')
  pando vm attach web $id`,
		Args: wantArgs(2, 2, "VM and EXEC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.json {
				return a.showLogs(cmd.Context(), args[0], args[1])
			}
			return a.attach(cmd.Context(), args[0], args[1], !noStdin)
		},
	}
	cmd.Flags().BoolVarP(&noStdin, "no-stdin", "n", false, "do not pass standard input on")
	return cmd
}

func (a *app) attach(ctx context.Context, ref, id string, stdin bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	cmd := c.VMs.Attach(ref, id)
	cmd.Stdout, cmd.Stderr = a.IO.Out, a.IO.Err
	if stdin && (a.IO.InTerminal || !a.IO.InEmpty) {
		e, err := c.VMs.GetExec(ctx, ref, id)
		if err != nil {
			return err
		}
		if e.StdinOpen {
			cmd.Stdin = a.IO.In
		}
	}
	return a.stream(ctx, ref, cmd)
}

// logs is a command with all that is kept of its output, as one document.
type logs struct {
	api.Exec

	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

func (a *app) showLogs(ctx context.Context, ref, id string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	e, err := c.VMs.GetExec(ctx, ref, id)
	if err != nil {
		return err
	}
	var out, errs bytes.Buffer
	to := map[api.ExecStream]io.Writer{api.StreamStdout: a.IO.Out, api.StreamStderr: a.IO.Err}
	if a.json {
		to = map[api.ExecStream]io.Writer{api.StreamStdout: &out, api.StreamStderr: &errs}
	}
	for _, stream := range []api.ExecStream{api.StreamStdout, api.StreamStderr} {
		if err := copyOutput(ctx, c, ref, id, stream, to[stream]); err != nil {
			return err
		}
	}
	if a.json {
		return a.printJSON(logs{Exec: e, Stdout: out.String(), Stderr: errs.String()})
	}
	return nil
}

func copyOutput(ctx context.Context, c *pando.Client, ref, id string, stream api.ExecStream, to io.Writer) error {
	r, err := c.VMs.ExecOutput(ctx, ref, id, stream, 0)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	if _, err := io.Copy(to, r); err != nil {
		return fmt.Errorf("copy %s: %w", stream, err)
	}
	return nil
}

func (a *app) listExecs(ctx context.Context, ref string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	list, err := c.VMs.Execs(ctx, ref)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(list)
	}
	t := newTable(5, "ID", "STATE", "EXIT", "STARTED", "OUTPUT", "COMMAND")
	for _, e := range list.Execs {
		code := ""
		switch {
		case e.TimedOut:
			code = "timeout"
		case e.StatusCode != nil:
			code = strconv.Itoa(*e.StatusCode)
		}
		t.add(e.ID, string(e.State), code, a.age(e.StartedAt), bytesText(e.StdoutBytes+e.StderrBytes), e.Command)
	}
	return a.printTable(t)
}

func (a *app) vmPs() *cobra.Command {
	return &cobra.Command{
		Use:   "ps VM",
		Short: "List the processes of a VM",
		Long: `List the processes of a VM, kernel threads left out. EXEC is the command that a
process belongs to, see pando vm logs.`,
		Args: wantArgs(1, 1, "VM"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runPs(cmd.Context(), args[0]) },
	}
}

func (a *app) runPs(ctx context.Context, ref string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	list, err := c.VMs.Processes(ctx, ref)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(list)
	}
	t := newTable(8, "PID", "PPID", "USER", "STATE", "CPU", "MEMORY", "STARTED", "EXEC", "COMMAND")
	for _, p := range list.Processes {
		cpu := (time.Duration(p.CPUTimeMs) * time.Millisecond).Round(10 * time.Millisecond)
		id := text(p.ExecID)
		t.add(strconv.Itoa(p.PID), strconv.Itoa(p.ParentPID), p.User, p.State, cpu.String(), bytesText(p.RSSBytes),
			a.age(p.StartedAt), id[:min(len(id), len("exec-")+8)], p.Command)
	}
	return a.printTable(t)
}
