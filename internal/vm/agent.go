package vm

import (
	"context"
	"fmt"

	"github.com/pandovm/pando/api"
)

// UpgradeAgent replaces the agent in the guest by the one that this daemon has;
// if that is the one it has, nothing happens. A paused VM is resumed for it. While
// commands or terminals run in the guest it is fault CONFLICT with reason
// commands_running, unless force is set: then they go on, cut off from the host.
// If the new agent does not answer, the old one comes back.
func (m *Manager) UpgradeAgent(ctx context.Context, ref string, force bool) (v VM, err error) {
	if v, err = m.Awake(ctx, ref); err != nil {
		return VM{}, err
	}
	err = m.locked(ctx, v.ID, func(ctx context.Context, was VM) error {
		if was.State != api.StateRunning {
			return wrongState(was, "replacing the agent")
		}
		r, err := m.node.UpgradeAgent(ctx, was.ID, force)
		if err != nil {
			return fmt.Errorf("replace agent of vm %s: %w", was.ID, err)
		}
		v, err = m.vms.UpdateVM(ctx, was.ID, func(v *VM) error {
			if v.AgentVersion != r.AgentVersion {
				v.AgentVersion, v.UpdatedAt = r.AgentVersion, m.now()
			}
			return nil
		})
		return err
	})
	return v, err
}
