// Package testlab runs a real daemon with real VMs for tests: bin/pando as
// built, on a port of its own, with a data folder of its own, driven through
// the SDK. It builds nothing and fakes nothing; what is missing fails the test.
//
// Only tests and benchmarks import it.
package testlab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

// Busybox and Debian are the images that the tests use.
const (
	Busybox = "pando/busybox"
	Debian  = "pando/debian"
)

// startDeadline is how long the daemon may take until it serves.
const startDeadline = 2 * time.Minute

// Lab is one daemon and its data folder.
type Lab struct {
	// Client talks to the daemon; it stays valid across restarts.
	Client *pando.Client
	// Data is the daemon's data folder.
	Data string
	// URL and Key are what a client needs.
	URL, Key string

	tb     testing.TB
	binary string
	args   []string
	daemon *exec.Cmd
	listen string
}

// New starts a daemon with a fresh data folder. When the test ends, the daemon
// is stopped with its VMs, and what they leave behind fails the test.
func New(tb testing.TB, args ...string) *Lab {
	tb.Helper()
	return NewIn(tb, DataFolder(tb), args...)
}

// NewIn starts a daemon with a data folder that the caller made.
func NewIn(tb testing.TB, data string, args ...string) *Lab {
	tb.Helper()
	l := &Lab{tb: tb, Data: data, Key: "lab-" + filepath.Base(data), binary: Binary(tb), args: args, listen: "127.0.0.1:0"}
	l.Start()
	c, err := pando.New(pando.Options{BaseURL: l.URL, APIKey: l.Key})
	if err != nil {
		tb.Fatal(err)
	}
	l.Client = c
	tb.Cleanup(l.close)
	return l
}

// Binary is the path of the pando under test.
func Binary(tb testing.TB) string {
	tb.Helper()
	path := os.Getenv("PANDO_BIN")
	if path == "" {
		path = filepath.Join(root(tb), "bin", "pando")
	}
	if _, err := os.Stat(path); err != nil {
		tb.Fatalf("there is no pando to test; run make build: %v", err)
	}
	return path
}

// root is the folder of the checkout.
func root(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	tb.Fatalf("no go.mod above the test: %v", err)
	return ""
}

// ImageFolder is the folder of a base image in the cache.
func ImageFolder(tb testing.TB, name string) string {
	tb.Helper()
	cache := os.Getenv("PANDO_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			tb.Fatal(err)
		}
		cache = filepath.Join(user, "pando")
	}
	found, err := filepath.Glob(filepath.Join(cache, "images", strings.ReplaceAll(name, "/", "_"), "[0-9a-f]*"))
	if err != nil || len(found) != 1 {
		tb.Fatalf("%s is not built (found %v); run make images", name, found)
	}
	return found[0]
}

// DataFolder makes a folder that is on a real disk and has a short path, since
// sockets live in it. It goes when the test ends.
func DataFolder(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "pando-lab-")
	if err != nil {
		tb.Fatal(err)
	}
	// VMs run under other uids, which must be able to pass through.
	if err := os.Chmod(dir, 0o711); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Start starts the daemon and returns when it serves.
func (l *Lab) Start() {
	l.tb.Helper()
	// Without spares, so that what is left after a test is the test's doing.
	args := append([]string{"serve", "--listen", l.listen, "--data", l.Data, "--spares", "0"}, l.args...)
	l.daemon = exec.Command(l.binary, args...)
	l.daemon.Env = append(os.Environ(), "PANDO_API_KEY="+l.Key)
	out, err := l.daemon.StderrPipe()
	if err != nil {
		l.tb.Fatal(err)
	}
	l.daemon.Stdout = l.daemon.Stderr
	if err := l.daemon.Start(); err != nil {
		l.tb.Fatal(err)
	}
	l.awaitListening(out)
}

// awaitListening reads the log up to the line that names the address, and
// passes the rest on to the test's log.
func (l *Lab) awaitListening(out io.Reader) {
	l.tb.Helper()
	found := make(chan string, 1)
	log := filepath.Join(l.Data, "daemon.log")
	go func() { found <- follow(out, log, found) }()
	select {
	case addr := <-found:
		if addr == "" {
			data, _ := os.ReadFile(log)
			l.tb.Fatalf("the daemon ended before it served:\n%s", data)
		}
		l.listen, l.URL = addr, "http://"+addr
	case <-time.After(startDeadline):
		l.tb.Fatal("the daemon does not serve")
	}
}

// follow copies the daemon's output to a file and sends the address once. It
// returns "" when the output ends.
func follow(out io.Reader, path string, found chan<- string) string {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		_, _ = fmt.Fprintln(f, lines.Text())
		if _, addr, ok := strings.Cut(lines.Text(), "listening on http://"); ok {
			addr, _, _ = strings.Cut(addr, " ")
			select {
			case found <- strings.Trim(addr, `"`):
			default:
			}
		}
	}
	return ""
}

// Signal sends the daemon a signal and waits until it has ended.
func (l *Lab) Signal(sig syscall.Signal) {
	l.tb.Helper()
	if err := l.daemon.Process.Signal(sig); err != nil {
		l.tb.Fatal(err)
	}
	_ = l.daemon.Wait() // a daemon that was killed reports just that
	l.daemon = nil
}

// Restart ends the daemon with a signal and starts it again on the same data.
func (l *Lab) Restart(sig syscall.Signal) {
	l.tb.Helper()
	l.Signal(sig)
	l.Start()
}

