package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/pandovm/pando/internal/agentbin"
	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/jail"
	"github.com/pandovm/pando/internal/memory"
	"github.com/pandovm/pando/internal/node"
	"github.com/pandovm/pando/internal/qemu"
)

// firstUID is the first of the uids that VMs run under, one each. The range is
// above what distributions give to people, services and user namespaces.
const firstUID = 1_600_000_000

// host is what this machine offers, and the files that VMs need beside their data.
type host struct {
	qemu    qemu.Host
	jail    *jail.Jail
	library string
	agent   string
}

// openHost probes the machine and unpacks the memory library and the agent
// into the cache.
func openHost(ctx context.Context, cache string) (host, error) {
	var h host
	var err error
	if h.qemu, err = qemu.Probe(ctx); err != nil {
		return h, fmt.Errorf("look at this host (pando doctor says more): %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return h, fmt.Errorf("find own program: %w", err)
	}
	groups, err := jail.DetectCgroups()
	if err != nil {
		return h, fmt.Errorf("look at cgroups: %w", err)
	}
	h.jail = jail.New(self, groups)
	lib := filepath.Join(cache, "lib")
	if err := os.MkdirAll(lib, 0o755); err != nil {
		return h, fmt.Errorf("create cache: %w", err)
	}
	if h.library, err = memory.InstallLibrary(lib); err != nil {
		return h, fmt.Errorf("unpack memory library: %w", err)
	}
	h.agent, err = installAgent(lib)
	return h, err
}

// installAgent unpacks the embedded agent.
func installAgent(dir string) (string, error) {
	data, err := agentbin.Read()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "pando-agent")
	f, err := os.CreateTemp(dir, ".agent-*")
	if err != nil {
		return "", fmt.Errorf("unpack agent: %w", err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o755), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("unpack agent: %w", err), os.Remove(f.Name()))
	}
	return path, nil
}

// openNode opens the node of a data folder.
func (h host) openNode(ctx context.Context, dir string, spares int, log *slog.Logger) (*node.Node, error) {
	program, err := agentbin.Read()
	if err != nil {
		return nil, err
	}
	cfg := node.Config{
		Agent: guest.NewAgent(program),
		Dir:   dir, Host: h.qemu, Jail: h.jail, Library: h.library, Spares: spares, Now: time.Now, Log: log,
	}
	if os.Geteuid() == 0 {
		cfg.FirstUID = firstUID
	}
	return node.Open(ctx, cfg)
}
