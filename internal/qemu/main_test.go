package qemu_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pandovm/pando/internal/qemu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lab starts real QEMU processes without a guest.
type lab struct {
	dir  string
	host qemu.Host
}

func newLab(t testing.TB) lab {
	t.Helper()
	host, err := qemu.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// t.TempDir names the test, which is too long for a socket's path.
	dir, err := os.MkdirTemp("", "qemu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return lab{dir: dir, host: host}
}

// machine is a small one whose folder is name; it has a disk if there is one.
func (l lab) machine(t testing.TB, name string) qemu.Machine {
	t.Helper()
	dir := filepath.Join(l.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return qemu.Machine{
		ID: "vm-" + name, Dir: dir, CPUs: 1, MemoryMiB: 64,
		Accel: l.host.Accel, CPUModel: l.host.CPUModel, Type: l.host.MachineType, Paused: true,
	}
}

// qcow2 makes an image of 64 MiB and returns its path.
func (l lab) qcow2(t testing.TB, name string, options ...string) string {
	t.Helper()
	path := filepath.Join(l.dir, name)
	run(t, "qemu-img", slices.Concat([]string{"create", "-q", "-f", "qcow2"}, options, []string{path, "64M"})...)
	return path
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// proc is a started QEMU.
type proc struct {
	cmd     *exec.Cmd
	monitor *qemu.Monitor
	log     string
	ended   chan struct{}
	err     error
}

// start runs m and connects to it; the process ends with the test.
func (l lab) start(t testing.TB, m qemu.Machine) *proc {
	t.Helper()
	p := l.spawn(t, m)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var err error
	if p.monitor, err = qemu.Connect(ctx, m.QMPSocket()); err != nil {
		out, _ := os.ReadFile(p.log)
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _ = p.monitor.Close() })
	return p
}

func (l lab) spawn(t testing.TB, m qemu.Machine) *proc {
	t.Helper()
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	p := &proc{log: filepath.Join(m.Dir, "stderr"), ended: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(l.host.Binary, m.Args()...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = m.Env(), out, out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = out.Close()
	go func() { defer close(p.ended); p.err = p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.ended })
	return p
}
