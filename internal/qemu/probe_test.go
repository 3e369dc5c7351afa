package qemu_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandovm/pando/internal/qemu"
)

func TestProbeThisHost(t *testing.T) {
	t.Parallel()
	host, err := qemu.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !filepath.IsAbs(host.Binary) || !qemu.AtLeast(host.Version, qemu.MinMajor, qemu.MinMinor) {
		t.Errorf("binary %s, version %s", host.Binary, host.Version)
	}
	if host.MachineType == "pc" || !strings.HasPrefix(host.MachineType, "pc-") || host.CPUModel != qemu.BaselineCPU {
		t.Errorf("machine type %s, cpu %s", host.MachineType, host.CPUModel)
	}
	if host.KVMReason == "" {
		t.Error("no reason for the accelerator")
	}
}

func TestLayoutFollowsTheMachine(t *testing.T) {
	t.Parallel()
	host := qemu.Host{Version: "7.2.22", MachineType: "pc-i440fx-7.2", Accel: qemu.AccelTCG, CPUModel: "Nehalem"}
	same, newer, kvm := host, host, host
	newer.Version, kvm.Accel = "7.2.23", qemu.AccelKVM
	if host.Layout() != same.Layout() || host.Layout() == newer.Layout() || host.Layout() == kvm.Layout() {
		t.Errorf("layouts %s, %s, %s, %s", host.Layout(), same.Layout(), newer.Layout(), kvm.Layout())
	}
}

func TestProbeWithoutQEMU(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := qemu.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), qemu.Binary) {
		t.Errorf("err = %v", err)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for out, want := range map[string][2]string{
		"QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright (c) 2003-2022": {"7.2.22", "Debian 1:7.2+dfsg-7+deb12u18+b3"},
		"QEMU emulator version 8.2\n":      {"8.2", ""},
		"QEMU emulator version 10.0.0-rc1": {"10.0.0", ""},
	} {
		version, pkg, err := qemu.ParseVersion(out)
		if err != nil || version != want[0] || pkg != want[1] {
			t.Errorf("%q: %q, %q, %v", out, version, pkg, err)
		}
	}
	for _, out := range []string{"", "qemu-img version 7.2", "QEMU emulator version seven"} {
		if _, _, err := qemu.ParseVersion(out); err == nil {
			t.Errorf("%q was accepted", out)
		}
	}
	for version, want := range map[string]bool{
		"7.2.22": true, "7.2": true, "7.10.0": true, "8.0.0": true, "10.1": true,
		"7.1.9": false, "6.9": false, "7": false, "": false, "x.y": false,
	} {
		if got := qemu.AtLeast(version, 7, 2); got != want {
			t.Errorf("AtLeast(%q) = %v", version, got)
		}
	}
}

func TestMachineTypeBehindTheAlias(t *testing.T) {
	t.Parallel()
	for help, want := range map[string]string{
		`Supported machines are:
microvm              microvm (i386)
pc                   Standard PC (i440FX + PIIX, 1996) (alias of pc-i440fx-7.2)
pc-i440fx-7.2        Standard PC (i440FX + PIIX, 1996) (default)
q35                  Standard PC (Q35 + ICH9, 2009) (alias of pc-q35-7.2)
`: "pc-i440fx-7.2",
		"ubuntu               Ubuntu 24.04 PC (alias of pc-i440fx-noble)\npc                   Ubuntu 24.04 PC (alias of pc-i440fx-noble)\n": "pc-i440fx-noble",
		"none                 empty machine\npcx  (alias of x)\n":                                                                            "",
	} {
		got, err := qemu.ParseMachineType(help)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", help, got, err)
		}
	}
}

// fakeHost makes a root folder with the given files.
func fakeHost(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestKVMIsChosenOnlyWithHardwareBehindIt(t *testing.T) {
	t.Parallel()
	const plain = "processor : 0\nflags\t\t: fpu vme svmx\n"
	const intel = "processor : 0\nflags\t\t: fpu vmx sse2\n"
	for want, files := range map[string]map[string]string{
		"neither vmx nor svm":               {"proc/cpuinfo": plain, "dev/kvm": ""},
		"nor svm and neither":               {},
		"has vmx, but":                      {"proc/cpuinfo": intel},
		"does not answer as KVM":            {"proc/cpuinfo": intel, "dev/kvm": ""},
		"the module kvm_amd is loaded, but": {"proc/cpuinfo": plain, "sys/module/kvm_amd/refcnt": "0"},
	} {
		accel, why := qemu.ChooseAccel(fakeHost(t, files))
		if accel != qemu.AccelTCG || !strings.Contains(why, want) {
			t.Errorf("%v: %s, %q, want %q", files, accel, why, want)
		}
	}
}
