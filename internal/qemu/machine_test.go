package qemu_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/internal/qemu"
)

var update = flag.Bool("update", false, "rewrite the golden files") //nolint:gochecknoglobals // how flags of tests are made

func fullMachine() qemu.Machine {
	return qemu.Machine{
		ID: "vm-1", Dir: "/data/vms/vm-1", CPUs: 2, MemoryMiB: 2048, Accel: qemu.AccelTCG, CPUModel: "Nehalem", Type: "pc-i440fx-7.2",
		Kernel: "/data/layers/ly-1", Initrd: "/data/layers/ly-2", Append: "root=/dev/vda rw console=ttyS0,115200",
		Disk: "/data/vms/vm-1/disk-0.qcow2", MemoryLibrary: "/data/lib/cowram.so", Incoming: true,
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	smallest := qemu.Machine{ID: "vm-2", Dir: "/d", CPUs: 1, MemoryMiB: 128, Accel: qemu.AccelKVM, CPUModel: "host", Type: "pc-i440fx-8.0", Paused: true}
	boot := fullMachine()
	boot.Incoming, boot.Initrd = false, ""
	odd := fullMachine()
	odd.Dir, odd.Disk, odd.Append = "/data,a=b/vm", "/data,a=b/vm/disk, one.qcow2", "a,b=c"
	grown := fullMachine()
	grown.CPUs, grown.AddedMemory = 4, true
	for name, m := range map[string]qemu.Machine{"restore": fullMachine(), "grown": grown, "smallest": smallest, "boot": boot, "odd": odd} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := m.Validate(); err != nil {
				t.Error(err)
			}
			golden(t, name, strings.Join(m.Args(), "\n")+"\n\n"+strings.Join(m.Env(), "\n")+"\n")
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (run with -update if this is intended): %s", path, diff)
	}
}

func TestMachineIsChecked(t *testing.T) {
	t.Parallel()
	for want, alter := range map[string]func(*qemu.Machine){
		"machine id \"\"":      func(m *qemu.Machine) { m.ID = "" },
		"machine id \"a,b\"":   func(m *qemu.Machine) { m.ID = "a,b" },
		"machine dir \"data\"": func(m *qemu.Machine) { m.Dir = "data" },
		"too long":             func(m *qemu.Machine) { m.Dir = "/" + strings.Repeat("x", 100) },
		"0 cpus":               func(m *qemu.Machine) { m.CPUs = 0 },
		"0 MiB":                func(m *qemu.Machine) { m.MemoryMiB = 0 },
		"accelerator \"xen\"":  func(m *qemu.Machine) { m.Accel = "xen" },
		"without type":         func(m *qemu.Machine) { m.Type = "" },
		"no kernel":            func(m *qemu.Machine) { m.Kernel = "" },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			m := fullMachine()
			alter(&m)
			if err := m.Validate(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("err = %v, want %q", err, want)
			}
		})
	}
}

func TestDevicesOfTheAccelerator(t *testing.T) {
	t.Parallel()
	m := fullMachine()
	if got := m.Devices(); got != nil {
		t.Errorf("with TCG: %v", got)
	}
	m.Accel = qemu.AccelKVM
	if diff := cmp.Diff([]string{"/dev/kvm"}, m.Devices()); diff != "" {
		t.Error(diff)
	}
}

// TestPathsWithCommas lets QEMU itself read what was quoted.
func TestPathsWithCommas(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.machine(t, "a,id=b, c")
	m.ID = "vm-odd"
	m.Disk = l.qcow2(t, "disk,one.qcow2")
	p := l.start(t, m)
	chain, err := p.monitor.Chain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]qemu.BlockNode{{Name: qemu.DiskNode, File: m.Disk}}, chain); diff != "" {
		t.Error(diff)
	}
	for _, path := range []string{m.QMPSocket(), m.AgentSocket(), m.RAMFile(), m.SerialLog()} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
