// Command pando-agent is the guest side of Pando: it runs as root in every VM and
// does what the host asks for over a virtio-serial port.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent"
	"github.com/pandovm/pando/internal/agent/cgroup"
	"github.com/pandovm/pando/internal/agent/process"
	"github.com/pandovm/pando/internal/agent/setup"
	"github.com/pandovm/pando/internal/agent/upgrade"
	"github.com/pandovm/pando/internal/link"
)

// version may be set with -ldflags "-X main.version=…"; without it, it is made
// from the protocol's and the build's.
var version string

// markPath says that the agent has been replaced and is on trial. It is gone
// after a boot.
const markPath = "/run/pando/agent-on-trial"

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := start(context.Background(), log, os.Args[1:]); err != nil {
		log.Error("agent ends", "error", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, log *slog.Logger, args []string) error {
	if len(args) == 1 && args[0] == "--version" {
		fmt.Println(ownVersion())
		return nil
	}
	file, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	if len(args) == 2 && args[0] == upgrade.GuardFlag {
		return guard(ctx, file, args[1])
	}
	withoutPreemption(file)
	return run(ctx, log, file)
}

// guard is what the old agent does while the new one is on trial.
func guard(ctx context.Context, file, patience string) error {
	d, err := time.ParseDuration(patience)
	if err != nil {
		return fmt.Errorf("read patience: %w", err)
	}
	s := &upgrade.Service{File: strings.TrimSuffix(file, ".old"), Mark: markPath}
	return s.Guard(ctx, d)
}

func ownVersion() string {
	if version != "" {
		return version
	}
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return link.Version
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, link.BuildHead)
	n, _ := io.ReadFull(f, head)
	return link.AgentVersion(head[:n])
}

func run(ctx context.Context, log *slog.Logger, file string) error {
	modest()
	process.ReapInherited()
	spawner, err := newSpawner()
	if err != nil {
		log.Warn("agent may be killed for want of memory", "error", err)
	}
	groups, err := cgroup.Open()
	if err != nil {
		log.Warn("commands share the agent's cgroup", "error", err)
	}
	spawner.Divide(groups)
	port, err := agent.OpenPort(ctx, link.PortName)
	if err != nil {
		return err
	}
	is := ownVersion()
	log.Info("agent listens", "version", is)
	return agent.New(agent.Config{
		Port: port, System: &agent.Machine{}, Log: log, Version: is,
		Handlers: setup.Handlers(setup.Parts{
			Spawner: spawner, Cgroups: groups, Commands: "/var/lib/pando/exec", File: file, Mark: markPath, Takeover: upgrade.Exec(file),
		}),
	}).Serve(ctx)
}

// newSpawner returns a spawner that protects the agent from the OOM killer. With
// an error it returns one that does not.
func newSpawner() (*process.Spawner, error) {
	score, err := os.OpenFile("/proc/self/oom_score_adj", os.O_WRONLY, 0)
	if err != nil {
		score = nil
	}
	s, protectErr := process.NewSpawner(score)
	if protectErr != nil {
		s, _ = process.NewSpawner(nil)
	}
	return s, errors.Join(err, protectErr)
}

// modest keeps the agent small in a guest that belongs to somebody else.
func modest() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(64 << 20)
	syscall.Umask(0o022)
	// The kernel's bound per account would stop an account's next command while
	// the last one forks without end; the cgroups bound each by itself.
	_ = unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	// What init left open is not for the commands; kernels before 5.11 refuse.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	// A log that nobody reads any more must not end the agent. Ignoring the
	// signal would do so too, but children inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	agent.ResideInMemory()
}

// withoutPreemption starts the program again with the runtime's signals to
// running goroutines switched off: in a restored guest the first of them costs
// as much as all of an epoch's own code, and nothing here computes for long. The
// setting can only be made from outside. Commands do not inherit it.
func withoutPreemption(file string) {
	const setting = "asyncpreemptoff=1"
	if os.Getenv("GODEBUG") != "" {
		return
	}
	_ = syscall.Exec(file, os.Args, append(os.Environ(), "GODEBUG="+setting)) //nolint:gosec // itself; if it fails, go on as we are
}
