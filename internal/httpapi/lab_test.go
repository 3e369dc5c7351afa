package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/file"
	"github.com/pandovm/pando/internal/httpapi"
	"github.com/pandovm/pando/internal/network"
	"github.com/pandovm/pando/internal/operation"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/store"
	"github.com/pandovm/pando/internal/vm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_ httpapi.VMs       = (*vm.Manager)(nil)
	_ httpapi.Commands  = (*command.Service)(nil)
	_ httpapi.Snapshots = (*snapshot.Service)(nil)
)

const key = "test-key"

// fakeVMs has a function per use case; a nil one must not be called.
type fakeVMs struct {
	create   func(context.Context, vm.CreateParams) (vm.VM, error)
	get      func(context.Context, string) (vm.VM, error)
	list     func(context.Context, vm.Filter) ([]vm.VM, map[api.State]int, error)
	update   func(context.Context, string, vm.UpdateParams) (vm.VM, error)
	outlook  func(vm.VM) vm.Outlook
	start    func(context.Context, string) (vm.VM, error)
	pause    func(context.Context, string) (vm.VM, error)
	stop     func(context.Context, string) (vm.VM, error)
	remove   func(context.Context, string) error
	resize   func(context.Context, string, vm.ResizeParams) (vm.VM, error)
	snapshot func(context.Context, string, vm.SnapshotParams) (snapshot.Snapshot, time.Duration, error)
	fork     func(context.Context, string, vm.ForkParams) (vm.ForkOutcome, error)
}

func (f *fakeVMs) Create(ctx context.Context, p vm.CreateParams) (vm.VM, error) {
	return f.create(ctx, p)
}
func (f *fakeVMs) Get(ctx context.Context, ref string) (vm.VM, error)   { return f.get(ctx, ref) }
func (f *fakeVMs) Start(ctx context.Context, ref string) (vm.VM, error) { return f.start(ctx, ref) }
func (f *fakeVMs) Pause(ctx context.Context, ref string) (vm.VM, error) { return f.pause(ctx, ref) }
func (f *fakeVMs) Stop(ctx context.Context, ref string) (vm.VM, error)  { return f.stop(ctx, ref) }
func (f *fakeVMs) Delete(ctx context.Context, ref string) error         { return f.remove(ctx, ref) }

func (f *fakeVMs) Update(ctx context.Context, ref string, p vm.UpdateParams) (vm.VM, error) {
	return f.update(ctx, ref, p)
}

func (f *fakeVMs) Outlook(v vm.VM) vm.Outlook {
	if f.outlook == nil {
		return vm.Outlook{}
	}
	return f.outlook(v)
}

func (f *fakeVMs) Resize(ctx context.Context, ref string, p vm.ResizeParams) (vm.VM, error) {
	return f.resize(ctx, ref, p)
}

func (f *fakeVMs) List(ctx context.Context, filter vm.Filter) ([]vm.VM, map[api.State]int, error) {
	return f.list(ctx, filter)
}

func (f *fakeVMs) Snapshot(ctx context.Context, ref string, p vm.SnapshotParams) (snapshot.Snapshot, time.Duration, error) {
	return f.snapshot(ctx, ref, p)
}

func (f *fakeVMs) Fork(ctx context.Context, ref string, p vm.ForkParams) (vm.ForkOutcome, error) {
	return f.fork(ctx, ref, p)
}

// fakeCommands has a function per use case; a nil one must not be called.
type fakeCommands struct {
	exec          func(context.Context, string, command.Order) (command.Result, error)
	start         func(context.Context, string, command.Order) (command.Output, error)
	follow        func(context.Context, string, command.Follow) (command.Output, error)
	feed          func(context.Context, string, command.Input) (command.Info, error)
	signal        func(ctx context.Context, ref, execID, signal string) (command.Info, error)
	get           func(ctx context.Context, ref, execID string) (command.Info, error)
	list          func(context.Context, string) ([]command.Info, error)
	forget        func(ctx context.Context, ref, execID string) error
	processes     func(context.Context, string) ([]command.Process, error)
	signalProcess func(ctx context.Context, ref string, pid int, signal string) error
}

func (f *fakeCommands) Exec(ctx context.Context, ref string, o command.Order) (command.Result, error) {
	return f.exec(ctx, ref, o)
}

