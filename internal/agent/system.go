package agent

import (
	"context"
	"time"

	"github.com/pandovm/pando/internal/link"
)

// System is what the agent changes, and asks, about the machine it runs on.
// Implementations are safe for concurrent use.
type System interface {
	// Now reads the wall clock and SetClock sets it.
	Now() time.Time
	SetClock(t time.Time) error
	// Reseed mixes entropy into the kernel's random generator and makes it
	// forget what it had prepared.
	Reseed(entropy []byte) error
	// SetIdentity makes the machine be id; empty parts stay as they are.
	SetIdentity(id *link.Identity) error
	// KernelRelease is what uname -r prints.
	KernelRelease() string
	// Sync writes all file systems out.
	Sync()
	// Settled tells whether the machine has finished booting, the init system's
	// word for its state, and the units that failed. It may wait some seconds
	// for that.
	Settled(ctx context.Context) (settled bool, state string, failed []string, err error)
	// Poweroff shuts the machine down, and may return before it is down.
	Poweroff(ctx context.Context) error
}