// close removes every VM, stops the daemon and checks that nothing is left.
func (l *Lab) close() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.tb.Context()), 2*time.Minute)
	defer cancel()
	if l.daemon == nil {
		l.Start()
	}
	l.removeAll(ctx)
	l.wantNothingLeft()
	l.Signal(syscall.SIGTERM)
	if l.tb.Failed() {
		log, _ := os.ReadFile(filepath.Join(l.Data, "daemon.log"))
		l.tb.Logf("the daemon's log:\n%s", log[max(0, len(log)-16<<10):])
	}
}

func (l *Lab) removeAll(ctx context.Context) {
	l.tb.Helper()
	vms, err := l.Client.VMs.List(ctx, pando.VMFilter{})
	if err != nil {
		l.tb.Error(err)
	}
	for _, v := range vms.VMs {
		if err := l.Client.VMs.Delete(ctx, v.ID); err != nil {
			l.tb.Error(err)
		}
	}
	snapshots, err := l.Client.Snapshots.List(ctx, pando.SnapshotFilter{})
	if err != nil {
		l.tb.Error(err)
	}
	for _, s := range snapshots.Snapshots {
		if err := l.Client.Snapshots.Delete(ctx, s.ID); err != nil {
			l.tb.Error(err)
		}
	}
}

// wantNothingLeft checks that deleted VMs have left no process, folder or layer.
func (l *Lab) wantNothingLeft() {
	l.tb.Helper()
	if p := l.Processes(); len(p) > 0 {
		l.tb.Errorf("processes %v are left", p)
	}
	if left := l.entries("vms"); len(left) > 0 {
		l.tb.Errorf("vm folders %v are left", left)
	}
	if held, have := l.imageLayers(), l.entries("layers"); len(have) > held {
		l.tb.Errorf("%d layers are left, the images need %d: %v", len(have), held, have)
	}
}

func (l *Lab) entries(dir string) []string {
	l.tb.Helper()
	entries, err := os.ReadDir(filepath.Join(l.Data, dir))
	if err != nil {
		l.tb.Error(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// imageLayers counts the layers that the remaining snapshots, all of them base
// images, name.
func (l *Lab) imageLayers() int {
	ids := map[string]bool{}
	for _, name := range l.entries("snapshots") {
		data, err := os.ReadFile(filepath.Join(l.Data, "snapshots", name))
		if err != nil {
			l.tb.Error(err)
		}
		for part := range strings.SplitSeq(string(data), `"`) {
			if strings.HasPrefix(part, "ly-") {
				ids[part] = true
			}
		}
	}
	return len(ids)
}

// Processes lists the pids of the QEMU processes of this lab.
func (l *Lab) Processes() []int {
	l.tb.Helper()
	return processesOf(l.Data)
}

// QEMU returns the pid of a VM's QEMU.
func (l *Lab) QEMU(vm string) int {
	l.tb.Helper()
	pids := processesOf(l.Home(vm) + "/")
	if len(pids) != 1 {
		l.tb.Fatalf("vm %s has processes %v, want one", vm, pids)
	}
	return pids[0]
}

// Create makes a VM or fails the test.
func (l *Lab) Create(image string) api.VM {
	l.tb.Helper()
	return l.CreateWith(api.CreateVMRequest{SnapshotID: &image})
}

// CreateWith makes a VM as asked, with no firewall rules.
func (l *Lab) CreateWith(r api.CreateVMRequest) api.VM {
	l.tb.Helper()
	r.Firewall = &api.Firewall{Rules: []api.FirewallRuleRequest{}}
	v, err := l.Client.VMs.Create(l.tb.Context(), r)
	if err != nil {
		l.tb.Fatal(err)
	}
	return v
}

// Get returns a VM as it is now.
func (l *Lab) Get(vm string) api.VM {
	l.tb.Helper()
	v, err := l.Client.VMs.Get(l.tb.Context(), vm)
	if err != nil {
		l.tb.Fatalf("get vm: %v", err)
	}
	return v
}

// Fork makes children or fails the test.
func (l *Lab) Fork(vm string, count int) []api.VM {
	l.tb.Helper()
	res, err := l.Client.VMs.Fork(l.tb.Context(), vm, api.ForkVMRequest{Count: &count})
	if err != nil {
		l.tb.Fatal(err)
	}
	children := make([]api.VM, len(res.Forks))
	for i, f := range res.Forks {
		if f.Error != nil {
			l.tb.Fatalf("child %d: %v", i, f.Error)
		}
		children[i] = *f.VM
	}
	return children
}

// Run runs a command as root and returns what it printed; a command that fails
// fails the test.
func (l *Lab) Run(vm, command string) string {
	l.tb.Helper()
	return l.RunInput(vm, command, nil)
}

// RunInput is Run with bytes on standard input.
func (l *Lab) RunInput(vm, command string, stdin []byte) string {
	l.tb.Helper()
	root, patience := "root", int64(2*time.Minute/time.Millisecond)
	r := api.ExecRequest{Command: command, LinuxUser: &root, TimeoutMs: &patience}
	if stdin != nil {
		r.Stdin = pando.Stdin(stdin)
	}
	res, err := l.Client.VMs.Exec(l.tb.Context(), vm, r)
	if err != nil {
		l.tb.Fatalf("%s: %v", command, err)
	}
	if res.StatusCode == nil || *res.StatusCode != 0 {
		l.tb.Fatalf("%s: it failed: %+v", command, res)
	}
	return res.Stdout
}
