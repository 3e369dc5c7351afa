// Command pando runs real Linux VMs and forks them live: the daemon and the
// command line in one program.
package main

import (
	"context"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/cli"
	"github.com/pandovm/pando/internal/daemon"
	"github.com/pandovm/pando/internal/jail"
)

// version is set by the build.
var version = "dev"

func main() {
	// The launcher must come first: it runs once per VM start, on the path that
	// people wait for.
	if len(os.Args) > 1 && os.Args[1] == jail.LauncherArg {
		jail.Main(os.Args[2:])
	}
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	return cli.Run(ctx, daemon.Commands(version), os.Args[1:])
}
