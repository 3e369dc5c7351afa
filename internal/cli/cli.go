package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// app is one run of the command line: what was injected and the global flags.
type app struct {
	Deps

	json bool
	url  string
}

// New returns the command tree, for running and for generating documentation.
func New(d Deps) *cobra.Command {
	return newApp(d).root()
}

// Run runs the command that args name (without the program's name) and returns
// the exit code. It prints errors itself and does not exit.
func Run(ctx context.Context, d Deps, args []string) int {
	a := newApp(d)
	root := a.root() //nolint:contextcheck // the commands get ctx from ExecuteContext
	root.SetArgs(args)
	return a.finish(ctx, root.ExecuteContext(ctx), args)
}

func newApp(d Deps) *app {
	if d.IO == nil {
		d.IO = SystemIO()
	}
	if d.Getenv == nil {
		d.Getenv = os.Getenv
	}
	if d.DataDir == "" {
		d.DataDir = DefaultDataDir(d.Getenv, os.Geteuid())
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Patience == 0 {
		d.Patience = 700 * time.Millisecond
	}
	return &app{Deps: d}
}

// DefaultDataDir is where a daemon of that user keeps its data: /var/lib/pando
// for root, else pando in the user's data folder. It is empty if the
// environment names no home.
func DefaultDataDir(getenv func(string) string, uid int) string {
	if uid == 0 {
		return "/var/lib/pando"
	}
	if dir := getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "pando")
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".local", "share", "pando")
	}
	return ""
}

func (a *app) root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pando",
		Short: "Real Linux VMs that fork live",
		Long: `Pando runs real Linux VMs and forks them live: memory, disk and processes.

Start the daemon with "pando serve"; every other command talks to it.

Environment:
  PANDO_URL       the daemon's address (default http://127.0.0.1:7878)
  PANDO_API_KEY   its API key (default: the key file of a daemon on this host)
  PANDO_CACHE     where base images are kept (default: the user's cache folder)`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.PersistentFlags().BoolVar(&a.json, "json", false, "print one JSON document instead of text")
	cmd.PersistentFlags().StringVar(&a.url, "url", "", "the daemon's address, instead of PANDO_URL")
	cmd.SetIn(a.IO.In)
	cmd.SetOut(a.IO.Out)
	cmd.SetErr(a.IO.Err)
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &usageError{message: err.Error(), command: c.CommandPath()}
	})
	group(cmd, a.vm(), a.snapshot(), a.image(), a.firewall(), a.limits(), a.serve(), a.doctor(), a.version(), a.top(), a.man())
	a.addCompletion(cmd)
	return cmd
}

// group turns cmd into a command that only has subcommands: alone it prints its
// help, and a wrong name is an error with suggestions.
func group(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(subcommands...)
	cmd.Args = cobra.ArbitraryArgs
	cmd.SuggestionsMinimumDistance = 2
	cmd.DisableFlagsInUseLine = true
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		e := &usageError{message: fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath()), command: c.CommandPath()}
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			e.fix = "did you mean: " + c.CommandPath() + " " + strings.Join(near, " | ")
		}
		return e
	}
	return cmd
}

// wantArgs checks the number of arguments; most < 0 means any number.
func wantArgs(least, most int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return &usageError{message: "missing argument: " + what, command: c.CommandPath()}
		case most >= 0 && len(args) > most:
			return &usageError{message: fmt.Sprintf("unexpected argument %q", args[most]), command: c.CommandPath()}
		default:
			return nil
		}
	}
}
