package vmtest

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/vm"
)

// volatileDir is the folder whose files a guest loses when it stops.
const volatileDir = "/dev/shm/"

// Fake is a node without a host. It is safe for concurrent use.
type Fake struct {
	mu        sync.Mutex
	guests    map[string]*fakeGuest
	snapshots map[string]fakeSaved
	sightings chan vm.Sighting
	// fail makes the next call with that name fail.
	fail map[string]error
}

type fakeGuest struct {
	presence   vm.Presence
	generation int64
	files      map[string]string
	// lost says that it ended unseen.
	lost bool
	size api.Resources
}

type fakeSaved struct {
	files map[string]string
	size  api.Resources
}

func (g *fakeGuest) save() fakeSaved { return fakeSaved{maps.Clone(g.files), g.size} }

func (s fakeSaved) run(generation int64) *fakeGuest {
	return &fakeGuest{presence: vm.PresenceRunning, generation: generation, files: maps.Clone(s.files), size: s.size}
}

var _ Node = (*Fake)(nil)

// NewFake returns a node that holds one snapshot with no files in it, of the
// size of the default image.
func NewFake(snapshotID string) *Fake {
	saved := fakeSaved{map[string]string{}, api.Resources{CPU: 2, Memory: 2048, Storage: 16384}}
	return &Fake{
		guests: map[string]*fakeGuest{}, snapshots: map[string]fakeSaved{snapshotID: saved},
		sightings: make(chan vm.Sighting, 16), fail: map[string]error{},
	}
}

// FailNext makes the next call of the method with that name return err.
func (f *Fake) FailNext(method string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail[method] = err
}

// Crash ends a VM as if its process had been killed.
func (f *Fake) Crash(id string) { f.End(id, vm.CauseCrashed, "qemu was killed (signal 9)") }

// End ends a VM by itself.
func (f *Fake) End(id string, cause vm.Cause, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.guests[id]
	g.stop()
	f.sightings <- vm.Sighting{VMID: id, Generation: g.generation, Presence: vm.PresenceStopped, Cause: cause, Reason: reason}
}

// Lose ends a VM as if its host had gone down with the daemon: nobody is told.
func (f *Fake) Lose(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.guests[id]
	g.stop()
	g.lost = true
}

// enter takes the lock and returns the failure that is due, if any.
func (f *Fake) enter(method string) error {
	f.mu.Lock()
	err := f.fail[method]
	delete(f.fail, method)
	return err
}

func (g *fakeGuest) stop() {
	g.presence = vm.PresenceStopped
	maps.DeleteFunc(g.files, func(path, _ string) bool { return strings.HasPrefix(path, volatileDir) })
}

// guest returns a VM that is present as wanted. The caller holds mu.
func (f *Fake) guest(id string, want ...vm.Presence) (*fakeGuest, error) {
	g := f.guests[id]
	if g == nil {
		return nil, fault.NotFound("vm", id)
	}
	if slices.Contains(want, g.presence) {
		return g, nil
	}
	return nil, fault.Conflict(api.ReasonWrongState, "vm %s is %s", id, g.presence)
}

// Restore implements vm.Node.
func (f *Fake) Restore(_ context.Context, o vm.Restore) (vm.Running, error) {
	err := f.enter("Restore")
	defer f.mu.Unlock()
	saved, ok := f.snapshots[o.SnapshotID]
	if err == nil && !ok {
		err = fault.NotFound("snapshot", o.SnapshotID)
	}
	if err != nil {
		return vm.Running{}, err
	}
	f.guests[o.VMID] = saved.run(o.Generation)
	return fakeRunning(), nil
}

func fakeRunning() vm.Running { return vm.Running{AgentVersion: "fake"} }

// UpgradeAgent implements vm.Node.
func (f *Fake) UpgradeAgent(_ context.Context, id string, _ bool) (vm.Running, error) {
	err := f.enter("UpgradeAgent")
	defer f.mu.Unlock()
	if err == nil {
		_, err = f.guest(id, vm.PresenceRunning)
	}
	return fakeRunning(), err
}

