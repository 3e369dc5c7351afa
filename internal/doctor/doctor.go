package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pandovm/pando/internal/jail"
	"github.com/pandovm/pando/internal/qemu"
)

// Result is what a check came to.
type Result string

// The results.
const (
	// OK: as it should be.
	OK Result = "ok"
	// Warn: Pando works, with less than it could have.
	Warn Result = "warn"
	// Fail: Pando does not work before this is mended.
	Fail Result = "fail"
)

// Check is one thing that was looked at.
type Check struct {
	// Name is stable, for example "qemu".
	Name   string `json:"name"`
	Result Result `json:"result"`
	// Seen is what was found, for a person.
	Seen string `json:"seen"`
	// Fix is a command, or a sentence where no command helps; empty if OK.
	Fix string `json:"fix,omitempty"`
}

// Report is the whole examination, in the order in which it was done.
type Report struct {
	Checks []Check `json:"checks"`
}

// OK reports whether nothing failed. Warnings do not count.
func (r Report) OK() bool {
	for _, check := range r.Checks {
		if check.Result == Fail {
			return false
		}
	}
	return true
}

// Options says what to examine.
type Options struct {
	// DataDir and CacheDir need not exist yet: then the folder that would hold
	// them is examined.
	DataDir, CacheDir string
	// Cgroups is what the daemon would use.
	Cgroups jail.Cgroups
	// Probe asks QEMU; qemu.Probe except in tests.
	Probe func(context.Context) (qemu.Host, error)
	// Boot starts a guest, runs a command in it and says what it saw. It is the
	// proof that the rest only makes likely; nil leaves it out.
	Boot func(context.Context) (seen string, err error)
	// Seen is told of each check as soon as it is done; may be nil.
	Seen func(Check)
}

// examination is one run.
type examination struct {
	Options
	root string // "/" except in tests
}

// Examine runs all checks, one after the other. Boot is tried only if nothing
// has failed before. The context bounds the whole.
func Examine(ctx context.Context, o Options) Report {
	e := &examination{Options: o, root: "/"}
	if e.Probe == nil {
		e.Probe = qemu.Probe
	}
	return e.run(ctx)
}

func (e *examination) run(ctx context.Context) Report {
	var r Report
	for _, check := range e.checks() {
		c := check(ctx)
		r.Checks = append(r.Checks, c)
		if e.Seen != nil {
			e.Seen(c)
		}
	}
	if e.Boot != nil {
		c := e.boot(ctx, r.OK())
		r.Checks = append(r.Checks, c)
		if e.Seen != nil {
			e.Seen(c)
		}
	}
	return r
}

func (e *examination) checks() []func(context.Context) Check {
	return []func(context.Context) Check{
		e.qemu, e.qemuImg, e.mmdebstrap, e.e2fsprogs,
		e.acceleration, e.nested,
		e.privileges, e.network, e.cgroups,
		e.memory, e.mappings, e.pageSize,
		func(context.Context) Check { return e.disk("data disk", e.DataDir) },
		func(context.Context) Check { return e.disk("cache disk", e.CacheDir) },
	}
}

// boot is the proof by running a guest.
func (e *examination) boot(ctx context.Context, sound bool) Check {
	const name = "guest"
	if !sound {
		return Check{name, Fail, "not tried: something above failed", "mend what failed above, then run: pando doctor"}
	}
	begin := time.Now()
	seen, err := e.Boot(ctx)
	if err != nil {
		return Check{name, Fail, err.Error(), "read the VM's serial log; report it if all other checks are ok"}
	}
	return Check{name, OK, fmt.Sprintf("%s (%.1f s)", seen, time.Since(begin).Seconds()), ""}
}

// existing is path, or the nearest folder above that exists.
func existing(path string) string {
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
	}
}
