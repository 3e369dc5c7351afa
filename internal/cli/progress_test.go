package cli_test

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/cli"
)

// creating answers a create once the channel is closed.
func creating(t *testing.T, built bool, answer <-chan struct{}, asked func()) http.Handler {
	t.Helper()
	images := exampleImages()
	images[0].Built = built
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v5/images", func(w http.ResponseWriter, r *http.Request) {
		reply(t, http.StatusOK, api.ImageList{Images: images})(w, r)
		asked()
	})
	mux.HandleFunc("POST /v5/vms", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-answer:
			reply(t, http.StatusCreated, exampleVM())(w, r)
		case <-r.Context().Done():
		}
	})
	return mux
}

// watcher closes seen when the text was written.
type watcher struct {
	bytes.Buffer
	text string
	seen chan struct{}
	once sync.Once
}

func (w *watcher) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), w.text) {
		w.once.Do(func() { close(w.seen) })
	}
	return n, err
}

func TestLongCreateExplainsTheBuild(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"pando/debian"}, {"freestyle/ubuntu"}} {
		stderr := &watcher{text: "building image pando/debian, once: this takes some minutes…\n", seen: make(chan struct{})}
		l := newLab(t, creating(t, false, stderr.seen, func() {}))
		l.Patience = time.Millisecond
		l.IO = &cli.IOStreams{In: strings.NewReader(""), Out: &l.out, Err: stderr}
		if code := l.run(t.Context(), append([]string{"vm", "create"}, args...)...); code != 0 {
			t.Fatalf("exit %d: %s", code, stderr)
		}
		if !strings.HasPrefix(stderr.String(), "creating a VM…\n") {
			t.Errorf("create %v: stderr = %q", args, stderr)
		}
	}
}

func TestLongCreateOfABuiltImage(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	l := newLab(t, creating(t, true, asked, sync.OnceFunc(func() { close(asked) })))
	l.Patience = time.Millisecond
	if code := l.run(t.Context(), "vm", "create"); code != 0 {
		t.Fatalf("exit %d: %s", code, l.err.String())
	}
	if got := l.err.String(); got != "creating a VM…\n" {
		t.Errorf("stderr = %q", got)
	}
}

func TestSpinnerOnATerminal(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.IO = &cli.IOStreams{In: strings.NewReader(""), Out: &l.out, Err: &l.err, ErrTerminal: true, Width: 60}
	if code := l.run(t.Context(), "image", "build", "pando/debian"); code != 0 {
		t.Fatalf("exit %d: %s", code, l.err.String())
	}
	if !strings.Contains(l.err.String(), "done: pando/debian: unpacking packages (0.00 s)\n") {
		t.Errorf("stderr = %q", l.err.String())
	}
	if got, want := l.out.String(), "pando/debian is built: 1.1 GiB (0.00 s)\n"; got != want {
		t.Errorf("stdout = %q, want %q", got, want)
	}
}

func TestNoProgressWithJSON(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.Patience = time.Nanosecond
	if code := l.run(t.Context(), "image", "build", "pando/debian", "--json"); code != 0 {
		t.Fatalf("exit %d", code)
	}
	if l.err.Len() > 0 {
		t.Errorf("stderr = %q", l.err.String())
	}
}