// Resume implements vm.Node.
func (f *Fake) Resume(_ context.Context, id string, generation int64) (vm.Running, error) {
	return f.run("Resume", id, generation, vm.PresencePaused)
}

// Boot implements vm.Node.
func (f *Fake) Boot(_ context.Context, id string, generation int64) (vm.Running, error) {
	return f.run("Boot", id, generation, vm.PresenceStopped)
}

func (f *Fake) run(method, id string, generation int64, from vm.Presence) (vm.Running, error) {
	err := f.enter(method)
	defer f.mu.Unlock()
	if err != nil {
		return vm.Running{}, err
	}
	g, err := f.guest(id, from)
	if err != nil {
		return vm.Running{}, err
	}
	g.presence, g.generation, g.lost = vm.PresenceRunning, generation, false
	return fakeRunning(), nil
}

// Pause implements vm.Node.
func (f *Fake) Pause(_ context.Context, id string) error {
	err := f.enter("Pause")
	defer f.mu.Unlock()
	if err != nil {
		return err
	}
	g, err := f.guest(id, vm.PresenceRunning)
	if err == nil {
		g.presence = vm.PresencePaused
	}
	return err
}

// Stop implements vm.Node.
func (f *Fake) Stop(_ context.Context, id string, _ time.Duration) error {
	err := f.enter("Stop")
	defer f.mu.Unlock()
	if err != nil {
		return err
	}
	g, err := f.guest(id, vm.PresenceRunning, vm.PresencePaused, vm.PresenceStopped)
	if err == nil {
		g.stop()
	}
	return err
}

// Snapshot implements vm.Node.
func (f *Fake) Snapshot(_ context.Context, id, snapshotID string) (vm.Captured, error) {
	err := f.enter("Snapshot")
	defer f.mu.Unlock()
	if err != nil {
		return vm.Captured{}, err
	}
	g, err := f.guest(id, vm.PresenceRunning, vm.PresencePaused)
	if err != nil {
		return vm.Captured{}, err
	}
	f.snapshots[snapshotID] = g.save()
	return vm.Captured{At: time.Now()}, nil
}

// Fork implements vm.Node. FailNext("Child", …) fails the first child alone.
func (f *Fake) Fork(_ context.Context, o vm.Fork) (vm.ForkResult, error) {
	err := f.enter("Fork")
	defer f.mu.Unlock()
	if err != nil {
		return vm.ForkResult{}, err
	}
	g, err := f.guest(o.VMID, vm.PresenceRunning)
	if err != nil {
		return vm.ForkResult{}, err
	}
	res := vm.ForkResult{CapturedAt: time.Now(), Children: make([]vm.ChildResult, len(o.Children))}
	for i, c := range o.Children {
		if err := f.fail["Child"]; err != nil {
			delete(f.fail, "Child")
			res.Children[i].Err = err
			continue
		}
		f.guests[c.VMID] = g.save().run(c.Generation)
		res.Children[i].Running = fakeRunning()
	}
	return res, nil
}

// Exec runs a command. A guest understands "printf %s VALUE > PATH",
// "cat PATH" and "exit N".
func (f *Fake) Exec(_ context.Context, id string, o command.Order) (command.Result, error) {
	err := f.enter("Exec")
	defer f.mu.Unlock()
	if err != nil {
		return command.Result{}, err
	}
	g, err := f.guest(id, vm.PresenceRunning)
	if err != nil {
		return command.Result{}, err
	}
	return g.interpret(o.Command), nil
}

func (g *fakeGuest) interpret(text string) command.Result {
	if w := regexp.MustCompile(`^printf %s (\S+) > (\S+)$`).FindStringSubmatch(text); w != nil {
		g.files[w[2]] = w[1]
		return exited(0, "")
	}
	if c := regexp.MustCompile(`^cat (\S+)$`).FindStringSubmatch(text); c != nil {
		if content, ok := g.files[c[1]]; ok {
			return exited(0, content)
		}
		return exited(1, "")
	}
	if x := regexp.MustCompile(`^exit (\d+)$`).FindStringSubmatch(text); x != nil {
		code, _ := strconv.Atoi(x[1])
		return exited(code, "")
	}
	return exited(127, fmt.Sprintf("the fake guest does not know %q", text))
}

