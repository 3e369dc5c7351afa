package httpapi_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/pandovm/pando/internal/httpapi"
)

// running is a server over one handler.
type running struct {
	url    string
	stop   context.CancelFunc
	result chan error
}

func serve(t *testing.T, grace time.Duration, h http.HandlerFunc) *running {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	r := &running{url: "http://" + l.Addr().String(), stop: stop, result: make(chan error, 1)}
	go func() { r.result <- httpapi.NewServer(h, slog.New(slog.DiscardHandler), grace).Serve(ctx, l) }()
	t.Cleanup(stop)
	return r
}

// get returns the body of an answer, or an empty string if there was none.
func (r *running) get(t *testing.T) <-chan string {
	t.Helper()
	body := make(chan string, 1)
	go func() {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url, nil)
		if err != nil {
			t.Error(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			body <- ""
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		body <- string(text)
	}()
	return body
}

func TestServerLetsRequestsFinish(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	r := serve(t, time.Hour, func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		_, _ = io.WriteString(w, "finished")
	})
	body := r.get(t)
	<-entered
	r.stop()
	close(release)
	if got := <-body; got != "finished" {
		t.Errorf("got %q", got)
	}
	if err := <-r.result; err != nil {
		t.Error(err)
	}
	if got := <-r.get(t); got != "" {
		t.Errorf("a stopped server answered %q", got)
	}
}

func TestServerCancelsWhatDoesNotFinish(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	r := serve(t, 0, func(w http.ResponseWriter, req *http.Request) {
		close(entered)
		<-req.Context().Done()
		_, _ = io.WriteString(w, "cancelled")
	})
	body := r.get(t)
	<-entered
	r.stop()
	if got := <-body; got != "cancelled" {
		t.Errorf("got %q", got)
	}
	if err := <-r.result; err != nil {
		t.Error(err)
	}
}

func TestServerReportsABrokenListener(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := httpapi.NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler), 0).Serve(t.Context(), l); err == nil {
		t.Error("a closed listener is no error")
	}
}
