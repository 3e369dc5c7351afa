package httpapi

import (
	"context"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/vm"
)

func (s *server) lifecycleRoutes() []route {
	changes := []api.Code{api.CodeBadRequest, api.CodeNotFound, api.CodeConflict, api.CodeVMNonResponsive, api.CodeUnavailable}
	return []route{
		handle(Operation{
			Method: "POST", Path: "/v5/vms/{id}/start", ID: "startVM", Status: 200, Errors: changes,
			Summary:     "Boot a stopped VM or resume a paused one.",
			Description: "Answers once the guest has confirmed its clock and entropy. Starting a running VM changes nothing.",
		}, s.transition(func(ctx context.Context, ref string) (vm.VM, error) { return s.vms.Start(ctx, ref) })),
		handle(Operation{
			Method: "POST", Path: "/v5/vms/{id}/pause", ID: "pauseVM", Status: 200, Errors: changes,
			Summary:     "Save a running VM and end its process.",
			Description: "Memory, devices and disk are kept. If they cannot be saved, the VM goes on running.",
		}, s.transition(func(ctx context.Context, ref string) (vm.VM, error) { return s.vms.Pause(ctx, ref) })),
		handle(Operation{
			Method: "POST", Path: "/v5/vms/{id}/stop", ID: "stopVM", Status: 200, Errors: changes,
			Summary:     "Shut a VM down.",
			Description: "The disk is kept. A paused VM loses its saved memory.",
		}, s.transition(func(ctx context.Context, ref string) (vm.VM, error) { return s.vms.Stop(ctx, ref) })),
		handle(Operation{
			Method: "POST", Path: "/v5/vms/{id}/resize", ID: "resizeVM", Status: 200,
			Errors:  append([]api.Code{api.CodeAgentUnsupported}, changes...),
			Summary: "Make a VM larger.",
			Description: "A running VM has everything when this answers: CPUs and memory are online and the file system has grown. " +
				"CPUs and memory of a paused VM grow when it resumes, those of a stopped one when it boots; a disk grows only while its VM runs. " +
				"Nothing becomes smaller. If it fails half-way, the VM shows what was reached, and the request can be repeated.",
		}, s.resizeVM),
		handleOnce(Operation{
			Method: "POST", Path: "/v5/vms/{id}/fork", ID: "forkVM", Status: 200, Errors: changes,
			Summary: "Fork a running or paused VM into exact running copies.",
			Description: "One capture, then every child continues from that moment. A paused VM stays paused. " +
				"A child that fails has an error in its place; the others are not affected.",
		}, s.forkVM, s.findForks),
		handleOnce(Operation{
			Method: "POST", Path: "/v5/vms/{id}/snapshot", ID: "snapshotVM", Status: 200, Errors: changes,
			Summary:     "Save a running or paused VM as a snapshot.",
			Description: "The VM goes on as it was. The snapshot can be used at once.",
		}, s.snapshotVM, s.findSnapshot),
	}
}

// transition makes a handler of a use case that takes nothing and returns the
// changed VM.
func (s *server) transition(change func(context.Context, string) (vm.VM, error)) func(context.Context, call[none]) (api.VM, error) {
	return func(ctx context.Context, c call[none]) (api.VM, error) {
		v, err := change(ctx, c.ref)
		if err != nil {
			return api.VM{}, err
		}
		return s.viewVM(ctx, v)
	}
}

func (s *server) resizeVM(ctx context.Context, c call[api.ResizeVMRequest]) (api.VM, error) {
	v, err := s.vms.Resize(ctx, c.ref, vm.ResizeParams{CPU: c.body.CPU, Memory: c.body.Memory, Storage: c.body.Storage})
	if err != nil {
		return api.VM{}, err
	}
	return s.viewVM(ctx, v)
}

func (s *server) forkVM(ctx context.Context, c call[api.ForkVMRequest]) (api.ForkVMResponse, error) {
	b := c.body
	out, err := s.vms.Fork(ctx, c.ref, vm.ForkParams{
		Count: forkCount(b), Seed: c.seed, Slug: orZero(b.Slug), DisplayName: orZero(b.DisplayName), Metadata: b.Metadata, Identity: b.Identity,
	})
	if err != nil {
		return api.ForkVMResponse{}, err
	}
	resp := api.ForkVMResponse{Forks: make([]api.Fork, 0, len(out.Children)), PauseMs: milliseconds(out.Pause)}
	for _, child := range out.Children {
		resp.Forks = append(resp.Forks, s.forkObject(ctx, child))
	}
	return resp, nil
}

func forkCount(b api.ForkVMRequest) int {
	if b.Count == nil {
		return 1
	}
	return *b.Count
}

// findForks returns the children of a fork whose daemon was killed before it
// could answer, each in its place.
func (s *server) findForks(ctx context.Context, c call[api.ForkVMRequest]) (api.ForkVMResponse, bool, error) {
	found, resp := false, api.ForkVMResponse{}
	for i := range min(forkCount(c.body), vm.MaxForkChildren) {
		child := vm.ForkedChild{}
		child.VM, child.Err = s.vms.Get(ctx, vm.ID(c.seed, i))
		switch {
		case child.Err == nil:
			found = true
		case notFound(child.Err):
			child.Err = &fault.Error{
				Code: api.CodeUnavailable, Reason: api.ReasonInterrupted, Message: "the daemon was ended before this child was made",
				Remedy: "fork again for more children",
			}
		default:
			return resp, false, child.Err
		}
		resp.Forks = append(resp.Forks, s.forkObject(ctx, child))
	}
	return resp, found, nil
}

func notFound(err error) bool {
	f := fault.As(err)
	return f != nil && f.Code == api.CodeNotFound
}

func (s *server) forkObject(ctx context.Context, child vm.ForkedChild) api.Fork {
	err := child.Err
	if err == nil {
		var v api.VM
		if v, err = s.viewVM(ctx, child.VM); err == nil {
			return api.Fork{VM: &v}
		}
	}
	p := problem(err, exchangeID(ctx))
	return api.Fork{Error: &p}
}

func (s *server) snapshotVM(ctx context.Context, c call[api.CreateSnapshotRequest]) (api.CreateSnapshotResponse, error) {
	b := c.body
	r, pause, err := s.vms.Snapshot(ctx, c.ref, vm.SnapshotParams{
		Slug: orZero(b.Slug), DisplayName: orZero(b.DisplayName), Seed: c.seed,
		AutoDelete: b.AutoDeleteSeconds, TTL: b.TTLSeconds,
	})
	if err != nil {
		return api.CreateSnapshotResponse{}, err
	}
	return snapshotResponse(r, pause), nil
}

func snapshotResponse(r snapshot.Snapshot, pause time.Duration) api.CreateSnapshotResponse {
	return api.CreateSnapshotResponse{
		SnapshotID: r.ID, SourceVMID: r.SourceVMID, Snapshot: snapshotObject(r), PauseMs: milliseconds(pause),
	}
}

// findSnapshot returns the snapshot of a daemon that was killed before it could
// answer.
func (s *server) findSnapshot(ctx context.Context, c call[api.CreateSnapshotRequest]) (api.CreateSnapshotResponse, bool, error) {
	r, err := s.snapshots.Get(ctx, vm.SnapshotID(c.seed))
	if notFound(err) {
		return api.CreateSnapshotResponse{}, false, nil
	}
	return snapshotResponse(r, 0), err == nil, err
}
