package qemu_test

import (
	"testing"

	"github.com/pandovm/pando/internal/qemu"
)

func TestMachineStarts(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.machine(t, "a")
	m.Disk = l.qcow2(t, "a.qcow2")
	p := l.start(t, m)
	status, err := p.monitor.Status(t.Context())
	if err != nil || status != qemu.StatusPrelaunch {
		t.Fatalf("status = %v, %v", status, err)
	}
	top, err := p.monitor.TopNode(t.Context())
	if err != nil || top != qemu.DiskNode {
		t.Fatalf("top = %v, %v", top, err)
	}
	chain, err := p.monitor.Chain(t.Context())
	t.Log(chain, err)
	t.Log(l.host)
}
