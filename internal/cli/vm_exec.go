package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

// defaultTimeout is for commands that are waited for as a whole.
const defaultTimeout = 30 * time.Second

type execOptions struct {
	user            string
	env             []string
	timeout         time.Duration
	noStdin, detach bool
	openStdin       bool
}

func (a *app) vmExec() *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec VM [--] COMMAND",
		Short: "Run a command in a VM",
		Long: `Run a command in a running VM and exit with its exit code.

One argument is text for the user's login shell; several are a program and its
arguments, taken literally. Output comes as it is written, and standard input is
passed on if it is not a terminal. An interrupt is passed on as well; the third
one leaves the command to itself. If the connection breaks, it is taken up again.

With --detach the command is started and its id printed: see it with pando vm
logs and pando vm attach. It has an empty input, or with --open-stdin the one that
pando vm attach gives it. With --json the command is waited for, 30s if --timeout
does not say otherwise, and printed with its output, up to 1 MiB of each stream.
A command that the timeout killed gives exit code 124.`,
		Example: `  pando vm exec web 'cd /srv && make test 2>&1 | tail'
  pando vm exec web --user root --timeout 10m -- apt-get install -y jq
  pando vm exec web -- tee /tmp/notes < notes.txt
  pando vm exec web --detach 'npm run dev'`,
		Args: wantArgs(1, -1, "VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := o.check(cmd, args[1:])
			switch {
			case err != nil:
				return err
			case o.detach:
				return a.runDetached(cmd.Context(), args[0], text, o)
			case a.json:
				return a.runWhole(cmd.Context(), args[0], text, o)
			default:
				return a.runStreamed(cmd.Context(), args[0], text, o)
			}
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.user, "user", "u", "", "the Linux `user` to run as (default: the one with uid 1000, else root)")
	f.StringArrayVarP(&o.env, "env", "e", nil, "a `NAME=value` for its environment; may be repeated")
	f.DurationVar(&o.timeout, "timeout", 0, "how `long` it may run: 45s, 10m, 2h (default: as long as it takes)")
	f.BoolVarP(&o.detach, "detach", "d", false, "start it, print its id and leave it running")
	f.BoolVar(&o.openStdin, "open-stdin", false, "with --detach: leave its input open, for pando vm attach")
	f.BoolVarP(&o.noStdin, "no-stdin", "n", false, "do not pass standard input on")
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &usageError{message: err.Error(), fix: "put -- before a command with options: " + c.CommandPath() + " VM -- COMMAND -x"}
	})
	return cmd
}

func (o execOptions) check(cmd *cobra.Command, argv []string) (text string, err error) {
	if len(argv) == 0 {
		return "", &usageError{message: "missing argument: COMMAND", command: cmd.CommandPath()}
	}
	if cmd.Flags().Changed("timeout") && o.timeout < time.Millisecond {
		return "", &usageError{message: fmt.Sprintf("--timeout %s: want at least 1ms", o.timeout)}
	}
	if o.openStdin && !o.detach {
		return "", &usageError{message: "--open-stdin goes with --detach"}
	}
	_, err = pairs("env", o.env)
	return shellText(argv), err
}

func (o execOptions) environment() map[string]string {
	env, _ := pairs("env", o.env) // checked before
	return env
}

// runWhole waits for the command and prints it as one document.
func (a *app) runWhole(ctx context.Context, ref, text string, o execOptions) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	if o.timeout == 0 {
		o.timeout = defaultTimeout
	}
	r := api.ExecRequest{Command: text, LinuxUser: optional(o.user), Env: o.environment(), TimeoutMs: new(o.timeout.Milliseconds())}
	if !o.noStdin {
		if r.Stdin, err = a.readStdin(ctx); err != nil {
			return err
		}
	}
	result, err := c.VMs.Exec(ctx, ref, r)
	if err != nil {
		return err
	}
	if err := a.printJSON(result); err != nil {
		return err
	}
	switch {
	case result.TimedOut || result.StatusCode == nil:
		return exitError(exitTimeout)
	case *result.StatusCode != 0:
		return exitError(*result.StatusCode)
	}
	return nil
}

// runDetached starts the command and leaves it to itself.
func (a *app) runDetached(ctx context.Context, ref, text string, o execOptions) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	r := api.StartExecRequest{Command: text, LinuxUser: optional(o.user), Env: o.environment(), OpenStdin: o.openStdin}
	if o.timeout > 0 {
		r.TimeoutMs = new(o.timeout.Milliseconds())
	}
	e, err := c.VMs.StartExec(ctx, ref, r)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(e)
	}
	return a.print("%s", printable(e.ID))
}

// runStreamed passes input, output and interrupts on until the command ends.
func (a *app) runStreamed(ctx context.Context, ref, text string, o execOptions) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	cmd := c.VMs.Shell(ref, text)
	cmd.User, cmd.Env, cmd.Timeout = o.user, o.environment(), o.timeout
	cmd.Stdout, cmd.Stderr = a.IO.Out, a.IO.Err
	if !o.noStdin && !a.IO.InTerminal && !a.IO.InEmpty {
		cmd.Stdin = a.IO.In
	}
	return a.stream(ctx, ref, cmd)
}

// readStdin reads the input to pass on, or nil if there is none to read.
func (a *app) readStdin(ctx context.Context) (*string, error) {
	if a.IO.InTerminal || a.IO.InEmpty {
		return nil, nil
	}
	t := a.begin("reading standard input until it ends (-n runs the command without it)")
	data, err := readAll(ctx, io.LimitReader(a.IO.In, pando.MaxStdin+1))
	t.end()
	switch {
	case err != nil:
		return nil, err
	case len(data) > pando.MaxStdin:
		return nil, &api.Error{
			Code: api.CodePayloadTooLarge, Field: "stdin",
			Message: "standard input is longer than " + bytesText(pando.MaxStdin),
			Remedy:  "pass it in parts, for example with split -b 1m, and append each with: pando vm exec VM 'cat >> FILE'",
		}
	case len(data) == 0:
		return nil, nil
	default:
		return pando.Stdin(data), nil
	}
}

// readAll is io.ReadAll that an interrupt ends. The reading goroutine then
// stays behind until the process exits: a blocked read cannot be called back.
func readAll(ctx context.Context, r io.Reader) ([]byte, error) {
	type outcome struct {
		data []byte
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		data, err := io.ReadAll(r)
		done <- outcome{data, err}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case o := <-done:
		if o.err != nil {
			return nil, fmt.Errorf("read standard input: %w", o.err)
		}
		return o.data, nil
	}
}

// shellText makes the command out of the arguments: one is shell text already,
// several are quoted so that the shell takes each literally.
func shellText(argv []string) string {
	if len(argv) == 1 {
		return argv[0]
	}
	quoted := make([]string, len(argv))
	for i, arg := range argv {
		// A bare first word could be a keyword, an alias or an assignment.
		quoted[i] = quote(arg, i > 0)
	}
	return strings.Join(quoted, " ")
}

// quote returns arg as one shell word; mayBare allows it to stay as it is if no
// shell gives its characters a meaning.
func quote(arg string, mayBare bool) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+:,./-"
	if mayBare && arg != "" && strings.Trim(arg, safe) == "" {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
