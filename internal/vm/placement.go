package vm

import (
	"fmt"

	"github.com/pandovm/pando/internal/fault"
)

// The limits of a placement.
const (
	MaxAntiAffinity = 8
	MaxMatchLabels  = 8
)

// topologyNode is the one topology there is: the host.
const topologyNode = "node"

// AntiAffinity keeps a VM away from hosts on which another VM carries all of
// MatchLabels in its metadata. It is checked when the VM is created, together
// with the insertion of its record; it neither moves VMs nor keeps out later
// ones.
type AntiAffinity struct {
	Topology    string
	MatchLabels map[string]string
}

func checkPlacement(rules []AntiAffinity) error {
	if len(rules) > MaxAntiAffinity {
		return fault.BadField("placement.antiAffinity", "%d rules are more than %d", len(rules), MaxAntiAffinity).Hint("leave some out")
	}
	for i, r := range rules {
		if err := r.check(fmt.Sprintf("placement.antiAffinity[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

func (r AntiAffinity) check(path string) error {
	if r.Topology != topologyNode {
		return fault.BadField(path+".topology", "%.63q is not %q", r.Topology, topologyNode).Hint("use %q", topologyNode)
	}
	labels := path + ".selector.matchLabels"
	if len(r.MatchLabels) < 1 || len(r.MatchLabels) > MaxMatchLabels {
		return fault.BadField(labels, "%d entries are not between 1 and %d", len(r.MatchLabels), MaxMatchLabels).
			Hint("name the metadata of the VMs to keep away from")
	}
	for k, v := range r.MatchLabels {
		if k == "" || len(k) > MaxMetadataLength || len(v) > MaxMetadataLength {
			return fault.BadField(labels, "key %.63q or its value is empty or longer than %d bytes", k, MaxMetadataLength).
				Hint("no metadata can match it")
		}
	}
	return nil
}
