// Command pando-agent is the guest side of Pando: it runs as root in every VM and
// does what the host asks for over a virtio-serial port.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent"
	"github.com/pandovm/pando/internal/agent/process"
	"github.com/pandovm/pando/internal/agent/setup"
	"github.com/pandovm/pando/internal/link"
)

// version is set with -ldflags "-X main.version=…".
var version = link.Version

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		fmt.Println(version)
		return
	}
	withoutPreemption()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(context.Background(), log); err != nil {
		log.Error("agent ends", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, log *slog.Logger) error {
	modest()
	spawner, err := newSpawner()
	if err != nil {
		log.Warn("agent may be killed for want of memory", "error", err)
	}
	port, err := agent.OpenPort(ctx, link.PortName)
	if err != nil {
		return err
	}
	log.Info("agent listens", "version", version)
	return agent.New(agent.Config{
		Port: port, System: &agent.Machine{}, Log: log, Version: version,
		Handlers: setup.Handlers(setup.Parts{Spawner: spawner, Commands: "/var/lib/pando/exec"}),
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
func withoutPreemption() {
	const setting = "asyncpreemptoff=1"
	exe, err := os.Executable()
	if err != nil || os.Getenv("GODEBUG") != "" {
		return
	}
	_ = syscall.Exec(exe, os.Args, append(os.Environ(), "GODEBUG="+setting)) //nolint:gosec // itself; if it fails, go on as we are
}
