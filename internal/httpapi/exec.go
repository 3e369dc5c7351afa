package httpapi

import (
	"context"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/fault"
)

// streamText explains the lines of a command's stream.
const streamText = "The answer is one JSON object per line (application/x-ndjson). The first line, of type exec, carries the command's id, and so does " +
	"the last, once the command has ended; between them are lines of type output, each with a piece of stdout or stderr: its text if " +
	"it is UTF-8, else base64 in data, so that every byte is exact. seq numbers the pieces of both outputs in the order in which they " +
	"were read; offset is the place of the piece in its own output. A jump of an offset means that output in between is no longer kept. " +
	"A line of type ping says that nothing has happened for ten seconds, one of type error that the stream broke off. " +
	"A client that goes away does not end the command: it goes on at GET …/exec/{sub}/output?seq=N&follow=true without loss and without " +
	"repetition, N being the last seq it has seen plus 1. While a client follows slowly, the command waits for it."

func (s *server) execRoutes() []route {
	target := []api.Code{api.CodeNotFound, api.CodeConflict, api.CodeVMNonResponsive, api.CodeAgentUnsupported}
	start := Operation{
		Method: "POST", Path: "/v5/vms/{id}/exec", ID: "startExec", Status: 200, MaxBody: MaxExecBodyBytes,
		Summary: "Start a command in a VM and stream what it prints.", Description: streamText,
		Gives: ndjson, Errors: append([]api.Code{api.CodeLimitExceeded, api.CodePayloadTooLarge}, target...),
	}
	return []route{
		handle(Operation{
			Method: "POST", Path: "/v5/vms/{id}/exec-await", ID: "execVM", Status: 200, MaxBody: MaxExecBodyBytes,
			Summary: "Run a command in a running VM and wait for it.",
			Description: "A command that exits with another status than 0 is still a 200. " +
				"After VM_NON_RESPONSIVE the command may have run: do not repeat it blindly. " +
				"Output beyond a bound is left out, truncated is true then, and GET …/exec/{sub}/output reads all that the guest keeps.",
			Errors: []api.Code{api.CodeBadRequest, api.CodeNotFound, api.CodeConflict, api.CodeVMNonResponsive, api.CodePayloadTooLarge, api.CodeLimitExceeded},
		}, s.exec),
		handleStream(start, s.startExec),
		handle(Operation{
			Method: "GET", Path: "/v5/vms/{id}/exec", ID: "listExecs", Status: 200,
			Summary: "List the commands of a VM, newest first.", Errors: target,
		}, s.listExecs),
		handle(Operation{
			Method: "GET", Path: "/v5/vms/{id}/exec/{sub}", ID: "getExec", Status: 200,
			Summary: "Get a command: its state, exit status, times and lengths.", Errors: target,
		}, s.getExec),
		handleRaw(outputOperation(target), s.execOutput),
		handleRaw(Operation{
			Method: "POST", Path: "/v5/vms/{id}/exec/{sub}/stdin", ID: "writeExecStdin", Status: 200,
			Summary: "Stream input to a command.",
			Description: "The body is passed on as the command takes it, however long it is; the answer comes once all of it was taken. " +
				"A request that broke off is repeated with offset: what the command has already is left out.",
			Takes: "application/octet-stream", Response: typeOf[api.Exec](), Errors: target,
			Query: []Parameter{
				{Name: "close", Type: "string", Values: []string{"true", "false"}, Description: "Ends the input after the body."},
				{Name: "offset", Type: "integer", Large: true, Description: "Where in the input the body begins; without it, at the end of what there is."},
			},
		}, s.writeStdin),
		handle(Operation{
			Method: "DELETE", Path: "/v5/vms/{id}/exec/{sub}/stdin", ID: "closeExecStdin", Status: 200,
			Summary: "End the input of a command.", Errors: target,
		}, s.closeStdin),
		handle(Operation{
			Method: "POST", Path: "/v5/vms/{id}/exec/{sub}/signal", ID: "signalExec", Status: 200,
			Summary:     "Signal a command's process group.",
			Description: "KILL kills everything that the command started, also under other users.", Errors: target,
		}, s.signalExec),
		handle(Operation{
			Method: "DELETE", Path: "/v5/vms/{id}/exec/{sub}", ID: "deleteExec", Status: 204,
			Summary: "Kill a command with everything that it started, and forget it and its output.", Errors: target,
		}, s.deleteExec),
	}
}

func outputOperation(target []api.Code) Operation {
	return Operation{
		Method: "GET", Path: "/v5/vms/{id}/exec/{sub}/output", ID: "getExecOutput", Status: 200,
		Summary: "Read what a command has printed, and follow it.",
		Description: "With stream, the answer is the bytes of that output from offset on (application/octet-stream); the header " +
			"X-Exec-Offset says where they really begin, if the beginning is no longer kept. Without it: " + streamText,
		Gives: ndjson, Response: typeOf[api.ExecEvent](), Errors: target,
		Query: []Parameter{
			{Name: "stream", Type: "string", Values: []string{"stdout", "stderr"}, Description: "Only the bytes of this output."},
			{Name: "offset", Type: "integer", Large: true, Description: "Where to begin in that output, in bytes."},
			{Name: "seq", Type: "integer", Large: true, Description: "The first piece of both outputs to be sent."},
			{Name: "follow", Type: "string", Values: []string{"true", "false"}, Description: "Goes on with what the command prints until it ends."},
		},
	}
}

