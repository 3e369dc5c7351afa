package pando_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

const execID = "exec-7c9e6679-7425-40de-944b-e07fc1f90ae7"

// guest plays a command that writes its output once it has got its input. Each
// stream breaks off after so many lines.
type guest struct {
	t      *testing.T
	output []api.ExecEvent
	breaks int
	status int

	mu     sync.Mutex
	state  api.State
	looks  int
	stdin  []byte
	closed bool
	seqs   []string
}

func (g *guest) client() *pando.Client {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v5/vms/web", g.vm)
	mux.HandleFunc("POST /v5/vms/web/exec", func(w http.ResponseWriter, _ *http.Request) { g.stream(w, 1) })
	mux.HandleFunc("GET /v5/vms/web/exec/"+execID+"/output", func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.seqs = append(g.seqs, r.URL.Query().Get("seq"))
		g.mu.Unlock()
		from, _ := strconv.Atoi(r.URL.Query().Get("seq"))
		g.stream(w, max(1, from))
	})
	mux.HandleFunc("POST /v5/vms/web/exec/"+execID+"/stdin", g.feed)
	server := httptest.NewServer(mux)
	g.t.Cleanup(server.Close)
	return client(g.t, server)
}

// vm is paused when it is looked at for the first time.
func (g *guest) vm(w http.ResponseWriter, _ *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	state := api.StateRunning
	if g.looks++; g.looks == 1 && g.state != "" {
		state = g.state
	}
	g.send(w, api.VM{ID: "vm-1", State: state})
}

func (g *guest) send(w io.Writer, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		g.t.Log(err) // the client may have left
	}
}

func (g *guest) stream(w http.ResponseWriter, from int) {
	running := api.Exec{ID: execID, State: api.ExecRunning}
	g.send(w, api.ExecEvent{Type: api.EventExec, Exec: &running})
	for i := from - 1; i < len(g.output); i++ {
		if g.breaks > 0 && i >= from-1+g.breaks {
			return
		}
		e := g.output[i]
		e.Type, e.Seq = api.EventOutput, int64(i+1)
		g.send(w, e)
	}
	g.send(w, api.ExecEvent{Type: api.EventPing})
	g.send(w, api.ExecEvent{Type: api.EventExec, Exec: &api.Exec{ID: execID, State: api.ExecExited, StatusCode: &g.status}})
}

// feed breaks every second request off after half of it.
func (g *guest) feed(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looks++
	got := body[len(g.stdin)-offset:]
	if len(got) > 1 && g.looks%2 == 1 {
		g.stdin = append(g.stdin, got[:len(got)/2]...)
		panic(http.ErrAbortHandler)
	}
	g.stdin = append(g.stdin, got...)
	g.closed = r.URL.Query().Get("close") == "true"
	g.send(w, api.Exec{ID: execID, StdinBytes: int64(len(g.stdin))})
}

func pieces(texts ...string) []api.ExecEvent {
	var events []api.ExecEvent
	var ends [2]int64
	for i, text := range texts {
		e := api.ExecEvent{Stream: api.StreamStdout, Offset: ends[i%2], Text: text}
		if i%2 == 1 {
			e.Stream, e.Text, e.Data = api.StreamStderr, "", []byte(text)
		}
		ends[i%2] += int64(len(text))
		events = append(events, e)
	}
	return events
}

// Streams that break off again and again are continued without loss and without
// repetition, and a paused VM is not woken.
func TestCmdAttachesAgain(t *testing.T) {
	t.Parallel()
	g := &guest{t: t, output: pieces("a", "b", "c", "d", "e", "f", "g"), breaks: 2, state: api.StatePaused}
	out, err := g.client().VMs.Shell("web", "x").CombinedOutput(t.Context())
	if err != nil || string(out) != "abcdefg" {
		t.Errorf("got %q, %v", out, err)
	}
	if got := strings.Join(g.seqs, " "); got != "3 5 7" {
		t.Errorf("attached at %s", got)
	}
}

func TestCmdOutcome(t *testing.T) {
	t.Parallel()
	g := &guest{t: t, output: pieces("out", "err"), status: 7}
	out, err := g.client().VMs.Command("web", "cat", "a b").Output(t.Context())
	var exit *pando.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 || string(exit.Stderr) != "err" || string(out) != "out" || err.Error() != "exit status 7" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestCmdMissesWhatIsNotKept(t *testing.T) {
	t.Parallel()
	g := &guest{t: t, output: []api.ExecEvent{{Stream: api.StreamStdout, Offset: 10, Text: "x"}}}
	cmd := g.client().VMs.Attach("web", execID)
	if err := cmd.Run(t.Context()); err != nil || cmd.Missed() != 10 {
		t.Errorf("missed %d, %v", cmd.Missed(), err)
	}
}

func TestCmdPipes(t *testing.T) {
	t.Parallel()
	g := &guest{t: t, output: pieces("line 1\n", "", "line 2\n")}
	cmd := g.client().VMs.Shell("web", "x")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(pipe)
	if err != nil || string(got) != "line 1\nline 2\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// Input that a broken connection swallowed is repeated from where it arrived.
func TestWriteExecStdinCanBeRepeated(t *testing.T) {
	t.Parallel()
	g := &guest{t: t}
	c := g.client()
	const text = "0123456789"
	for range 2 {
		_, err := c.VMs.WriteExecStdin(t.Context(), "web", execID, strings.NewReader(text), 0, true)
		if err == nil {
			break
		}
	}
	if string(g.stdin) != text || !g.closed {
		t.Errorf("got %q, closed %v", g.stdin, g.closed)
	}
}

func TestCmdThatDoesNotStart(t *testing.T) {
	t.Parallel()
	c, _ := daemon(t, http.StatusNotFound, `{"code":"NOT_FOUND","message":"no vm","remedy":"look"}`)
	err := c.VMs.Shell("web", "x").Run(t.Context())
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeNotFound {
		t.Errorf("got %v", err)
	}
}
