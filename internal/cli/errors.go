package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	pando "github.com/pandovm/pando/sdk"
)

// The exit codes besides 0 and a remote command's own.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitTimeout     = 124
	exitInterrupted = 130
)

// The codes of errors that no daemon sent, as --json shows them.
const (
	codeUsage       api.Code = "USAGE"
	codeUnreachable api.Code = "UNREACHABLE"
	codeFailed      api.Code = "FAILED"
	codeInterrupted api.Code = "INTERRUPTED"
)

// usageError says that the command line is wrong.
type usageError struct {
	message string
	// command is whose help explains the right usage; fix replaces that advice.
	command string
	fix     string
}

func (e *usageError) Error() string { return e.message }

// exitError ends the run with a code when everything is already said.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// finish prints err and turns it into the exit code.
func (a *app) finish(ctx context.Context, err error, args []string) int {
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitError](err); ok {
		return int(code)
	}
	// What failed because of the interrupt is not worth explaining; what failed
	// while the command was ending is.
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		err = context.Canceled
	}
	// A command line that could not be parsed leaves the flag unset.
	a.json = a.json || slices.Contains(args, "--json")
	a.report(err)
	switch {
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case isUsage(err):
		return exitUsage
	default:
		return exitFailure
	}
}

func isUsage(err error) bool {
	_, ok := errors.AsType[*usageError](err)
	return ok
}

// report prints err to stderr.
func (a *app) report(err error) {
	a.reportFor("", err)
}

// reportFor prints err, which concerns the object named subject.
func (a *app) reportFor(subject string, err error) {
	e := a.describe(err)
	if a.json {
		_ = writeJSON(a.IO.Err, map[string]*api.Error{"error": e})
		return
	}
	if subject != "" {
		subject += ": "
	}
	a.say("pando: %s%s", subject, printableLines(e.Message))
	if e.Remedy != "" {
		a.say("  fix: %s", printableLines(e.Remedy))
	}
	if e.RequestID != "" {
		a.say("  request id: %s", printable(e.RequestID))
	}
}

// say prints a line for people to stderr. A failing stderr leaves nobody to
// tell.
func (a *app) say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.IO.Err, format+"\n", args...)
}

// describe puts every kind of error into the shape of the API's envelope.
func (a *app) describe(err error) *api.Error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return a.explainKey(e)
	}
	if e, ok := errors.AsType[*pando.TransportError](err); ok {
		return &api.Error{Code: codeUnreachable, Message: e.Error(), Remedy: e.Remedy}
	}
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return &api.Error{
			Code: e.Code, Message: e.Error(), Reason: e.Reason, Field: e.Field,
			Remedy: e.Remedy, Needed: e.Needed, Available: e.Available,
		}
	}
	if e, ok := errors.AsType[*usageError](err); ok {
		return &api.Error{Code: codeUsage, Message: e.message, Remedy: e.remedy()}
	}
	if errors.Is(err, context.Canceled) {
		return &api.Error{Code: codeInterrupted, Message: "interrupted"}
	}
	return &api.Error{Code: codeFailed, Message: err.Error()}
}

func (e *usageError) remedy() string {
	if e.fix != "" || e.command == "" {
		return e.fix
	}
	return "see: " + e.command + " --help"
}

// explainKey adds where the command looked for a key, which the daemon cannot
// know.
func (a *app) explainKey(e *api.Error) *api.Error {
	if e.Code != api.CodeMissingCredentials && e.Code != api.CodeInvalidAPIKey {
		return e
	}
	c := *e
	c.Remedy = "set PANDO_API_KEY to the daemon's key"
	if file := filepath.Join(a.DataDir, keyFile); a.DataDir != "" && isLoopback(a.baseURL()) {
		c.Remedy += ", which is in the file " + keyFile + " of its data folder"
		if _, err := os.ReadFile(file); err != nil {
			c.Remedy += " (" + file + " cannot be read: " + reason(err) + ")"
		}
	}
	return &c
}

// reason is the cause of a file error without the path.
func reason(err error) string {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// printableLines is printable for texts of several lines.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = printable(line)
	}
	return strings.Join(lines, "\n  ")
}