func (f *fakeCommands) Start(ctx context.Context, ref string, o command.Order) (command.Output, error) {
	return f.start(ctx, ref, o)
}

func (f *fakeCommands) Follow(ctx context.Context, ref string, o command.Follow) (command.Output, error) {
	return f.follow(ctx, ref, o)
}

func (f *fakeCommands) Feed(ctx context.Context, ref string, in command.Input) (command.Info, error) {
	return f.feed(ctx, ref, in)
}

func (f *fakeCommands) Signal(ctx context.Context, ref, execID, signal string) (command.Info, error) {
	return f.signal(ctx, ref, execID, signal)
}

func (f *fakeCommands) Get(ctx context.Context, ref, execID string) (command.Info, error) {
	return f.get(ctx, ref, execID)
}

func (f *fakeCommands) List(ctx context.Context, ref string) ([]command.Info, error) {
	return f.list(ctx, ref)
}

func (f *fakeCommands) Forget(ctx context.Context, ref, execID string) error {
	return f.forget(ctx, ref, execID)
}

func (f *fakeCommands) Processes(ctx context.Context, ref string) ([]command.Process, error) {
	return f.processes(ctx, ref)
}

func (f *fakeCommands) SignalProcess(ctx context.Context, ref string, pid int, signal string) error {
	return f.signalProcess(ctx, ref, pid, signal)
}

// fakeOutput plays events, then the error, io.EOF if there is none.
type fakeOutput struct {
	events []command.Event
	err    error
	closed bool
}

func (f *fakeOutput) Next() (command.Event, error) {
	if len(f.events) == 0 {
		if f.err == nil {
			f.err = io.EOF
		}
		return command.Event{}, f.err
	}
	e := f.events[0]
	f.events = f.events[1:]
	return e, nil
}

func (f *fakeOutput) Close() { f.closed = true }

type fakeSnapshots struct {
	get    func(context.Context, string) (snapshot.Snapshot, error)
	list   func(context.Context, snapshot.Filter) ([]snapshot.Snapshot, int, error)
	update func(context.Context, string, snapshot.UpdateParams) (snapshot.Snapshot, error)
	remove func(context.Context, string) error
}

func (f *fakeSnapshots) Update(ctx context.Context, ref string, p snapshot.UpdateParams) (snapshot.Snapshot, error) {
	return f.update(ctx, ref, p)
}

func (f *fakeSnapshots) Get(ctx context.Context, ref string) (snapshot.Snapshot, error) {
	return f.get(ctx, ref)
}

func (f *fakeSnapshots) List(ctx context.Context, filter snapshot.Filter) ([]snapshot.Snapshot, int, error) {
	return f.list(ctx, filter)
}
func (f *fakeSnapshots) Delete(ctx context.Context, ref string) error { return f.remove(ctx, ref) }

type fakeImages struct {
	list func(context.Context) ([]api.Image, error)
}

func (f *fakeImages) List(ctx context.Context) ([]api.Image, error) { return f.list(ctx) }

// noVMs is a host without VMs whose files could be used.
type noVMs struct{}

func (noVMs) Awake(_ context.Context, ref string) (vm.VM, error) {
	return vm.VM{}, fault.NotFound("vm", ref)
}

func (noVMs) Busy(string) func() { return func() {} }

// lab is the API on a real listener over fakes, with a client and the log.
type lab struct {
	t         *testing.T
	vms       *fakeVMs
	snapshots *fakeSnapshots
	images    *fakeImages
	commands  *fakeCommands
	terminals httpapi.Terminals
	agents    fakeAgents
	handler   http.Handler
	url       string
	client    *http.Client
	log       *logBuffer
}

func moment() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// newLab makes a lab in which no snapshot exists and nothing else may be called.
func newLab(t *testing.T) *lab {
	t.Helper()
	return newLabWith(t, func(l *lab) { l.handler = newHandler(t, l) })
}

func newLabWith(t *testing.T, handle func(*lab)) *lab {
	t.Helper()
	l := &lab{t: t, vms: &fakeVMs{}, snapshots: &fakeSnapshots{}, images: &fakeImages{}, commands: &fakeCommands{}, log: &logBuffer{}}
	l.snapshots.get = func(_ context.Context, ref string) (snapshot.Snapshot, error) {
		return snapshot.Snapshot{}, fault.NotFound("snapshot", ref)
	}
	handle(l)
	srv := httptest.NewServer(l.handler)
	t.Cleanup(srv.Close)
	l.url, l.client = srv.URL, srv.Client()
	// Redirects are answers too, and none is expected.
	l.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return l
}

func newHandler(tb testing.TB, l *lab) http.Handler {
	tb.Helper()
	records, err := store.Open(tb.Context(), filepath.Join(tb.TempDir(), "pando.db"), moment)
	if err != nil {
		tb.Fatal(err)
	}
	return newHandlerOn(tb, l, records)
}

func newHandlerOn(tb testing.TB, l *lab, records *store.Store) http.Handler {
	tb.Helper()
	background := operation.NewBackground()
	tb.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := errors.Join(background.Close(ended), records.Close()); err != nil {
			tb.Error(err)
		}
	})
	h, err := httpapi.New(httpapi.Config{
		Stats:      fakeStats{},
		Terminals:  l.terminals,
		Agents:     &l.agents,
		Files:      file.NewService(noVMs{}, nil),
		Network:    network.NewService(records, records, moment),
		Background: background, Keys: operation.NewKeys(records, moment),
		VMs: l.vms, Snapshots: l.snapshots, Images: l.images, Commands: l.commands, APIKey: key,
		Status: api.Status{Status: "ok", Version: "1.2.3", Accelerator: "tcg"},
		Limits: []api.Limit{{Name: "wiring", Value: 7, Unit: api.UnitCount, Description: "A limit that the wiring adds."}},
		Now:    moment, Log: slog.New(slog.NewJSONHandler(l.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// answer is a response whose body was read.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
}

// send sends a request with the key; headers are pairs and can replace it.
func (l *lab) send(method, path, body string, headers ...string) answer {
	l.t.Helper()
	req, err := http.NewRequestWithContext(l.t.Context(), method, l.url+path, strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Del(headers[i])
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := l.client.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusNoContent && resp.Header.Get("Content-Type") != "application/json" {
		l.t.Errorf("%s %s: content type %q", method, path, resp.Header.Get("Content-Type"))
	}
	return answer{l.t, resp.StatusCode, resp.Header, data}
}

// raw sends bytes that no client would and reads one answer.
func (l *lab) raw(request string) answer {
	l.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(l.t.Context(), "tcp", strings.TrimPrefix(l.url, "http://"))
	if err != nil {
		l.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		l.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return answer{l.t, resp.StatusCode, resp.Header, data}
}

// ok decodes a successful answer into v.
func (a answer) ok(status int, v any) {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("got status %d, want %d: %s", a.status, status, a.body)
	}
	if err := json.Unmarshal(a.body, v); err != nil {
		a.t.Fatalf("decode %s: %v", a.body, err)
	}
}

// failed checks the envelope of an error answer and returns it.
func (a answer) failed(status int, code api.Code, field string) api.Error {
	a.t.Helper()
	var e api.Error
	dec := json.NewDecoder(bytes.NewReader(a.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		a.t.Fatalf("decode %d %s: %v", a.status, a.body, err)
	}
	if a.status != status || e.Code != code || e.Field != field {
		a.t.Errorf("got %d %s, want %d %s of field %q", a.status, a.body, status, code, field)
	}
	if e.Message == "" || e.Remedy == "" || e.RequestID != a.header.Get("X-Request-Id") || e.RequestID == "" {
		a.t.Errorf("the envelope lacks message, remedy or request id: %s", a.body)
	}
	return e
}

// logBuffer keeps log lines.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// line waits for the log line of a request: it is written after the answer.
func (b *logBuffer) line(t *testing.T, requestID string) map[string]any {
	t.Helper()
	return b.await(t, func(line map[string]any) bool { return line["request_id"] == requestID })
}

// text is everything that was logged.
func (b *logBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// await waits for a log line.
func (b *logBuffer) await(t *testing.T, wanted func(map[string]any) bool) map[string]any {
	t.Helper()
	for {
		b.mu.Lock()
		text := b.buf.String()
		b.mu.Unlock()
		for raw := range strings.Lines(text) {
			var line map[string]any
			if err := json.Unmarshal([]byte(raw), &line); err != nil {
				t.Fatal(err)
			}
			if wanted(line) {
				return line
			}
		}
		select {
		case <-t.Context().Done():
			t.Fatal("it was not logged")
		case <-time.After(time.Millisecond):
		}
	}
}
