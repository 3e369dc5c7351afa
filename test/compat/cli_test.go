package compat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandovm/pando/internal/testlab"
)

// freestyle is the command line of the reference client, pointed at a lab.
type freestyle struct {
	lab     *testlab.Lab
	node    string
	program string
	home    string
	used    *usage
}

func newFreestyle(t *testing.T) *freestyle {
	t.Helper()
	return &freestyle{
		lab: testlab.New(t), node: node(t), home: t.TempDir(), used: newUsage(),
		program: filepath.Join(client(t), "node_modules", "freestyle", "dist", "cli", "index.js"),
	}
}

// result is what one run of the command line left.
type result struct {
	args           []string
	stdout, stderr string
	code           int
}

// command is a run that has not begun, in a folder of its own: the client reads
// files of settings from the folder and from the home. No variable that would
// make it believe that a program uses it is passed on.
func (f *freestyle) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, f.node, append([]string{f.program}, args...)...)
	cmd.Dir = f.home
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + f.home, "TERM=xterm", "NO_COLOR=1",
		"FREESTYLE_PROXY=" + f.lab.URL, "FREESTYLE_API_KEY=" + f.lab.Key,
	}
	return cmd
}

// run runs it to its end, with stdin.
func (f *freestyle) run(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	cmd := f.command(t.Context(), args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{args, out.String(), problems.String(), cmd.ProcessState.ExitCode()}
}

// ok runs a command that must succeed; only such runs count as covered.
func (f *freestyle) ok(t *testing.T, args ...string) result {
	t.Helper()
	return f.wants(t, 0, args...)
}

// wants runs a command that must end with a code.
func (f *freestyle) wants(t *testing.T, code int, args ...string) result {
	t.Helper()
	r := f.run(t, "", args...)
	if r.code != code {
		t.Fatalf("code %d, want %d: %s", r.code, code, r)
	}
	f.used.add(args)
	return r
}

// json runs a command with --output json and decodes what it printed.
func (f *freestyle) json(t *testing.T, into any, args ...string) {
	t.Helper()
	r := f.ok(t, append([]string{"--output", "json"}, args...)...)
	if err := json.Unmarshal([]byte(r.stdout), into); err != nil {
		t.Fatalf("%v: %s", err, r)
	}
}

// fails runs a command that must fail and say something.
func (f *freestyle) fails(t *testing.T, says string, args ...string) {
	t.Helper()
	r := f.run(t, "", args...)
	if r.code != 1 || !strings.Contains(r.stderr, says) {
		t.Errorf("code %d, want 1 and %q: %s", r.code, says, r)
	}
}

func (r result) String() string {
	return "freestyle " + strings.Join(r.args, " ") + "\n" + r.stdout + r.stderr
}

// wantLines checks that each of the texts is in the output.
func (r result) has(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.stdout, text) {
			t.Errorf("no %q in the output of %s", text, r)
		}
	}
}

// vm and snapshot are what the tests read of the client's JSON.
type vmRecord struct {
	ID, Slug, DisplayName, State, SnapshotID string
	Resources                                struct{ CPU, Memory, Storage int }
	Metadata                                 map[string]string
	IdleTimeoutSeconds, AutoDeleteSeconds    *int
	AutomaticRestart                         bool
	FirewallRules                            []json.RawMessage
}

type snapshotRecord struct {
	ID, Slug, DisplayName, SourceVMID string
	Public                            bool
}

type snapshotMade struct {
	SnapshotID string
	Snapshot   snapshotRecord
}

// create makes a busybox VM and returns its record.
func (f *freestyle) create(t *testing.T, args ...string) vmRecord {
	t.Helper()
	var v vmRecord
	f.json(t, &v, append([]string{"vm", "create", "--no-ssh", "--snapshot-id", "freestyle/busybox"}, args...)...)
	return v
}

// vms lists ids of all VMs.
func (f *freestyle) vms(t *testing.T) []string {
	t.Helper()
	var list struct{ VMs []vmRecord }
	f.json(t, &list, "vm", "list")
	ids := make([]string, len(list.VMs))
	for i, v := range list.VMs {
		ids[i] = v.ID
	}
	return ids
}
