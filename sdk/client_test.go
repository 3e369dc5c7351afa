package pando_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seen is what a daemon got.
type seen struct {
	Method, URI, Auth, ContentType string
	Body                           string
}

// daemon answers every call in the same way and remembers the last one.
func daemon(t *testing.T, status int, answer string) (*pando.Client, *seen) {
	t.Helper()
	last := new(seen)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read request: %v", err)
		}
		*last = seen{
			Method: r.Method, URI: r.RequestURI, Auth: r.Header.Get("Authorization"),
			ContentType: r.Header.Get("Content-Type"), Body: string(body),
		}
		w.Header().Set("X-Request-Id", "req-1")
		w.WriteHeader(status)
		if status != http.StatusNoContent {
			_, _ = io.WriteString(w, answer) // a client that hung up is what some tests want
		}
	}))
	t.Cleanup(server.Close)
	return client(t, server), last
}

func client(t *testing.T, server *httptest.Server) *pando.Client {
	t.Helper()
	c, err := pando.New(pando.Options{BaseURL: server.URL + "/", APIKey: "secret", HTTPClient: server.Client()})
	if err != nil {
		t.Fatalf("new client: %v", err)
	}
	return c
}

func TestCallsReachTheirRoutes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		call func(context.Context, *pando.Client) error
		want seen
	}{
		"status": {
			func(ctx context.Context, c *pando.Client) error { _, err := c.Status(ctx); return err },
			seen{Method: "GET", URI: "/status"},
		},
		"create adds the firewall": {
			func(ctx context.Context, c *pando.Client) error {
				_, err := c.VMs.Create(ctx, api.CreateVMRequest{SnapshotID: new("pando/debian")})
				return err
			},
			seen{Method: "POST", URI: "/v5/vms", Body: `{"snapshotId":"pando/debian","firewall":{"rules":[]}}`},
		},
		"list": {
			func(ctx context.Context, c *pando.Client) error {
				_, err := c.VMs.List(ctx, pando.VMFilter{
					State: api.StatePaused, Search: "a b", Metadata: map[string]string{"b": "2", "a": "1"}, Limit: 5, Offset: 10,
				})
				return err
			},
			seen{Method: "GET", URI: "/v5/vms?limit=5&metadata=a%3A1%2Cb%3A2&offset=10&search=a+b&state=paused"},
		},
		"get": {
			func(ctx context.Context, c *pando.Client) error { _, err := c.VMs.Get(ctx, "web"); return err },
			seen{Method: "GET", URI: "/v5/vms/web"},
		},
		"start": {
			func(ctx context.Context, c *pando.Client) error { _, err := c.VMs.Start(ctx, "web"); return err },
			seen{Method: "POST", URI: "/v5/vms/web/start", Body: "{}"},
		},
		"pause": {
			func(ctx context.Context, c *pando.Client) error { _, err := c.VMs.Pause(ctx, "web"); return err },
			seen{Method: "POST", URI: "/v5/vms/web/pause", Body: "{}"},
		},
		"stop": {
			func(ctx context.Context, c *pando.Client) error { _, err := c.VMs.Stop(ctx, "web"); return err },
			seen{Method: "POST", URI: "/v5/vms/web/stop", Body: "{}"},
		},
		"fork": {
			func(ctx context.Context, c *pando.Client) error {
				_, err := c.VMs.Fork(ctx, "web", api.ForkVMRequest{Count: new(3), Slug: new("try")})
				return err
			},
			seen{Method: "POST", URI: "/v5/vms/web/fork", Body: `{"count":3,"slug":"try"}`},
		},
		"snapshot": {
			func(ctx context.Context, c *pando.Client) error {
				_, err := c.VMs.Snapshot(ctx, "web", api.CreateSnapshotRequest{})
				return err
			},
			seen{Method: "POST", URI: "/v5/vms/web/snapshot", Body: "{}"},
		},
		"exec": {
			func(ctx context.Context, c *pando.Client) error {
				_, err := c.VMs.Exec(ctx, "web", api.ExecRequest{Command: "cat", Stdin: pando.Stdin([]byte("hi\x00"))})
				return err
			},
			seen{Method: "POST", URI: "/v5/vms/web/exec-await", Body: `{"command":"cat","stdin":"aGkA"}`},
		},
		"delete": {
			func(ctx context.Context, c *pando.Client) error { return c.VMs.Delete(ctx, "web") },
			seen{Method: "DELETE", URI: "/v5/vms/web"},
		},
		"a name with a slash stays one segment": {
			func(ctx context.Context, c *pando.Client) error {
				_, err := c.Snapshots.Get(ctx, "pando/debian")
				return err
			},
			seen{Method: "GET", URI: "/v5/snapshots/pando%2Fdebian"},
		},
		"a name cannot escape": {
			func(ctx context.Context, c *pando.Client) error {
				_, err := c.VMs.Get(ctx, "../status?x#y")
				return err
			},
			seen{Method: "GET", URI: "/v5/vms/..%2Fstatus%3Fx%23y"},
		},
		"snapshots": {
			func(ctx context.Context, c *pando.Client) error {
				_, err := c.Snapshots.List(ctx, pando.SnapshotFilter{SourceVMID: "vm-1", Limit: 2})
				return err
			},
			seen{Method: "GET", URI: "/v5/snapshots?limit=2&sourceVmId=vm-1"},
		},
		"delete snapshot": {
			func(ctx context.Context, c *pando.Client) error { return c.Snapshots.Delete(ctx, "base") },
			seen{Method: "DELETE", URI: "/v5/snapshots/base"},
		},
		"images": {
			func(ctx context.Context, c *pando.Client) error { _, err := c.Images.List(ctx); return err },
			seen{Method: "GET", URI: "/v5/images"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, last := daemon(t, http.StatusOK, "{}")
			if err := tt.call(t.Context(), c); err != nil {
				t.Fatalf("call: %v", err)
			}
			tt.want.Auth = "Bearer secret"
			if tt.want.Body != "" {
				tt.want.ContentType = "application/json"
			}
			if diff := cmp.Diff(tt.want, *last); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnswersAreDecoded(t *testing.T) {
	t.Parallel()
	answer, err := json.Marshal(api.ForkVMResponse{
		Forks:   []api.Fork{{VM: &api.VM{ID: "vm-2"}}, {Error: &api.Error{Code: api.CodeConflict, Message: "no memory"}}},
		PauseMs: 31.5,
	})
	if err != nil {
		t.Fatal(err)
	}
	c, _ := daemon(t, http.StatusOK, string(answer))
	got, err := c.VMs.Fork(t.Context(), "vm-1", api.ForkVMRequest{})
	if err != nil {
		t.Fatalf("fork: %v", err)
	}
	if got.PauseMs != 31.5 || got.Forks[0].VM.ID != "vm-2" || got.Forks[1].Error.Code != api.CodeConflict {
		t.Errorf("fork = %+v", got)
	}
}

func TestNoContentIsEnoughForADelete(t *testing.T) {
	t.Parallel()
	c, _ := daemon(t, http.StatusNoContent, "")
	if err := c.VMs.Delete(t.Context(), "vm-1"); err != nil {
		t.Errorf("delete: %v", err)
	}
}

func TestErrorEnvelope(t *testing.T) {
	t.Parallel()
	c, _ := daemon(t, http.StatusConflict, `{"code":"CONFLICT","message":"slug is taken","reason":"slug_taken","field":"slug","remedy":"choose another"}`)
	_, err := c.VMs.Create(t.Context(), api.CreateVMRequest{})
	apiErr, ok := errors.AsType[*api.Error](err)
	if !ok {
		t.Fatalf("error = %v, want an *api.Error", err)
	}
	want := &api.Error{
		Code: api.CodeConflict, Message: "slug is taken", Reason: api.ReasonSlugTaken,
		Field: "slug", Remedy: "choose another", RequestID: "req-1",
	}
	if diff := cmp.Diff(want, apiErr); diff != "" {
		t.Errorf("envelope (-want +got):\n%s", diff)
	}
	if status, ok := errors.AsType[*pando.StatusError](err); !ok || status.Status != http.StatusConflict {
		t.Errorf("error = %v, want a StatusError of 409", err)
	}
}

func TestForeignErrorAnswers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ answer, want string }{
		"text":          {"upstream is down\nmore", "the server answered 502 Bad Gateway: upstream is down"},
		"html":          {"<html>oops</html>", "the server answered 502 Bad Gateway"},
		"empty":         {"", "the server answered 502 Bad Gateway"},
		"other json":    {`{"error":"x"}`, `the server answered 502 Bad Gateway: {"error":"x"}`},
		"invalid utf-8": {"\xff\xfe", "the server answered 502 Bad Gateway: ?"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := daemon(t, http.StatusBadGateway, tt.answer)
			_, err := c.VMs.Get(t.Context(), "vm-1")
			apiErr, ok := errors.AsType[*api.Error](err)
			if !ok || apiErr.Code != pando.CodeUnknown || apiErr.Message != tt.want {
				t.Errorf("error = %v, want %s: %s", err, pando.CodeUnknown, tt.want)
			}
		})
	}
}

