package cli

import (
	"context"
	"time"

	"github.com/pandovm/pando/api"
)

// Images manages the base images in this host's cache.
type Images interface {
	// List returns the whole catalogue, built or not.
	List(ctx context.Context) ([]api.Image, error)
	// Show returns one image by name or alias.
	Show(ctx context.Context, name string) (api.Image, error)
	// Build builds an image, or returns it if it is built. It tells progress what
	// it does and how far that is, in units of its own; total is 0 while nobody
	// knows. Any goroutine may do that, until Build returns.
	Build(ctx context.Context, name string, progress func(step string, done, total int64)) (api.Image, error)
	// Remove deletes a built image from the cache.
	Remove(ctx context.Context, name string) error
}

// CheckStatus is the outcome of one check of the host.
type CheckStatus string

// The outcomes of a check.
const (
	CheckOK CheckStatus = "ok"
	// CheckWarn: VMs run, but less well than they could.
	CheckWarn CheckStatus = "warn"
	// CheckFail: VMs cannot run.
	CheckFail CheckStatus = "fail"
)

// Check is one thing that was looked at on this host.
type Check struct {
	Name   string      `json:"name"`
	Status CheckStatus `json:"status"`
	// Detail says what was found.
	Detail string `json:"detail"`
	// Fix is the command or the change that helps; empty if nothing is wrong.
	Fix string `json:"fix,omitempty"`
}

// DoctorOptions says how thorough the checks are.
type DoctorOptions struct {
	// Quick leaves out the proof: booting a guest.
	Quick bool
}

// Doctor examines this host.
type Doctor interface {
	// Examine runs the checks and reports each as it ends, from one goroutine.
	// An error means that the examination itself failed; a host that cannot run
	// VMs is a check with CheckFail.
	Examine(ctx context.Context, o DoctorOptions, report func(Check)) error
}

// ServeOptions are the choices of the serve command.
type ServeOptions struct {
	// Listen is the TCP address of the API, Data the folder of the daemon.
	Listen, Data string
	// Spares is how many VMs of each base image in use are kept ready.
	Spares int
	// StopVMs stops the VMs with the daemon instead of leaving them running.
	StopVMs bool
	// JSONLog asks for a log of JSON lines.
	JSONLog bool
}

// Deps is what the commands need from the outside. Version, Images, Doctor and
// Serve must be set; the rest has defaults.
type Deps struct {
	// Version is shown by the version command.
	Version string
	Images  Images
	Doctor  Doctor
	// Serve runs the daemon until the context ends.
	Serve func(ctx context.Context, o ServeOptions) error

	// IO defaults to the process's streams.
	IO *IOStreams
	// Getenv defaults to the process's environment.
	Getenv func(string) string
	// DataDir is the default data folder; it defaults to DefaultDataDir.
	DataDir string
	// Now defaults to time.Now.
	Now func() time.Time
	// Patience is how long work may last before it is announced; it defaults to
	// a time in which most calls end, because a flash of text only distracts.
	Patience time.Duration
}