func exited(code int, stdout string) command.Result {
	return command.Result{Stdout: []byte(stdout), StdoutBytes: int64(len(stdout)), ExitCode: &code}
}

// Resize implements vm.Node. FailNext("ResizeMemory", …) fails it after the CPUs.
func (f *Fake) Resize(_ context.Context, id string, want api.Resources) (api.Resources, error) {
	err := f.enter("Resize")
	defer f.mu.Unlock()
	g := f.guests[id]
	if g == nil {
		return api.Resources{}, fault.NotFound("vm", id)
	}
	if err != nil {
		return g.size, err
	}
	if want.Storage > g.size.Storage && g.presence != vm.PresenceRunning {
		return g.size, fault.Conflict(api.ReasonWrongState, "the disk of vm %s cannot grow now", id)
	}
	g.size.CPU = max(g.size.CPU, want.CPU)
	if err := f.fail["ResizeMemory"]; err != nil {
		delete(f.fail, "ResizeMemory")
		return g.size, err
	}
	g.size.Memory, g.size.Storage = max(g.size.Memory, want.Memory), max(g.size.Storage, want.Storage)
	return g.size, nil
}

// Size implements vm.Node.
func (f *Fake) Size(_ context.Context, id string) (api.Resources, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if g := f.guests[id]; g != nil {
		return g.size, nil
	}
	return api.Resources{}, fault.NotFound("vm", id)
}

// Delete implements vm.Node.
func (f *Fake) Delete(_ context.Context, id string) error {
	err := f.enter("Delete")
	defer f.mu.Unlock()
	if err == nil {
		delete(f.guests, id)
	}
	return err
}

// AwaitDurable implements vm.Node.
func (f *Fake) AwaitDurable(_ context.Context, id string) error {
	err := f.enter("AwaitDurable")
	defer f.mu.Unlock()
	if _, ok := f.snapshots[id]; err == nil && !ok {
		err = fault.NotFound("snapshot", id)
	}
	return err
}

// DeleteSnapshot implements vm.Node.
func (f *Fake) DeleteSnapshot(_ context.Context, id string) error {
	err := f.enter("DeleteSnapshot")
	defer f.mu.Unlock()
	if err == nil {
		delete(f.snapshots, id)
	}
	return err
}

// Usage implements vm.Node. Every guest that runs uses the same.
func (f *Fake) Usage(_ context.Context, id string) (vm.Usage, error) {
	err := f.enter("Usage")
	defer f.mu.Unlock()
	g := f.guests[id]
	switch {
	case err != nil:
		return vm.Usage{}, err
	case g == nil:
		return vm.Usage{}, fault.NotFound("vm", id)
	case g.presence != vm.PresenceRunning:
		return vm.Usage{DiskBytes: 4096}, nil
	default:
		return vm.Usage{CPUTime: time.Second, MemoryShared: 2 << 20, MemoryUnique: 1 << 20, DiskBytes: 4096}, nil
	}
}

// Presence implements vm.Node.
func (f *Fake) Presence(_ context.Context, id string) (vm.Presence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if g := f.guests[id]; g != nil {
		if g.lost {
			return vm.PresenceCrashed, nil
		}
		return g.presence, nil
	}
	return vm.PresenceAbsent, nil
}

// VMs implements vm.Node.
func (f *Fake) VMs(context.Context) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	for id := range f.guests {
		ids = append(ids, id)
	}
	return ids, nil
}

// Snapshots implements vm.Node.
func (f *Fake) Snapshots(context.Context) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	for id := range f.snapshots {
		ids = append(ids, id)
	}
	return ids, nil
}

// Sightings implements vm.Node.
func (f *Fake) Sightings() <-chan vm.Sighting { return f.sightings }
