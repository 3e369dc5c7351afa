package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/network"
	"github.com/pandovm/pando/internal/operation"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/vm"
)

// VMs are the use cases on VMs; ref is an id or a slug.
type VMs interface {
	Create(ctx context.Context, p vm.CreateParams) (vm.VM, error)
	Get(ctx context.Context, ref string) (vm.VM, error)
	List(ctx context.Context, f vm.Filter) ([]vm.VM, map[api.State]int, error)
	Update(ctx context.Context, ref string, p vm.UpdateParams) (vm.VM, error)
	// Outlook is what the timers will do to a VM.
	Outlook(v vm.VM) vm.Outlook
	Start(ctx context.Context, ref string) (vm.VM, error)
	Pause(ctx context.Context, ref string) (vm.VM, error)
	Stop(ctx context.Context, ref string) (vm.VM, error)
	Delete(ctx context.Context, ref string) error
	Resize(ctx context.Context, ref string, p vm.ResizeParams) (vm.VM, error)
	// Snapshot also returns how long the VM stood still.
	Snapshot(ctx context.Context, ref string, p vm.SnapshotParams) (snapshot.Snapshot, time.Duration, error)
	Fork(ctx context.Context, ref string, p vm.ForkParams) (vm.ForkOutcome, error)
}

// Commands are the use cases on what runs in a VM; ref is the VM's id or slug.
type Commands interface {
	Exec(ctx context.Context, ref string, o command.Order) (command.Result, error)
	Start(ctx context.Context, ref string, o command.Order) (command.Output, error)
	Follow(ctx context.Context, ref string, f command.Follow) (command.Output, error)
	Feed(ctx context.Context, ref string, in command.Input) (command.Info, error)
	Signal(ctx context.Context, ref, execID, signal string) (command.Info, error)
	Get(ctx context.Context, ref, execID string) (command.Info, error)
	List(ctx context.Context, ref string) ([]command.Info, error)
	Forget(ctx context.Context, ref, execID string) error
	Processes(ctx context.Context, ref string) ([]command.Process, error)
	SignalProcess(ctx context.Context, ref string, pid int, signal string) error
}

// Snapshots are the use cases on snapshots; ref is an id or a slug.
type Snapshots interface {
	Get(ctx context.Context, ref string) (snapshot.Snapshot, error)
	List(ctx context.Context, f snapshot.Filter) ([]snapshot.Snapshot, int, error)
	Update(ctx context.Context, ref string, p snapshot.UpdateParams) (snapshot.Snapshot, error)
	Delete(ctx context.Context, ref string) error
}

// Images is the catalogue of base images.
type Images interface {
	List(ctx context.Context) ([]api.Image, error)
}

// Config is what the handler needs; every field but Limits is required.
type Config struct {
	VMs       VMs
	Snapshots Snapshots
	Images    Images
	Stats     Stats
	Files     Files
	Commands  Commands
	Terminals Terminals
	Agents    Agents
	// APIKey is the key that every route except /status and /openapi.json asks for.
	APIKey string
	// Status is the answer of GET /status.
	Status api.Status
	// Network holds the rules of the network.
	Network *network.Service
	// Background and Keys keep what outlives the connection of a request.
	Background *operation.Background
	Keys       *operation.Keys
	// Limits are shown by GET /v5/limits beside those of the API itself.
	Limits []api.Limit
	Now    func() time.Time
	Log    *slog.Logger
}

type server struct {
	vms        VMs
	snapshots  Snapshots
	images     Images
	stats      Stats
	files      Files
	commands   Commands
	terminals  Terminals
	agents     Agents
	keyDigest  [sha256.Size]byte
	status     api.Status
	limits     []api.Limit
	network    *network.Service
	background *operation.Background
	keys       *operation.Keys
	now        func() time.Time
	log        *slog.Logger
	mux        *http.ServeMux
}

// New returns the handler of the whole API. It refuses an empty key: a daemon
// without one would obey everybody.
func New(c Config) (http.Handler, error) {
	if c.APIKey == "" {
		return nil, errors.New("build http api: the api key is empty")
	}
	s := &server{
		vms: c.VMs, snapshots: c.Snapshots, images: c.Images, commands: c.Commands, status: c.Status, limits: c.Limits, network: c.Network,
		background: c.Background, keys: c.Keys,
		stats:     c.Stats,
		files:     c.Files,
		terminals: c.Terminals,
		agents:    c.Agents,
		keyDigest: sha256.Sum256([]byte(c.APIKey)), now: c.Now, log: c.Log, mux: http.NewServeMux(),
	}
	s.mount(s.routes())
	return s, nil
}

// ServeHTTP answers one request. Whatever happens below, the client gets JSON
// and the log gets one line.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := s.newExchange(w, r)
	r = r.WithContext(context.WithValue(r.Context(), idKey{}, e.id))
	defer s.finish(e, r)
	s.serve(e, r)
}
