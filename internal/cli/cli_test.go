package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/cli"
	"github.com/pandovm/pando/internal/fault"
)

//nolint:gochecknoglobals // flags of the test binary exist once
var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (write it with -update)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// moment is the present of all tests.
func moment() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }

// lab runs commands against a scripted daemon.
type lab struct {
	cli.Deps

	env      map[string]string
	in       string
	out, err bytes.Buffer
}

func newLab(t *testing.T, handler http.Handler) *lab {
	t.Helper()
	l := &lab{env: map[string]string{"PANDO_API_KEY": "secret"}}
	if handler != nil {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		l.env["PANDO_URL"] = server.URL
	}
	l.Deps = cli.Deps{
		Version: "v1.2.3", Images: fakeImages{}, Doctor: fakeDoctor{}, DataDir: "/var/lib/pando",
		Serve:  func(context.Context, cli.ServeOptions) error { return errors.New("not in this test") },
		Getenv: func(key string) string { return l.env[key] }, Now: moment,
	}
	return l
}

// run returns the exit code; the streams are in l.
func (l *lab) run(ctx context.Context, args ...string) int {
	l.out.Reset()
	l.err.Reset()
	if l.IO == nil {
		l.IO = &cli.IOStreams{In: strings.NewReader(l.in), Out: &l.out, Err: &l.err, Width: 80}
	}
	return cli.Run(ctx, l.Deps, args)
}

// transcript is all that a user sees.
func (l *lab) transcript(code int, args []string) string {
	var b strings.Builder
	b.WriteString("$ pando " + strings.Join(args, " ") + "\n" + l.out.String())
	if l.err.Len() > 0 {
		b.WriteString("--- stderr\n" + l.err.String())
	}
	b.WriteString("--- exit " + strconv.Itoa(code) + "\n")
	return b.String()
}

// reply answers with a JSON document, and checks the key.
func reply(t *testing.T, status int, v any) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			status, v = http.StatusUnauthorized, api.Error{Code: api.CodeInvalidAPIKey, Message: "the API key is not valid"}
		}
		w.Header().Set("X-Request-Id", "req-7")
		w.WriteHeader(status)
		if v == nil {
			return
		}
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Errorf("encode answer: %v", err)
		}
	}
}

// record keeps the body of the last request and passes it on to next.
func record(t *testing.T, body *string, next http.Handler) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read request: %v", err)
		}
		*body = string(b)
		next.ServeHTTP(w, r)
	}
}

func exampleVM() api.VM {
	return api.VM{
		ID: "vm-4f1c2a9d0b7e4c55a1d3e6f708192a3b", State: api.StateRunning, Slug: new("web"), DisplayName: new("Web shop"),
		Resources:  api.Resources{CPU: 2, Memory: 2048, Storage: 16384},
		SnapshotID: new("sh-0a1b2c3d4e5f60718293a4b5c6d7e8f9"), Image: new("pando/debian"), Ancestry: []string{},
		Generation: 3, TotalRunSeconds: 3725, AutomaticRestart: true, Metadata: map[string]string{"task": "42", "owner": "ann"},
		Networks: []api.VMNetwork{}, VPCs: []api.VMNetwork{}, AgentVersion: "v1.2.3",
		CreatedAt: moment().Add(-3 * time.Minute), UpdatedAt: moment().Add(-40 * time.Second),
	}
}

func exampleFork(n string) api.VM {
	vm := exampleVM()
	vm.ID = "vm-0000000000000000000000000000000" + n
	vm.Slug, vm.DisplayName, vm.SnapshotID = new("try-"+n), nil, nil
	vm.ParentVMID, vm.Ancestry = new(exampleVM().ID), []string{exampleVM().ID}
	vm.ForkedAt = new(moment().Add(-2 * time.Second))
	vm.CreatedAt = moment()
	return vm
}

func exampleImages() []api.Image {
	return []api.Image{
		{
			Name: "pando/debian", Aliases: []string{"freestyle/ubuntu"}, Default: true,
			Resources: api.Resources{CPU: 2, Memory: 2048, Storage: 16384}, Built: true,
			BuiltAt: new(moment().Add(-50 * time.Hour)), Bytes: 1_234_567_890, Version: "d1e2f3",
		},
		{
			Name: "pando/busybox", Aliases: []string{}, Resources: api.Resources{CPU: 1, Memory: 128, Storage: 1024},
			Version: "a0b1c2",
		},
	}
}

type fakeImages struct{}

func (fakeImages) List(context.Context) ([]api.Image, error) { return exampleImages(), nil }

func (fakeImages) Show(_ context.Context, name string) (api.Image, error) {
	for _, i := range exampleImages() {
		if i.Name == name {
			return i, nil
		}
	}
	return api.Image{}, fault.NotFound("image", name)
}

func (f fakeImages) Build(ctx context.Context, name string, progress func(string, int64, int64)) (api.Image, error) {
	for done := range int64(11) {
		progress("unpacking packages", done, 10)
	}
	progress("booting", 0, 0)
	progress("unpacking packages", 9, 10) // steps may alternate
	progress("booting", 0, 0)
	return f.Show(ctx, name)
}

func (f fakeImages) Remove(ctx context.Context, name string) error {
	_, err := f.Show(ctx, name)
	return err
}

// fakeDoctor reports its checks.
type fakeDoctor []cli.Check

func (d fakeDoctor) Examine(_ context.Context, o cli.DoctorOptions, report func(cli.Check)) error {
	for _, c := range d {
		report(c)
	}
	if !o.Quick {
		report(cli.Check{Name: "guest", Status: cli.CheckOK, Detail: "booted in 3.1 s"})
	}
	return nil
}

func readGolden(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join("testdata", name+".golden"))
}