func TestAnswerThatIsNotPando(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{"html": "<html>", "empty": "", "cut off": `{"id":"vm-`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := daemon(t, http.StatusOK, answer)
			_, err := c.VMs.Get(t.Context(), "vm-1")
			transport, ok := errors.AsType[*pando.TransportError](err)
			if !ok || transport.Unreached || !strings.Contains(transport.Remedy, "check the address") {
				t.Errorf("error = %#v, want a TransportError with a remedy", err)
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	c := client(t, server)
	server.Close()
	_, err := c.VMs.Get(t.Context(), "vm-1")
	transport, ok := errors.AsType[*pando.TransportError](err)
	if !ok {
		t.Fatalf("error = %v, want a TransportError", err)
	}
	if !transport.Unreached || transport.Remedy != "is the daemon running? start it with: pando serve" {
		t.Errorf("transport error = %+v", transport)
	}
	if !strings.HasPrefix(err.Error(), "cannot reach the daemon at "+server.URL+": ") {
		t.Errorf("message = %q", err)
	}
}

func TestConnectionBreaksInTheMiddle(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(server.Close)
	_, err := client(t, server).VMs.Exec(t.Context(), "vm-1", api.ExecRequest{Command: "true"})
	transport, ok := errors.AsType[*pando.TransportError](err)
	if !ok || transport.Unreached || !strings.Contains(transport.Remedy, "may have been carried out") {
		t.Errorf("error = %#v, want a TransportError that warns of repeating", err)
	}
}

func TestPlainServerBehindHTTPS(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	c, err := pando.New(pando.Options{BaseURL: "https" + strings.TrimPrefix(server.URL, "http"), HTTPClient: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Status(t.Context())
	transport, ok := errors.AsType[*pando.TransportError](err)
	if !ok || !strings.Contains(transport.Remedy, "scheme") {
		t.Errorf("error = %v, want a TransportError about the scheme", err)
	}
}

func TestCancelledContext(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	why := errors.New("the user went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-entered
		cancel(why)
	}()
	_, err := client(t, server).VMs.Get(ctx, "vm-1")
	if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
		t.Errorf("error = %v, want context.Canceled and its cause", err)
	}
}

func TestRefsThatNameNothing(t *testing.T) {
	t.Parallel()
	for _, ref := range []string{"", ".", ".."} {
		c, last := daemon(t, http.StatusOK, "{}")
		err := c.VMs.Delete(t.Context(), ref)
		apiErr, ok := errors.AsType[*api.Error](err)
		if !ok || apiErr.Code != api.CodeBadRequest || apiErr.Field != "ref" {
			t.Errorf("delete %q: error = %v, want BAD_REQUEST for ref", ref, err)
		}
		if last.Method != "" {
			t.Errorf("delete %q reached the daemon: %+v", ref, last)
		}
	}
}

func TestNewChecksTheURL(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"127.0.0.1:7878", "ftp://host", "http://", "http://a b"} {
		if _, err := pando.New(pando.Options{BaseURL: bad}); err == nil {
			t.Errorf("New accepted %q", bad)
		}
	}
	c, err := pando.New(pando.Options{})
	if err != nil || c.BaseURL() != pando.DefaultURL {
		t.Errorf("New() = %v, %v; want the default url", c, err)
	}
}

func TestNoKeySendsNoCredentials(t *testing.T) {
	t.Parallel()
	var auth []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth = r.Header.Values("Authorization")
		_, _ = io.WriteString(w, "{}") // the test reads auth, not the answer
	}))
	t.Cleanup(server.Close)
	c, err := pando.New(pando.Options{BaseURL: server.URL, HTTPClient: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(auth) != 0 {
		t.Errorf("Authorization = %q, want none", auth)
	}
}
