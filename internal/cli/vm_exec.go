package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

// defaultTimeout is what the daemon applies when a request names none.
const defaultTimeout = 30 * time.Second

type execOptions struct {
	user    string
	env     []string
	timeout time.Duration
	noStdin bool
}

func (a *app) vmExec() *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec VM [--] COMMAND",
		Short: "Run a command in a VM",
		Long: `Run a command in a running VM and exit with its exit code.

One argument is text for the user's login shell; several are a program and its
arguments, taken literally. Standard input is passed on if it is not a terminal,
up to 1 MiB. A command that the timeout killed gives exit code 124.`,
		Example: `  pando vm exec web 'cd /srv && make test 2>&1 | tail'
  pando vm exec web --user root --timeout 10m -- apt-get install -y jq
  pando vm exec web -- tee /tmp/notes < notes.txt`,
		Args: wantArgs(1, -1, "VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := o.request(cmd, args[1:])
			if err != nil {
				return err
			}
			return a.runExec(cmd.Context(), args[0], request, o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.user, "user", "u", "", "the Linux `user` to run as (default: the one with uid 1000, else root)")
	f.StringArrayVarP(&o.env, "env", "e", nil, "a `NAME=value` for its environment; may be repeated")
	f.DurationVar(&o.timeout, "timeout", defaultTimeout, "how `long` it may run: 45s, 10m, 2h")
	f.BoolVarP(&o.noStdin, "no-stdin", "n", false, "do not pass standard input on")
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &usageError{message: err.Error(), fix: "put -- before a command with options: " + c.CommandPath() + " VM -- COMMAND -x"}
	})
	return cmd
}

func (o execOptions) request(cmd *cobra.Command, argv []string) (api.ExecRequest, error) {
	env, err := pairs("env", o.env)
	if err != nil {
		return api.ExecRequest{}, err
	}
	if len(argv) == 0 {
		return api.ExecRequest{}, &usageError{message: "missing argument: COMMAND", command: cmd.CommandPath()}
	}
	if o.timeout < time.Millisecond {
		return api.ExecRequest{}, &usageError{message: fmt.Sprintf("--timeout %s: want at least 1ms", o.timeout)}
	}
	return api.ExecRequest{
		Command: shellText(argv), LinuxUser: optional(o.user), Env: env, TimeoutMs: new(o.timeout.Milliseconds()),
	}, nil
}

func (a *app) runExec(ctx context.Context, ref string, r api.ExecRequest, o execOptions) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	if !o.noStdin {
		if r.Stdin, err = a.readStdin(ctx); err != nil {
			return err
		}
	}
	result, err := c.VMs.Exec(ctx, ref, r)
	if err != nil {
		return err
	}
	if err := a.printExec(result); err != nil {
		return err
	}
	return a.execOutcome(result, o.timeout)
}

func (a *app) printExec(r api.ExecResponse) error {
	if a.json {
		return a.printJSON(r)
	}
	_, outErr := io.WriteString(a.IO.Out, r.Stdout)
	_, errErr := io.WriteString(a.IO.Err, r.Stderr)
	if err := errors.Join(outErr, errErr); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	if r.Truncated {
		a.say("pando: output cut off: the command wrote %s to stdout and %s to stderr", bytesText(r.StdoutBytes), bytesText(r.StderrBytes))
		a.say("  fix: write it to a file in the VM and read that in parts")
	}
	return nil
}

// execOutcome turns the command's end into this program's.
func (a *app) execOutcome(r api.ExecResponse, timeout time.Duration) error {
	switch {
	case r.TimedOut || r.StatusCode == nil:
		if !a.json {
			a.say("pando: the command was killed: it ran longer than %s", timeout)
			a.say("  fix: give it more time with --timeout, or start it in the background")
		}
		return exitError(exitTimeout)
	case *r.StatusCode != 0:
		return exitError(*r.StatusCode)
	default:
		return nil
	}
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