func (s *server) exec(ctx context.Context, c call[api.ExecRequest]) (api.ExecResponse, error) {
	o, err := order(c.body.Command, c.body.LinuxUser, c.body.Env, c.body.TimeoutMs, c.body.Stdin)
	if err != nil {
		return api.ExecResponse{}, err
	}
	res, err := s.commands.Exec(ctx, c.ref, o)
	if err != nil {
		return api.ExecResponse{}, err
	}
	return api.ExecResponse{
		ID: res.ID, Stdout: string(res.Stdout), Stderr: string(res.Stderr), StatusCode: res.ExitCode, TimedOut: res.TimedOut,
		StdoutBytes: res.StdoutBytes, StderrBytes: res.StderrBytes,
		Truncated: res.StdoutBytes > int64(len(res.Stdout)) || res.StderrBytes > int64(len(res.Stderr)),
		OOMKilled: res.OOMKilled, OOMProcess: res.OOMProcess,
	}, nil
}

func order(text string, user *string, env map[string]string, timeoutMs *int64, stdin *string) (command.Order, error) {
	o := command.Order{Command: text, User: orZero(user), Env: env}
	if timeoutMs != nil {
		// Checked here because 0 means the default further in, and because a
		// larger number than a Duration holds would come out as a small one.
		limit := command.MaxTimeout.Milliseconds()
		if *timeoutMs < 1 || *timeoutMs > limit {
			return o, fault.BadField("timeoutMs", "%d is not between 1 and %d", *timeoutMs, limit).
				Hint("leave it out for the default")
		}
		o.Timeout = time.Duration(*timeoutMs) * time.Millisecond
	}
	if stdin != nil {
		decoded, err := base64.StdEncoding.DecodeString(*stdin)
		if err != nil {
			return o, fault.BadField("stdin", "is not base64").Hint("encode it in standard base64 with padding").With(err)
		}
		o.Stdin = decoded
	}
	return o, nil
}

func (s *server) startExec(w http.ResponseWriter, r *http.Request, c call[api.StartExecRequest]) error {
	b := c.body
	o, err := order(b.Command, b.LinuxUser, b.Env, b.TimeoutMs, b.Stdin)
	if err != nil {
		return err
	}
	o.OpenStdin = b.OpenStdin
	out, err := s.commands.Start(r.Context(), c.ref, o)
	if err != nil {
		return err
	}
	defer out.Close()
	if b.Detach {
		return s.streamFirst(w, out)
	}
	return s.streamEvents(w, r, out)
}

func (s *server) listExecs(ctx context.Context, c call[none]) (api.ExecList, error) {
	found, err := s.commands.List(ctx, c.ref)
	if err != nil {
		return api.ExecList{}, err
	}
	list := api.ExecList{Execs: make([]api.Exec, 0, len(found)), TotalCount: len(found)}
	for _, i := range found {
		list.Execs = append(list.Execs, execObject(i))
	}
	return list, nil
}

func (s *server) getExec(ctx context.Context, c call[none]) (api.Exec, error) {
	i, err := s.commands.Get(ctx, c.ref, c.sub)
	return execObject(i), err
}

func (s *server) signalExec(ctx context.Context, c call[api.SignalRequest]) (api.Exec, error) {
	i, err := s.commands.Signal(ctx, c.ref, c.sub, c.body.Signal)
	return execObject(i), err
}

func (s *server) deleteExec(ctx context.Context, c call[none]) (none, error) {
	return none{}, s.commands.Forget(ctx, c.ref, c.sub)
}

func (s *server) closeStdin(ctx context.Context, c call[none]) (api.Exec, error) {
	i, err := s.commands.Feed(ctx, c.ref, command.Input{ID: c.sub, Offset: -1, Close: true, Body: http.NoBody})
	return execObject(i), err
}

func (s *server) writeStdin(w http.ResponseWriter, r *http.Request, c call[none]) error {
	i, err := s.commands.Feed(r.Context(), c.ref, command.Input{
		ID: c.sub, Offset: c.query.size("offset", -1), Close: c.query["close"] == "true", Body: r.Body,
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, execObject(i))
}

func execObject(i command.Info) api.Exec {
	return api.Exec{
		ID: i.ID, Command: i.Command, LinuxUser: i.User, State: api.ExecState(i.State), PID: i.PID, StatusCode: i.ExitCode,
		TimedOut: i.TimedOut, OOMKilled: i.OOMKilled, OOMProcess: i.OOMProcess,
		StartedAt: i.StartedAt.UTC(), EndedAt: timeOrNull(i.Ended), StdoutBytes: i.StdoutBytes, StderrBytes: i.StderrBytes,
		StdoutFrom: i.StdoutFrom, StderrFrom: i.StderrFrom, StdinBytes: i.StdinBytes, StdinOpen: i.StdinOpen,
	}
}
