package cli_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/cli"
)

func TestKeyComesFromTheDataFolder(t *testing.T) {
	t.Parallel()
	l := newLab(t, reply(t, http.StatusOK, exampleVM()))
	delete(l.env, "PANDO_API_KEY")
	l.DataDir = t.TempDir()
	if err := os.WriteFile(filepath.Join(l.DataDir, "api-key"), []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := l.run(t.Context(), "vm", "get", "web"); code != 0 {
		t.Errorf("exit %d: %s", code, l.err.String())
	}
}

// The key of this host's daemon must not be shown to another host.
func TestLocalKeyStaysLocal(t *testing.T) {
	t.Parallel()
	var auth string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth = r.Header.Get("Authorization")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"code":"MISSING_CREDENTIALS","message":"no API key"}`)
	}))
	t.Cleanup(proxy.Close)
	// 0.0.0.0 reaches this host, but its name does not say so.
	l := newLab(t, nil)
	l.env = map[string]string{"PANDO_URL": strings.Replace(proxy.URL, "127.0.0.1", "0.0.0.0", 1)}
	l.DataDir = t.TempDir()
	if err := os.WriteFile(filepath.Join(l.DataDir, "api-key"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := l.run(t.Context(), "vm", "ls"); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	if auth != "" {
		t.Errorf("the key was sent: %q", auth)
	}
	if got, want := l.err.String(), "pando: no API key\n  fix: set PANDO_API_KEY to the daemon's key\n"; got != want {
		t.Errorf("stderr = %q, want %q", got, want)
	}
}

func TestMissingKeyIsExplained(t *testing.T) {
	t.Parallel()
	l := newLab(t, reply(t, http.StatusOK, nil))
	delete(l.env, "PANDO_API_KEY")
	l.DataDir = filepath.Join(t.TempDir(), "none")
	if code := l.run(t.Context(), "vm", "ls"); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	if !strings.Contains(l.err.String(), filepath.Join(l.DataDir, "api-key")+" cannot be read: no such file or directory") {
		t.Errorf("stderr = %q", l.err.String())
	}
}

func TestNoDaemon(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	l := newLab(t, nil)
	if code := l.run(t.Context(), "--url", server.URL, "vm", "ls"); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	for _, want := range []string{"pando: cannot reach the daemon at " + server.URL, "  fix: is the daemon running? start it with: pando serve\n"} {
		if !strings.Contains(l.err.String(), want) {
			t.Errorf("stderr = %q, want %q in it", l.err.String(), want)
		}
	}
}

func TestBadURL(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.env["PANDO_URL"] = "localhost:7878"
	if code := l.run(t.Context(), "vm", "ls"); code != 2 || !strings.Contains(l.err.String(), "fix: set --url or PANDO_URL") {
		t.Errorf("exit %d, stderr %q", code, l.err.String())
	}
}

func TestDefaultDataDir(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		env  map[string]string
		uid  int
		want string
	}{
		"root":           {map[string]string{"HOME": "/root"}, 0, "/var/lib/pando"},
		"user":           {map[string]string{"HOME": "/home/ann"}, 1000, "/home/ann/.local/share/pando"},
		"xdg":            {map[string]string{"HOME": "/home/ann", "XDG_DATA_HOME": "/data"}, 1000, "/data/pando"},
		"relative xdg":   {map[string]string{"HOME": "/home/ann", "XDG_DATA_HOME": "data"}, 1000, "/home/ann/.local/share/pando"},
		"no home at all": {nil, 1000, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := cli.DefaultDataDir(func(k string) string { return tt.env[k] }, tt.uid); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestBrokenPipeIsAnError(t *testing.T) {
	t.Parallel()
	l := newLab(t, reply(t, http.StatusOK, api.VMList{}))
	l.IO = &cli.IOStreams{In: strings.NewReader(""), Out: brokenPipe{}, Err: &l.err}
	if code := l.run(t.Context(), "vm", "ls"); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }
