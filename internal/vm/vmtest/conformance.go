package vmtest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/vm"
)

// Node is a node whose guests can be looked into.
type Node interface {
	vm.Node

	// Exec runs a command in a running VM.
	Exec(ctx context.Context, vmID string, o command.Order) (command.Result, error)
}

// Conformance checks what the Manager relies on, against a node that holds the
// snapshot. Its guests must understand what the Fake's guests understand.
func Conformance(t *testing.T, n Node, snapshotID string) {
	t.Helper()
	for name, check := range map[string]func(*rig){
		"restore":             (*rig).restore,
		"restore of nothing":  (*rig).restoreNothing,
		"fork":                (*rig).fork,
		"fork of a stopped":   (*rig).forkStopped,
		"pause and resume":    (*rig).pauseResume,
		"stop and boot":       (*rig).stopBoot,
		"stop of a paused":    (*rig).stopPaused,
		"snapshot":            (*rig).snapshot,
		"snapshot of paused":  (*rig).snapshotPaused,
		"delete in any state": (*rig).deleteAny,
		"usage":               (*rig).usage,
		"resize":              (*rig).resize,
		"resize of a stopped": (*rig).resizeStopped,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(&rig{T: t, n: n, source: snapshotID})
		})
	}
}

// rig is one case against one node.
type rig struct {
	*testing.T

	n      Node
	source string
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// create restores the rig's snapshot and removes the VM when the case ends.
func (r *rig) create() string {
	r.Helper()
	return r.createFrom(r.source)
}

func (r *rig) createFrom(snapshotID string) string {
	r.Helper()
	id := "vm-" + uuid.NewString()
	_, err := r.n.Restore(r.Context(), vm.Restore{VMID: id, Generation: 1, SnapshotID: snapshotID, Hostname: "h" + id[3:9]})
	r.must(err)
	r.Cleanup(func() { r.must(r.n.Delete(context.WithoutCancel(r.Context()), id)) })
	return id
}

func (r *rig) exec(id, text string) command.Result {
	r.Helper()
	res, err := r.n.Exec(r.Context(), id, command.Order{Command: text, Timeout: time.Minute, MaxOutput: 1 << 20})
	if err != nil {
		r.Fatalf("%s: %v", text, err)
	}
	if res.ExitCode == nil {
		r.Fatalf("%s: no exit code", text)
	}
	return res
}

func (r *rig) write(id, path, text string) {
	r.Helper()
	if res := r.exec(id, fmt.Sprintf("printf %%s %s > %s", text, path)); *res.ExitCode != 0 {
		r.Fatalf("write %s: exit code %d: %s", path, *res.ExitCode, res.Stderr)
	}
}

func (r *rig) wantFile(id, path, text string) {
	r.Helper()
	if res := r.exec(id, "cat "+path); string(res.Stdout) != text {
		r.Fatalf("%s in %s holds %q, want %q", path, id, res.Stdout, text)
	}
}

func (r *rig) wantNoFile(id, path string) {
	r.Helper()
	if res := r.exec(id, "cat "+path); *res.ExitCode == 0 {
		r.Fatalf("%s in %s holds %q, want no file", path, id, res.Stdout)
	}
}

func (r *rig) wantPresence(id string, want vm.Presence) {
	r.Helper()
	got, err := r.n.Presence(r.Context(), id)
	r.must(err)
	if got != want {
		r.Fatalf("presence of %s is %s, want %s", id, got, want)
	}
}

func (r *rig) wantReason(err error, want api.Reason) {
	r.Helper()
	if !fault.HasReason(err, want) {
		r.Fatalf("error is %v, want reason %s", err, want)
	}
}

func (r *rig) restore() {
	id := r.create()
	r.wantPresence(id, vm.PresenceRunning)
	if res := r.exec(id, "exit 7"); *res.ExitCode != 7 {
		r.Fatalf("exit code %d, want 7", *res.ExitCode)
	}
	ids, err := r.n.VMs(r.Context())
	r.must(err)
	if !slices.Contains(ids, id) {
		r.Fatalf("%s is not listed in %v", id, ids)
	}
}

func (r *rig) restoreNothing() {
	id := "vm-" + uuid.NewString()
	_, err := r.n.Restore(r.Context(), vm.Restore{VMID: id, Generation: 1, SnapshotID: "sh-nothing", Hostname: "x"})
	if f := fault.As(err); f == nil || f.Code != api.CodeNotFound {
		r.Fatalf("error is %v, want NOT_FOUND", err)
	}
	r.wantPresence(id, vm.PresenceAbsent)
}

func (r *rig) fork() {
	source := r.create()
	r.write(source, "/var/tmp/root-file", "before")
	r.write(source, volatileDir+"memory", "before")
	children := r.forkOf(source, 2)
	r.write(source, "/var/tmp/root-file", "source")
	r.write(children[0], volatileDir+"memory", "first")
	r.wantFile(source, "/var/tmp/root-file", "source")
	r.wantFile(source, volatileDir+"memory", "before")
	r.wantFile(children[0], "/var/tmp/root-file", "before")
	r.wantFile(children[0], volatileDir+"memory", "first")
	r.must(r.n.Delete(r.Context(), source))
	r.wantFile(children[1], "/var/tmp/root-file", "before")
	r.wantFile(children[1], volatileDir+"memory", "before")
	grandchild := r.forkOf(children[0], 1)[0]
	r.wantFile(grandchild, volatileDir+"memory", "first")
}

func (r *rig) forkOf(source string, count int) []string {
	r.Helper()
	o := vm.Fork{VMID: source}
	ids := make([]string, count)
	for i := range ids {
		ids[i] = "vm-" + uuid.NewString()
		o.Children = append(o.Children, vm.ForkChild{VMID: ids[i], Generation: 1, Hostname: fmt.Sprint("child-", i)})
		r.Cleanup(func() { r.must(r.n.Delete(context.WithoutCancel(r.Context()), ids[i])) })
	}
	res, err := r.n.Fork(r.Context(), o)
	r.must(err)
	for _, c := range res.Children {
		r.must(c.Err)
	}
	return ids
}

func (r *rig) forkStopped() {
	id := r.create()
	r.must(r.n.Stop(r.Context(), id, time.Minute))
	child := "vm-" + uuid.NewString()
	_, err := r.n.Fork(r.Context(), vm.Fork{VMID: id, Children: []vm.ForkChild{{VMID: child, Generation: 1, Hostname: "x"}}})
	r.wantReason(err, api.ReasonWrongState)
	r.wantPresence(child, vm.PresenceAbsent)
}

func (r *rig) pauseResume() {
	id := r.create()
	for i := range 3 {
		mark := fmt.Sprint("mark-", i)
		r.write(id, "/var/tmp/"+mark, mark)
		r.write(id, volatileDir+mark, mark)
		r.must(r.n.Pause(r.Context(), id))
		r.wantPresence(id, vm.PresencePaused)
		_, err := r.n.Exec(r.Context(), id, command.Order{Command: "exit 0", Timeout: time.Minute})
		r.wantReason(err, api.ReasonWrongState)
		_, err = r.n.Resume(r.Context(), id, int64(2+i))
		r.must(err)
	}
	for i := range 3 {
		mark := fmt.Sprint("mark-", i)
		r.wantFile(id, "/var/tmp/"+mark, mark)
		r.wantFile(id, volatileDir+mark, mark)
	}
}

func (r *rig) stopBoot() {
	id := r.create()
	r.write(id, "/var/tmp/root-file", "kept")
	r.write(id, volatileDir+"memory", "lost")
	r.must(r.n.Stop(r.Context(), id, time.Minute))
	r.wantPresence(id, vm.PresenceStopped)
	_, err := r.n.Boot(r.Context(), id, 2)
	r.must(err)
	r.wantFile(id, "/var/tmp/root-file", "kept")
	r.wantNoFile(id, volatileDir+"memory")
}

func (r *rig) stopPaused() {
	id := r.create()
	r.write(id, "/var/tmp/root-file", "kept")
	r.must(r.n.Pause(r.Context(), id))
	r.must(r.n.Stop(r.Context(), id, time.Minute))
	r.wantPresence(id, vm.PresenceStopped)
}

func (r *rig) snapshot() {
	id := r.create()
	r.write(id, "/var/tmp/root-file", "saved")
	snap := r.snapshotOf(id)
	r.write(id, "/var/tmp/root-file", "later")
	first, second := r.createFrom(snap), r.createFrom(snap)
	r.must(r.n.DeleteSnapshot(r.Context(), snap))
	r.write(first, "/var/tmp/root-file", "mine")
	r.wantFile(id, "/var/tmp/root-file", "later")
	r.wantFile(second, "/var/tmp/root-file", "saved")
	r.must(r.n.DeleteSnapshot(r.Context(), snap))
}

func (r *rig) snapshotOf(id string) string {
	r.Helper()
	snap := "sh-" + uuid.NewString()
	_, err := r.n.Snapshot(r.Context(), id, snap)
	r.must(err)
	r.Cleanup(func() { r.must(r.n.DeleteSnapshot(context.WithoutCancel(r.Context()), snap)) })
	r.must(r.n.AwaitDurable(r.Context(), snap))
	return snap
}

func (r *rig) snapshotPaused() {
	id := r.create()
	r.write(id, volatileDir+"memory", "asleep")
	r.must(r.n.Pause(r.Context(), id))
	snap := r.snapshotOf(id)
	r.wantPresence(id, vm.PresencePaused)
	r.must(r.n.Delete(r.Context(), id))
	r.wantFile(r.createFrom(snap), volatileDir+"memory", "asleep")
}

func (r *rig) deleteAny() {
	running, paused, stopped := r.create(), r.create(), r.create()
	r.must(r.n.Pause(r.Context(), paused))
	r.must(r.n.Stop(r.Context(), stopped, time.Minute))
	for _, id := range []string{running, paused, stopped, "vm-unknown", running} {
		r.must(r.n.Delete(r.Context(), id))
		r.wantPresence(id, vm.PresenceAbsent)
	}
}

func (r *rig) usage() {
	id := r.create()
	u, err := r.n.Usage(r.Context(), id)
	r.must(err)
	if u.CPUTime <= 0 || u.MemoryUnique <= 0 || u.MemoryShared <= 0 || u.DiskBytes <= 0 {
		r.Errorf("a vm that runs uses %+v", u)
	}
	r.must(r.n.Pause(r.Context(), id))
	if u, err = r.n.Usage(r.Context(), id); err != nil || u.CPUTime != 0 || u.MemoryUnique != 0 || u.DiskBytes <= 0 {
		r.Errorf("a paused vm uses %+v (%v)", u, err)
	}
	if _, err := r.n.Usage(r.Context(), "vm-nobody"); !isNotFound(err) {
		r.Errorf("usage of no vm: %v", err)
	}
}

func isNotFound(err error) bool {
	f := fault.As(err)
	return f != nil && f.Code == api.CodeNotFound
}

func (r *rig) size(id string) api.Resources {
	r.Helper()
	size, err := r.n.Size(r.Context(), id)
	r.must(err)
	return size
}

func (r *rig) wantSize(id string, want api.Resources) {
	r.Helper()
	if got := r.size(id); got != want {
		r.Fatalf("%s has %+v, want %+v", id, got, want)
	}
}

// resizeTo resizes a VM and checks what is answered.
func (r *rig) resizeTo(id string, want api.Resources) {
	r.Helper()
	got, err := r.n.Resize(r.Context(), id, want)
	r.must(err)
	if got != want {
		r.Fatalf("resize to %+v gave %+v", want, got)
	}
	r.wantSize(id, want)
}

// resize grows a running and a paused VM and looks for the size wherever it must
// go with the VM.
func (r *rig) resize() {
	id := r.create()
	was := r.size(id)
	r.write(id, volatileDir+"memory", "kept")
	larger := api.Resources{CPU: was.CPU + 1, Memory: was.Memory + 128, Storage: was.Storage + 256}
	r.resizeTo(id, larger)
	r.resizeTo(id, larger)
	r.wantFile(id, volatileDir+"memory", "kept")
	r.wantSize(r.forkOf(id, 1)[0], larger)
	r.must(r.n.Pause(r.Context(), id))
	r.wantSize(id, larger)
	largest := api.Resources{CPU: larger.CPU + 1, Memory: larger.Memory + 128, Storage: larger.Storage}
	r.resizeTo(id, largest)
	_, err := r.n.Resize(r.Context(), id, api.Resources{Storage: larger.Storage + 1})
	r.wantReason(err, api.ReasonWrongState)
	snap := r.snapshotOf(id)
	_, err = r.n.Resume(r.Context(), id, 2)
	r.must(err)
	r.wantSize(id, largest)
	made := r.createFrom(snap)
	r.wantSize(made, largest)
	r.wantFile(made, volatileDir+"memory", "kept")
}

func (r *rig) resizeStopped() {
	id := r.create()
	was := r.size(id)
	r.must(r.n.Stop(r.Context(), id, time.Minute))
	r.resizeTo(id, api.Resources{CPU: was.CPU + 1, Memory: was.Memory + 64, Storage: was.Storage})
	_, err := r.n.Boot(r.Context(), id, 2)
	r.must(err)
	r.wantSize(id, api.Resources{CPU: was.CPU + 1, Memory: was.Memory + 64, Storage: was.Storage})
	_, err = r.n.Resize(r.Context(), "vm-unknown", was)
	if f := fault.As(err); f == nil || f.Code != api.CodeNotFound {
		r.Fatalf("error is %v, want NOT_FOUND", err)
	}
}
