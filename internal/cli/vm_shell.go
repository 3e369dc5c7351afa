package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	pando "github.com/pandovm/pando/sdk"
)

type shellOptions struct {
	session, user string
	replace       bool
}

func (a *app) vmShell() *cobra.Command {
	var o shellOptions
	cmd := &cobra.Command{
		Use:   "shell VM [--] [COMMAND]",
		Short: "Open a terminal in a VM",
		Long: `Open a terminal in a VM, or come back to one, and exit with its exit code.

The session belongs to the VM: it goes on when the connection is lost, when the
VM is paused, and in each fork. With --session it has a name to come back to;
without, its id, which detaching shows. Closing the window detaches, too.

At the beginning of a line: ~. detaches, ~? helps, ~~ sends one ~.

Without a COMMAND it is the user's login shell. If standard input is no
terminal, it is typed into the session and followed by an end of file.`,
		Example: `  pando vm shell web
  pando vm shell web --session build -- make all
  pando vm shell web --session build`,
		Args: wantArgs(1, -1, "VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runShell(cmd.Context(), args[0], args[1:], o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.session, "session", "s", "", "the `name` of the session to open or to come back to, or the id of one")
	f.StringVarP(&o.user, "user", "u", "", "the Linux `user` to run as (default: the one with uid 1000, else root)")
	f.BoolVar(&o.replace, "replace", false, "start the program again whenever it ends")
	return cmd
}

func (a *app) runShell(ctx context.Context, ref string, argv []string, o shellOptions) error {
	if a.json {
		return &usageError{message: "--json: a terminal has no JSON; see pando vm exec --json, or pando vm sessions --json"}
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	cols, rows := a.IO.size()
	t, err := o.open(ctx, c.VMs.Terminals(ref), pando.TerminalOptions{Exec: shellText(argv), Cols: cols, Rows: rows})
	if err != nil {
		return err
	}
	defer func() { _ = t.Close() }()
	s := &shell{app: a, t: t, ref: ref, found: !t.Created(), cols: cols, rows: rows}
	return s.run(ctx)
}

// open attaches to the session that o names by its id, or opens one.
func (o shellOptions) open(ctx context.Context, terminals *pando.Terminals, p pando.TerminalOptions) (*pando.Terminal, error) {
	if _, err := strconv.ParseUint(o.session, 10, 63); err == nil {
		return terminals.Attach(ctx, o.session)
	}
	p.User, p.Slug, p.ReplaceOnExit = o.user, o.session, o.replace
	return terminals.Open(ctx, p)
}

// shell connects a session with this program's streams.
type shell struct {
	*app
	t          *pando.Terminal
	ref        string
	found      bool
	cols, rows int
	screen     screenTrace
}

// errDetached is how a person ends the connection.
var errDetached = errors.New("detached")

func (s *shell) run(ctx context.Context) error {
	restore, err := s.IO.raw()
	if err != nil {
		return err
	}
	err = s.connect(ctx)
	// The program may have left modes behind that its own terminal still has.
	if s.IO.OutTerminal && s.screen.used {
		_, _ = io.WriteString(s.IO.Out, s.screen.undo())
	}
	restore()
	return s.outcome(ctx, err)
}

// connect carries bytes both ways until one side ends.
func (s *shell) connect(ctx context.Context) error {
	s.t.OnMessage(func(text string) { s.say("\r\npando: %s\r", printable(text)) })
	if s.found && s.IO.InTerminal {
		if err := s.t.Resize(s.cols, s.rows); err != nil {
			return err
		}
	}
	ended := make(chan error, 2)
	go func() { ended <- s.output() }()
	// It stays behind until the process exits: a blocked read cannot be called back.
	go func() {
		if err := s.input(); err != nil {
			ended <- err
		}
	}()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	for {
		select {
		case <-resized:
			s.resize()
		case err := <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *shell) resize() {
	cols, rows := s.IO.size()
	if cols == s.cols && rows == s.rows {
		return
	}
	s.cols, s.rows = cols, rows
	_ = s.t.Resize(cols, rows) // a broken connection shows in output
}

// output copies what the session shows. It ends with the program.
func (s *shell) output() error {
	buf := make([]byte, 32<<10)
	for {
		n, err := s.t.Read(buf)
		s.screen.note(buf[:n])
		if _, werr := s.IO.Out.Write(buf[:n]); werr != nil {
			return fmt.Errorf("write output: %w", werr)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the connection to the session ended: %w", err)
		}
	}
}

// endOfFile is what a person types for it.
const endOfFile = "\x04"

// input types what comes in. The end of the input does not end the session.
func (s *shell) input() error {
	keys := escapes{help: func() {
		s.say("\r\n~.  detach, the session goes on\r\n~~  type ~\r\n~?  this help\r")
	}}
	keys.lineBegins = s.IO.InTerminal
	buf := make([]byte, 32<<10)
	for {
		n, err := s.IO.In.Read(buf)
		p := buf[:n]
		detach := false
		if s.IO.InTerminal {
			p, detach = keys.take(p)
		}
		if _, werr := s.t.Write(p); werr != nil {
			return nil //nolint:nilerr // output says why
		}
		switch {
		case detach:
			return errDetached
		case err != nil && s.IO.InTerminal:
			return errDetached // the window is gone
		case err != nil:
			_, _ = io.WriteString(s.t, endOfFile)
			return nil //nolint:nilerr // the input has ended, the program has not
		}
	}
}

// outcome says how it ended, with the exit code of the program if it did.
func (s *shell) outcome(ctx context.Context, err error) error {
	name := s.t.Slug()
	if name == "" {
		name = strconv.FormatInt(s.t.SessionID(), 10)
	}
	back := "pando vm shell " + s.ref + " --session " + name
	switch {
	case errors.Is(err, errDetached):
		s.say("pando: detached; the session goes on. Back to it: %s", back)
		return nil
	case err != nil && ctx.Err() == nil:
		s.say("pando: the session goes on. Back to it: %s", back)
		return err
	case err != nil:
		return err
	}
	code, err := s.t.Wait()
	if err != nil {
		return err
	}
	if code != 0 {
		return exitError(code)
	}
	return nil
}

// escapes finds the keys that are meant for this program.
type escapes struct {
	lineBegins, begun bool
	help              func()
	out               []byte
}

// take returns what is to be typed, and whether to detach.
func (e *escapes) take(p []byte) (typed []byte, detach bool) {
	e.out = e.out[:0]
	for _, b := range p {
		switch {
		case e.begun:
			e.begun = false
			switch b {
			case '.':
				return e.out, true
			case '?':
				e.help()
				continue
			case '~':
				e.out = append(e.out, '~')
			default:
				e.out = append(e.out, '~', b)
			}
			e.lineBegins = b == '\r' || b == '\n'
		case b == '~' && e.lineBegins:
			e.begun = true
		default:
			e.lineBegins = b == '\r' || b == '\n'
			e.out = append(e.out, b)
		}
	}
	return e.out, false
}
