package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/terminal"
)

// Terminals are the use cases on terminal sessions; ref is a VM's id or slug,
// name a session's.
type Terminals interface {
	Open(ctx context.Context, ref string, o terminal.Open) (*terminal.View, error)
	Attach(ctx context.Context, ref, name, user string) (*terminal.View, error)
	List(ctx context.Context, ref, user string) ([]terminal.Session, error)
	Remove(ctx context.Context, ref, name, user string) (terminal.Session, error)
}

func (s *server) terminalRoutes() []route {
	user := Parameter{Name: "linuxUser", Type: "string", Description: "Only sessions of this Linux user."}
	errs := []api.Code{api.CodeBadRequest, api.CodeNotFound, api.CodeConflict, api.CodeVMNonResponsive, api.CodeLimitExceeded, api.CodeAgentUnsupported, api.CodeUnavailable}
	return []route{
		handleRaw(Operation{
			Method: "GET", Path: "/v5/vms/{id}/pty", ID: "openPTY", Status: http.StatusSwitchingProtocols,
			Summary: "Open a terminal session, or the one with that slug, and attach to it (WebSocket).",
			Description: "Binary frames are output one way and input the other, text frames are PTYFrame objects. " +
				"The first is sessionInfo. Closing the socket leaves the session running. " +
				"The socket outlives a pause of the VM: after it the screen is drawn anew. Typing wakes a paused VM.",
			Query: []Parameter{
				{Name: "exec", Type: "string", Description: "Text for the user's shell; without it, a login shell."},
				{Name: "cols", Type: "integer", Minimum: 1, Description: "Columns, 1 to 1000; 80 without it."},
				{Name: "rows", Type: "integer", Minimum: 1, Description: "Rows, 1 to 1000; 24 without it."},
				{Name: "linuxUser", Type: "string", Description: "The Linux user; without it, uid 1000, else root."},
				{Name: "slug", Type: "string", Description: "The session's name: if there is a session of that name, it is attached to and exec is not run."},
				{Name: "replaceOnExit", Type: "string", Values: []string{"true", "false"}, Description: "Start the program again whenever it ends, unless it ends at once several times."},
			},
			Errors: errs,
		}, s.openTerminal),
		handleRaw(Operation{
			Method: "GET", Path: "/v5/vms/{id}/pty/sessions/{sub}", ID: "attachPTY", Status: http.StatusSwitchingProtocols,
			Summary:     "Attach to a terminal session by id or slug (WebSocket).",
			Description: "The frames are those of opening. The screen with its scrollback comes first, behind a terminal reset.",
			Query:       []Parameter{user}, Errors: errs,
		}, s.attachTerminal),
		handle(Operation{
			Method: "GET", Path: "/v5/vms/{id}/pty/sessions", ID: "listPTYSessions", Status: 200,
			Summary: "List the terminal sessions of a VM.", Query: []Parameter{user}, Errors: errs,
		}, s.listTerminals),
		handle(Operation{
			Method: "DELETE", Path: "/v5/vms/{id}/pty/sessions/{sub}", ID: "closePTYSession", Status: 200,
			Summary:     "Close a terminal session by id or slug.",
			Description: "Its program gets SIGHUP, and SIGKILL if that does not end it within five seconds.",
			Query:       []Parameter{user}, Errors: errs,
		}, s.closeTerminal),
	}
}

func (s *server) openTerminal(w http.ResponseWriter, r *http.Request, c call[none]) error {
	if err := wantUpgrade(w, r); err != nil {
		return err
	}
	for _, name := range []string{"cols", "rows"} {
		if _, given := c.query[name]; given {
			// 0 means the default further in.
			if err := terminal.CheckSize(max(c.query.number("cols"), 1), max(c.query.number("rows"), 1)); err != nil {
				return err
			}
		}
	}
	v, err := s.terminals.Open(r.Context(), c.ref, terminal.Open{
		Command: c.query["exec"], User: c.query["linuxUser"], Slug: c.query["slug"],
		Cols: c.query.number("cols"), Rows: c.query.number("rows"), Replace: c.query["replaceOnExit"] == "true",
	})
	if err != nil {
		return err
	}
	return s.showTerminal(w, r, v)
}

func (s *server) attachTerminal(w http.ResponseWriter, r *http.Request, c call[none]) error {
	if err := wantUpgrade(w, r); err != nil {
		return err
	}
	v, err := s.terminals.Attach(r.Context(), c.ref, c.sub, c.query["linuxUser"])
	if err != nil {
		return err
	}
	return s.showTerminal(w, r, v)
}

func (s *server) listTerminals(ctx context.Context, c call[none]) (api.PTYSessionList, error) {
	found, err := s.terminals.List(ctx, c.ref, c.query["linuxUser"])
	if err != nil {
		return api.PTYSessionList{}, err
	}
	list := api.PTYSessionList{Sessions: make([]api.PTYSession, 0, len(found))}
	for _, f := range found {
		list.Sessions = append(list.Sessions, viewTerminal(f))
	}
	return list, nil
}

func viewTerminal(f terminal.Session) api.PTYSession {
	out := api.PTYSession{
		SessionID: f.ID, State: api.PTYRunning, CreatedUnix: f.Created.Unix(), Cols: f.Cols, Rows: f.Rows,
		LinuxUser: f.User, Slug: f.Slug, Title: f.Title, Viewers: f.Viewers,
	}
	if f.Exited {
		// The name is free for another session; this one is found by it until then.
		out.State, out.ExitCode, out.Slug = api.PTYExited, &f.ExitCode, ""
	}
	return out
}

func (s *server) closeTerminal(ctx context.Context, c call[none]) (api.ClosePTYSessionResponse, error) {
	f, err := s.terminals.Remove(ctx, c.ref, c.sub, c.query["linuxUser"])
	if err != nil {
		return api.ClosePTYSessionResponse{}, err
	}
	out := api.ClosePTYSessionResponse{SessionID: f.ID}
	if f.Exited {
		out.ExitCode = &f.ExitCode
	}
	return out, nil
}

// wantUpgrade refuses what is not the handshake of a WebSocket, before anything
// is done for it.
func wantUpgrade(w http.ResponseWriter, r *http.Request) error {
	bad := func(what string) error {
		w.Header().Set("Upgrade", "websocket")
		return (&fault.Error{Code: api.CodeBadRequest, Message: "this path is a WebSocket: " + what}).
			Hint("open it with a WebSocket client over HTTP/1.1")
	}
	switch {
	case !headerHas(r, "Connection", "upgrade") || !headerHas(r, "Upgrade", "websocket"):
		return bad("the request does not ask for an upgrade")
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		return bad("Sec-WebSocket-Version is not 13")
	case len(r.Header.Get("Sec-WebSocket-Key")) != 24:
		return bad("Sec-WebSocket-Key is missing or malformed")
	}
	return nil
}

func headerHas(r *http.Request, name, token string) bool {
	for _, value := range r.Header.Values(name) {
		for part := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}
