package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
	pando "github.com/pandovm/pando/sdk"
)

// The daemon ends, by order or by force; its VMs, paused VMs and snapshots are
// all there when it comes back, and what ran in the guests ran on.
func TestVMsOutliveTheDaemon(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	ctx := t.Context()
	running, paused := l.Create(testlab.Busybox), l.Create(testlab.Busybox)
	l.Run(running.ID, "(while true; do cat /proc/uptime > /dev/shm/alive; sleep 0.1; done) >/dev/null 2>&1 &")
	l.Run(paused.ID, "echo asleep > /dev/shm/memory")
	if _, err := l.Client.VMs.Pause(ctx, paused.ID); err != nil {
		t.Fatal(err)
	}
	snap, err := l.Client.VMs.Snapshot(ctx, running.ID, api.CreateSnapshotRequest{Slug: new("kept")})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the snapshot to be durable", func() bool {
		s, err := l.Client.Snapshots.Get(ctx, snap.SnapshotID)
		return err == nil && s.Durable
	})
	pid := l.QEMU(running.ID)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		l.Restart(sig)
		if got := l.QEMU(running.ID); got != pid {
			t.Fatalf("after %s the vm has process %d, before %d", sig, got, pid)
		}
		l.Run(running.ID, "a=$(cat /dev/shm/alive); while [ \"$(cat /dev/shm/alive)\" = \"$a\" ]; do sleep 0.1; done")
	}
	if _, err := l.Client.VMs.Start(ctx, paused.ID); err != nil {
		t.Fatal(err)
	}
	if got := l.Run(paused.ID, "cat /dev/shm/memory"); got != "asleep\n" {
		t.Errorf("the paused vm holds %q", got)
	}
	l.Create("kept")
	l.Fork(running.ID, 1)
}

func TestStopVMs(t *testing.T) {
	t.Parallel()
	l := testlab.New(t, "--stop-vms")
	v := l.Create(testlab.Busybox)
	l.Run(v.ID, "echo kept > /disk")
	l.Signal(syscall.SIGTERM)
	if p := l.Processes(); len(p) > 0 {
		t.Errorf("processes %v are left", p)
	}
	l.Start()
	got, err := l.Client.VMs.Start(t.Context(), v.ID)
	if err != nil || got.State != api.StateRunning {
		t.Fatalf("start: %v, %+v", err, got)
	}
	if got := l.Run(v.ID, "cat /disk"); got != "kept\n" {
		t.Errorf("the disk holds %q", got)
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	out, err := exec.CommandContext(t.Context(), testlab.Binary(t), "serve", "--listen", "127.0.0.1:0", "--data", l.Data).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "another daemon uses this data folder") {
		t.Errorf("a second daemon on the data folder: %v\n%s", err, out)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	for name, c := range map[string]struct {
		header string
		status int
		code   api.Code
	}{
		"none":   {"", 401, api.CodeMissingCredentials},
		"wrong":  {"Bearer wrong", 401, api.CodeInvalidAPIKey},
		"prefix": {"Bearer " + l.Key[:len(l.Key)-1], 401, api.CodeInvalidAPIKey},
		"right":  {"Bearer " + l.Key, 200, ""},
	} {
		status, body := get(t, l.URL+"/v5/vms", c.header)
		var e api.Error
		if err := json.Unmarshal(body, &e); err != nil {
			t.Fatal(err)
		}
		if status != c.status || e.Code != c.code {
			t.Errorf("%s key: %d %s", name, status, body)
		}
	}
	for _, open := range []string{"/status", "/openapi.json"} {
		if status, body := get(t, l.URL+open, ""); status != 200 || !json.Valid(body) {
			t.Errorf("GET %s without a key: %d %.100s", open, status, body)
		}
	}
}

func get(t *testing.T, url, authorization string) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

// Without PANDO_API_KEY the first start makes a key that only the owner can read.
func TestKeyFile(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	l.Signal(syscall.SIGTERM)
	l.Key = ""
	l.Start()
	path := filepath.Join(l.Data, "api-key")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the key file has mode %v", info.Mode())
	}
	key, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Key = strings.TrimSpace(string(key))
	if l.Client, err = pando.New(pando.Options{BaseURL: l.URL, APIKey: l.Key}); err != nil {
		t.Fatal(err)
	}
	l.Create(testlab.Busybox)
	log, err := os.ReadFile(filepath.Join(l.Data, "daemon.log"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), path) || strings.Contains(string(log), l.Key) {
		t.Errorf("the log must name the key file and not the key:\n%s", log)
	}
}
