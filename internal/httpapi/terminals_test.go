package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/terminal"
	"github.com/pandovm/pando/internal/vm"
)

// echoNode has one session that shows what is typed. Typing "exit" ends it,
// "pause" breaks the link.
type echoNode struct {
	mu     sync.Mutex
	state  api.State
	active int
	last   *echoStream
	lost   int
}

func (n *echoNode) stream(created bool) (terminal.Stream, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = &echoStream{n: n, created: created, events: make(chan terminal.Event, 16), gone: make(chan struct{})}
	return n.last, nil
}

func (n *echoNode) OpenTerminal(_ context.Context, _ string, o terminal.Open) (terminal.Stream, error) {
	if o.User == "nobody" {
		return nil, fault.BadField("linuxUser", "the guest has no such user")
	}
	return n.stream(true)
}

func (n *echoNode) AttachTerminal(_ context.Context, _ string, p terminal.Pick) (terminal.Stream, error) {
	if p.ID != 7 && p.Slug != "main" {
		return nil, &fault.Error{Code: api.CodeNotFound, Message: "no such session"}
	}
	return n.stream(false)
}

func (n *echoNode) Terminals(context.Context, string, string) ([]terminal.Session, error) {
	return []terminal.Session{
		{ID: 7, Slug: "main", User: "u", Created: time.Unix(5, 0), Cols: 80, Rows: 24, Viewers: 1},
		{ID: 8, Slug: "old", User: "u", Created: time.Unix(6, 0), Cols: 80, Rows: 24, Exited: true, ExitCode: 3},
	}, nil
}

func (n *echoNode) CloseTerminal(_ context.Context, _ string, p terminal.Pick) (terminal.Session, error) {
	return terminal.Session{ID: p.ID, Exited: true, ExitCode: 3}, nil
}

func (n *echoNode) Get(context.Context, string) (vm.VM, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return vm.VM{ID: "vm-1", State: n.state}, nil
}

func (n *echoNode) Awake(_ context.Context, ref string) (vm.VM, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ref == "none" {
		return vm.VM{}, fault.NotFound("vm", ref)
	}
	n.state = api.StateRunning
	return vm.VM{ID: "vm-1", State: n.state}, nil
}

func (n *echoNode) Busy(string) func() { return func() {} }

func (n *echoNode) Active(string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.active++
}

type echoStream struct {
	n       *echoNode
	created bool
	events  chan terminal.Event
	gone    chan struct{}
	once    sync.Once
}

func (s *echoStream) Session() terminal.Session {
	return terminal.Session{ID: 7, Slug: "main", New: s.created, Cols: 80, Rows: 24}
}

func (s *echoStream) Next() (terminal.Event, error) {
	select {
	case e := <-s.events:
		return e, nil
	case <-s.gone:
		return terminal.Event{}, errors.New("link broken")
	}
}

func (s *echoStream) Write(p []byte) (int, error) {
	select {
	case <-s.gone:
		return 0, io.ErrClosedPipe
	default:
	}
	switch string(p) {
	case "exit":
		s.events <- terminal.Event{Exited: true, ExitCode: 4}
	case "pause":
		s.n.mu.Lock()
		s.n.state = api.StatePaused
		s.n.lost++
		s.n.mu.Unlock()
		s.Close()
	default:
		s.events <- terminal.Event{Output: append([]byte("saw "), p...)}
	}
	return len(p), nil
}

func (s *echoStream) Resize(cols, rows int) error {
	s.events <- terminal.Event{Output: []byte("resized")}
	return nil
}

func (s *echoStream) Signal(int) error {
	s.events <- terminal.Event{Output: []byte("signalled")}
	return nil
}

func (s *echoStream) Close() { s.once.Do(func() { close(s.gone) }) }

func terminalLab(t *testing.T) (*lab, *echoNode, *terminal.Service) {
	t.Helper()
	n := &echoNode{state: api.StateRunning}
	s := terminal.NewService(n, n)
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return newLabWith(t, func(l *lab) {
		l.terminals = s
		l.handler = newHandler(t, l)
	}), n, s
}

func dialTerminal(t *testing.T, l *lab, path string) *websocket.Conn {
	t.Helper()

	c, resp, err := websocket.Dial(t.Context(), l.url+path, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + key}}})
	if err != nil {
		t.Fatalf("dial %s: %v, %v", path, err, resp)
	}
	t.Cleanup(func() { _ = c.CloseNow() })
	return c
}

func frameOf(t *testing.T, c *websocket.Conn) (kind websocket.MessageType, text string) {
	t.Helper()
	kind, p, err := c.Read(t.Context())
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return kind, string(p)
}

func say(t *testing.T, c *websocket.Conn, kind websocket.MessageType, text string) {
	t.Helper()
	if err := c.Write(t.Context(), kind, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestTerminalFrames(t *testing.T) {
	t.Parallel()
	l, n, _ := terminalLab(t)
	c := dialTerminal(t, l, "/v5/vms/web/pty?cols=100&rows=30&slug=main&replaceOnExit=false&exec=ls%20-l")
	for _, step := range []struct {
		kind      websocket.MessageType
		say, want string
	}{
		{0, "", `{"type":"sessionInfo","sessionId":7,"slug":"main","created":true}`},
		{websocket.MessageBinary, "a\x00b", "saw a\x00b"},
		{websocket.MessageText, `{"type":"resize","cols":120,"rows":40}`, "resized"},
		{websocket.MessageText, `{"type":"signal","signal":"sigint"}`, "signalled"},
		{websocket.MessageText, `{"type":"signal","signal":"sigfoo"}`, `{"type":"error","message":"signal: \"sigfoo\" is not the name of a signal"}`},
		{websocket.MessageText, `{"type":"resize","cols":0,"rows":40}`, `{"type":"error","message":"cols: 0 is not between 1 and 1000"}`},
		{websocket.MessageText, `{"type":"dance"}`, `{"type":"error","message":"type: \"dance\" is not the type of a frame"}`},
		{websocket.MessageText, `rubbish`, `{"type":"error","message":"frame: is not the JSON of a frame"}`},
		{websocket.MessageBinary, "exit", `{"type":"exited","exitCode":4}`},
		{websocket.MessageBinary, "still there", "saw still there"},
	} {
		if step.say != "" {
			say(t, c, step.kind, step.say)
		}
		kind, got := frameOf(t, c)
		if got != step.want || (kind == websocket.MessageText) != strings.HasPrefix(step.want, "{") {
			t.Errorf("%q was answered with %v %q, want %q", step.say, kind, got, step.want)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.active == 0 {
		t.Error("typing is not use of the vm")
	}
}

// The socket stays open while the VM is paused; typing wakes it.
func TestTerminalOutlivesAPause(t *testing.T) {
	t.Parallel()
	l, n, _ := terminalLab(t)
	c := dialTerminal(t, l, "/v5/vms/web/pty/sessions/main")
	if _, got := frameOf(t, c); got != `{"type":"sessionInfo","sessionId":7,"slug":"main","created":false}` {
		t.Errorf("first frame %s", got)
	}
	say(t, c, websocket.MessageBinary, "pause")
	say(t, c, websocket.MessageBinary, "typed")
	if _, got := frameOf(t, c); got != "saw typed" {
		t.Errorf("after the pause: %q", got)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lost != 1 || n.state != api.StateRunning {
		t.Errorf("lost %d, state %s", n.lost, n.state)
	}
}

func TestTerminalHandshakeErrors(t *testing.T) {
	t.Parallel()
	l, _, _ := terminalLab(t)
	for path, want := range map[string]struct {
		status int
		code   api.Code
	}{
		"/v5/vms/web/pty?cols=0":               {400, api.CodeBadRequest},
		"/v5/vms/web/pty?cols=1001":            {400, api.CodeBadRequest},
		"/v5/vms/web/pty?rows=x":               {400, api.CodeBadRequest},
		"/v5/vms/web/pty?slug=UP":              {400, api.CodeBadRequest},
		"/v5/vms/web/pty?slug=123":             {400, api.CodeBadRequest},
		"/v5/vms/web/pty?replaceOnExit=maybe":  {400, api.CodeBadRequest},
		"/v5/vms/web/pty?linuxUser=nobody":     {400, api.CodeBadRequest},
		"/v5/vms/none/pty":                     {404, api.CodeNotFound},
		"/v5/vms/web/pty/sessions/9":           {404, api.CodeNotFound},
		"/v5/vms/web/pty/sessions/other":       {404, api.CodeNotFound},
		"/v5/vms/web/pty/sessions/UP%2F..%2Fx": {404, api.CodeNotFound},
	} {

		_, resp, err := websocket.Dial(t.Context(), l.url+path, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + key}}})
		if err == nil || resp == nil || resp.StatusCode != want.status {
			t.Errorf("%s: %v", path, err)
			continue
		}
		var e api.Error
		body, _ := io.ReadAll(resp.Body)
		if json.Unmarshal(body, &e) != nil || e.Code != want.code || e.Message == "" {
			t.Errorf("%s: %s", path, body)
		}
	}
	_, resp, err := websocket.Dial(t.Context(), l.url+"/v5/vms/web/pty", nil)
	if err == nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a key: %v", err)
	}
}

func TestTerminalWithoutUpgrade(t *testing.T) {
	t.Parallel()
	l, _, _ := terminalLab(t)
	for _, path := range []string{"/v5/vms/web/pty", "/v5/vms/web/pty/sessions/7"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, l.url+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := l.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "BAD_REQUEST") {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
}

// At the daemon's end clients hear that it is no fault of theirs.
func TestTerminalAtTheEnd(t *testing.T) {
	t.Parallel()
	l, _, s := terminalLab(t)
	c := dialTerminal(t, l, "/v5/vms/web/pty")
	frameOf(t, c)
	ended := make(chan error, 1)
	go func() { ended <- s.Close(context.Background()) }()
	_, _, err := c.Read(t.Context())
	if websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the socket ended with %v", err)
	}
	_ = c.CloseNow()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
