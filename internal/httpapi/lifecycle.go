package httpapi

import (
	"context"

	"github.com/pandovm/pando/api"
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
			Method: "POST", Path: "/v5/vms/{id}/fork", ID: "forkVM", Status: 200, Errors: changes,
			Summary: "Fork a running VM into exact running copies.",
			Description: "One capture, then every child continues from that moment. " +
				"A child that fails has an error in its place; the others are not affected.",
		}, s.forkVM),
		handle(Operation{
			Method: "POST", Path: "/v5/vms/{id}/snapshot", ID: "snapshotVM", Status: 200, Errors: changes,
			Summary:     "Save a running or paused VM as a snapshot.",
			Description: "The VM goes on as it was. The snapshot can be used at once.",
			Unsupported: []string{"autoDeleteSeconds", "ttlSeconds"},
		}, s.snapshotVM),
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

func (s *server) forkVM(ctx context.Context, c call[api.ForkVMRequest]) (api.ForkVMResponse, error) {
	b := c.body
	count := 1
	if b.Count != nil {
		count = *b.Count
	}
	out, err := s.vms.Fork(ctx, c.ref, vm.ForkParams{
		Count: count, Slug: orZero(b.Slug), DisplayName: orZero(b.DisplayName), Metadata: b.Metadata, Identity: b.Identity,
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
	r, pause, err := s.vms.Snapshot(ctx, c.ref, vm.SnapshotParams{Slug: orZero(b.Slug), DisplayName: orZero(b.DisplayName)})
	if err != nil {
		return api.CreateSnapshotResponse{}, err
	}
	return api.CreateSnapshotResponse{
		SnapshotID: r.ID, SourceVMID: r.SourceVMID, Snapshot: snapshotObject(r), PauseMs: milliseconds(pause),
	}, nil
}
