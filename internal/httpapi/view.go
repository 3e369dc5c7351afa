package httpapi

import (
	"context"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/field"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/vm"
)

// viewVM is the VM object of one VM.
func (s *server) viewVM(ctx context.Context, v vm.VM) (api.VM, error) {
	list, err := s.viewVMs(ctx, []vm.VM{v})
	if err != nil {
		return api.VM{}, err
	}
	return list[0], nil
}

// viewVMs is the VM objects of several VMs. Slug and name of the snapshots
// that they were made from are those of this moment.
func (s *server) viewVMs(ctx context.Context, vms []vm.VM) ([]api.VM, error) {
	sources, err := s.sources(ctx, vms)
	if err != nil {
		return nil, err
	}
	list := make([]api.VM, 0, len(vms))
	for _, v := range vms {
		out := s.vmObject(v)
		s.addTimers(&out, v)
		if source, ok := sources[v.SnapshotID]; ok {
			out.SourceSnapshotSlug, out.SourceSnapshotDisplayName = orNull(source.Slug), orNull(source.DisplayName)
		}
		list = append(list, out)
	}
	return list, nil
}

// sources looks each snapshot up once; those that are gone are left out.
func (s *server) sources(ctx context.Context, vms []vm.VM) (map[string]snapshot.Snapshot, error) {
	found, asked := map[string]snapshot.Snapshot{}, map[string]bool{"": true}
	for _, v := range vms {
		if asked[v.SnapshotID] {
			continue
		}
		asked[v.SnapshotID] = true
		source, err := s.snapshots.Get(ctx, v.SnapshotID)
		if f := fault.As(err); f != nil && f.Code == api.CodeNotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		found[v.SnapshotID] = source
	}
	return found, nil
}

func (s *server) vmObject(v vm.VM) api.VM {
	out := api.VM{
		ID: v.ID, State: v.State, StateReason: v.StateReason, Slug: orNull(v.Slug), DisplayName: orNull(v.DisplayName),
		Resources: v.Resources, SnapshotID: orNull(v.SnapshotID), SourceSnapshotSlugAtCreate: orNull(v.SnapshotSlug),
		Image: orNull(v.Image), ParentVMID: orNull(v.ParentID), Ancestry: v.Ancestry, ForkedAt: timeOrNull(v.ForkedAt),
		Generation: v.Generation, TotalRunSeconds: int64(v.TotalRunTime(s.now()) / time.Second), Metadata: v.Metadata,
		AutomaticRestart: v.AutomaticRestart, Placement: placementObject(v.Placement),
		// Clients map over the two network lists without asking whether they are there.
		Networks: []api.VMNetwork{}, VPCs: []api.VMNetwork{},
		AgentVersion: v.AgentVersion, CreatedAt: v.CreatedAt.UTC(), UpdatedAt: v.UpdatedAt.UTC(),
	}
	if out.Ancestry == nil {
		out.Ancestry = []string{}
	}
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	return out
}

// addTimers fills in what bounds the VM's life and what will come of it.
func (s *server) addTimers(out *api.VM, v vm.VM) {
	t := v.Timers
	out.IdleTimeoutSeconds, out.AutoDeleteSeconds, out.TTLSeconds = field.Seconds(t.Idle), field.Seconds(t.AutoDelete), field.Seconds(t.TTL)
	out.MaxRunSeconds, out.MaxRunTotalSeconds = field.Seconds(t.MaxRun), field.Seconds(t.MaxRunTotal)
	next := s.vms.Outlook(v)
	out.NextPauseAt, out.NextPauseReason = timeOrNull(next.Pause.At), orNull(next.Pause.Timer)
	out.NextDeleteAt, out.NextDeleteReason = timeOrNull(next.Delete.At), orNull(next.Delete.Timer)
}

// placementObject is null for a VM that asked for nothing.
func placementObject(rules []vm.AntiAffinity) *api.Placement {
	if len(rules) == 0 {
		return nil
	}
	p := &api.Placement{}
	for _, r := range rules {
		p.AntiAffinity = append(p.AntiAffinity, api.AntiAffinity{Topology: r.Topology, Selector: api.Selector{MatchLabels: r.MatchLabels}})
	}
	return p
}

func snapshotObject(r snapshot.Snapshot) api.Snapshot {
	var account *string
	if r.Public {
		account = new("pando")
	}
	return api.Snapshot{
		AccountID: account, AutoDeleteSeconds: field.Seconds(r.AutoDelete), TTLSeconds: field.Seconds(r.TTL),
		ID: r.ID, SourceVMID: orNull(r.SourceVMID), SourceVMSlug: orNull(r.SourceVMSlug),
		SourceVMDisplayName: orNull(r.SourceVMDisplayName), Slug: orNull(r.Slug), DisplayName: orNull(r.DisplayName),
		Public: r.Public, Resources: r.Resources, Image: orNull(r.Image), Durable: r.Durable, Bytes: r.Bytes,
		LastUsedAt: timeOrNull(r.LastUsedAt), CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// orZero reads an optional field.
func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
