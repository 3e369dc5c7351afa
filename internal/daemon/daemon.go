package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/file"
	"github.com/pandovm/pando/internal/httpapi"
	"github.com/pandovm/pando/internal/image"
	"github.com/pandovm/pando/internal/network"
	"github.com/pandovm/pando/internal/node"
	"github.com/pandovm/pando/internal/operation"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/store"
	"github.com/pandovm/pando/internal/terminal"
	"github.com/pandovm/pando/internal/vm"
)

// requestGrace is how long requests under way may take when the daemon ends.
const requestGrace = 10 * time.Second

// Options are the choices of pando serve.
type Options struct {
	// Listen is the TCP address of the API, Data the folder of the daemon, Cache
	// the folder of the base images.
	Listen, Data, Cache string
	// APIKey is what clients must show; empty means the one in Data.
	APIKey string
	// StopVMs stops the VMs with the daemon instead of leaving them running.
	StopVMs bool
	// Spares is how many VMs of each base image in use are kept ready.
	Spares  int
	Version string
	Log     *slog.Logger
}

// Serve runs the daemon until ctx ends. VMs run on unless StopVMs is set.
func Serve(ctx context.Context, o Options) (err error) {
	if err := checkLength(o.Data); err != nil {
		return err
	}
	release, err := lockData(o.Data)
	if err != nil {
		return err
	}
	defer release()
	key, keyPath, err := apiKey(o.APIKey, o.Data)
	if err != nil {
		return err
	}
	p, err := build(ctx, o, key)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close(context.WithoutCancel(ctx), o.StopVMs)) }()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	announce(o.Log, l.Addr(), keyPath)
	return httpapi.NewServer(p.handler, o.Log, requestGrace).Serve(ctx, l)
}

func announce(log *slog.Logger, addr net.Addr, keyPath string) {
	log.Info("listening on http://" + addr.String())
	if keyPath != "" {
		log.Info("clients need the key in " + keyPath)
	}
}

// backgroundGrace is how long work may take whose client was told to ask later.
// It follows after requestGrace.
const backgroundGrace = 5 * time.Second

// process is the wired daemon.
type process struct {
	background *operation.Background
	node       *node.Node
	store      *store.Store
	manager    *vm.Manager
	terminals  *terminal.Service
	handler    http.Handler
	watching   context.CancelFunc
	watched    chan struct{}
}

// build opens and connects everything, and brings records and VMs in line.
func build(ctx context.Context, o Options, key string) (*process, error) {
	h, err := openHost(ctx, o.Cache)
	if err != nil {
		return nil, err
	}
	n, err := h.openNode(ctx, o.Data, o.Spares, o.Log)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(ctx, filepath.Join(o.Data, "pando.db"), time.Now)
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	p := &process{background: operation.NewBackground(), node: n, store: s}
	images := h.imageService(o.Cache, o.Log)
	shelf := image.NewShelf(images, n, s, time.Now)
	rules := network.NewService(s, s, time.Now)
	p.manager = vm.NewManager(vm.Deps{
		VMs: s, Snapshots: s, Journal: s, Node: n, Now: time.Now, Log: o.Log,
		Images: shelf, Rules: rules,
	})
	p.terminals = terminal.NewService(p.manager, n)
	p.handler, err = httpapi.New(httpapi.Config{
		VMs: p.manager, Snapshots: snapshot.NewService(s, n, shelf.Canonical, p.manager.SnapshotChanged), Images: images, APIKey: key,
		Commands: command.NewService(p.manager, n), Terminals: p.terminals,
		Status:     api.Status{Status: "ok", Version: o.Version, Accelerator: string(h.qemu.Accel)},
		Background: p.background, Keys: operation.NewKeys(s, time.Now), Network: rules,
		Stats: p.manager, Agents: p.manager,
		Files: file.NewService(p.manager, n.Files()),
		Now:   time.Now, Log: o.Log,
	})
	if err == nil {
		err = p.manager.Recover(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, p.close(ctx, false))
	}
	p.watch(ctx)
	p.manager.Background(func(ctx context.Context) {
		if err := shelf.Preload(ctx); err != nil && ctx.Err() == nil {
			o.Log.Warn("bring the built images to this host", "error", err)
		}
	})
	return p, nil
}

// watch follows the node's sightings until close.
func (p *process) watch(ctx context.Context) {
	ctx, p.watching = context.WithCancel(context.WithoutCancel(ctx))
	p.watched = make(chan struct{})
	go func() {
		defer close(p.watched)
		p.manager.Watch(ctx)
	}()
}

// close ends the daemon's work; VMs run on unless they are to be stopped.
func (p *process) close(ctx context.Context, stopVMs bool) error {
	grace, cancel := context.WithTimeout(ctx, backgroundGrace)
	defer cancel()
	err := errors.Join(p.terminals.Close(grace), p.background.Close(grace))
	if stopVMs {
		err = errors.Join(err, p.manager.StopAll(ctx))
	}
	if p.watching != nil {
		p.watching()
		<-p.watched
	}
	p.manager.Close()
	return errors.Join(err, p.node.Close(), p.store.Close())
}

// maxDataPath leaves room for the sockets of a VM: the kernel takes addresses
// of at most 107 bytes.
const maxDataPath = 107 - len("/vms/vm-01234567-89ab-cdef-0123-456789abcdef/run/memory.sock")

func checkLength(dir string) error {
	if len(dir) > maxDataPath {
		return fmt.Errorf("the path of the data folder has %d bytes and may have %d; choose a shorter one with --data", len(dir), maxDataPath)
	}
	return nil
}

// lockData keeps a second daemon out of the data folder.
func lockData(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("create data folder: %w", err)
	}
	release, err = lockFile(filepath.Join(dir, "daemon.lock"))
	if errors.Is(err, errLocked) {
		err = fmt.Errorf("another daemon uses this data folder; end it, or choose another folder with --data: %w", err)
	}
	return release, err
}
