package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Binary is the program that runs a VM.
const Binary = "qemu-system-x86_64"

// BaselineCPU is x86-64-v2 without AVX. Under emulation wider vectors are
// slower, and under KVM it lets a snapshot run on any host of the last decade.
const BaselineCPU = "Nehalem"

// HostCPU passes the host's CPU through; KVM only. Its snapshots run on hosts
// with the same CPU.
const HostCPU = "host"

// Oldest supported QEMU.
const (
	MinMajor = 7
	MinMinor = 2
)

// Host is what this host's QEMU can do.
type Host struct {
	// Binary is the program's absolute path.
	Binary string
	// Version is "7.2.22"; Package is the distribution's name for the build.
	Version, Package string
	// Firmware is the BIOS image's path.
	Firmware string
	// MachineType is the versioned type behind the alias "pc".
	MachineType string
	Accel       Accel
	CPUModel    string
	// KVMReason says in one sentence why KVM is used, or why not.
	KVMReason string
}

// Layout identifies the machine that this version builds on this host: two
// machines with equal Layouts, CPUs and memory accept each other's states. It
// changes with every change of a device, so no release has to remember to say so.
func (h Host) Layout() string {
	const nowhere = "/nowhere"
	m := Machine{
		ID: "any", Dir: nowhere, CPUs: 1, MemoryMiB: 1, Accel: h.Accel, CPUModel: h.CPUModel, Type: h.MachineType,
		Firmware: h.Firmware, Disk: nowhere, Kernel: nowhere, Initrd: nowhere, Append: nowhere, Incoming: true, AddedMemory: true,
	}
	sum := sha256.Sum256([]byte(h.Version + "\x00" + strings.Join(m.Args(), "\x00")))
	return hex.EncodeToString(sum[:8])
}

// Probe finds QEMU and asks it and the kernel what they can do. It runs QEMU
// twice, each for a tenth of a second.
func Probe(ctx context.Context) (Host, error) {
	binary, err := exec.LookPath(Binary)
	if err != nil {
		return Host{}, fmt.Errorf("find %s: %w", Binary, err)
	}
	h := Host{Binary: binary, CPUModel: BaselineCPU}
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return Host{}, fmt.Errorf("ask qemu for its version: %w", err)
	}
	if h.Version, h.Package, err = ParseVersion(string(out)); err != nil {
		return Host{}, err
	}
	out, err = exec.CommandContext(ctx, binary, "-machine", "help").Output()
	if err != nil {
		return Host{}, fmt.Errorf("ask qemu for its machine types: %w", err)
	}
	if h.MachineType, err = parseMachineType(string(out)); err != nil {
		return Host{}, err
	}
	if h.Firmware, err = findFirmware(); err != nil {
		return Host{}, err
	}
	h.Accel, h.KVMReason = ChooseAccel("/")
	return h, nil
}

// findFirmware looks where distributions have it.
func findFirmware() (string, error) {
	for _, path := range []string{DefaultFirmware, "/usr/share/qemu/bios-256k.bin"} {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find firmware: no %s: install the package seabios", DefaultFirmware)
}

var versionLine = regexp.MustCompile(`^QEMU emulator version (\d+\.\d+(?:\.\d+)?)(?: \(([^)]*)\))?`)

// ParseVersion reads the output of qemu-system-x86_64 --version.
func ParseVersion(out string) (version, pkg string, err error) {
	found := versionLine.FindStringSubmatch(out)
	if found == nil {
		return "", "", fmt.Errorf("no version in qemu's answer %.80q", out)
	}
	return found[1], found[2], nil
}

// AtLeast reports whether version ("7.2.22") is not older than major.minor.
func AtLeast(version string, major, minor int) bool {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return false
	}
	haveMajor, err1 := strconv.Atoi(parts[0])
	haveMinor, err2 := strconv.Atoi(parts[1])
	if errors.Join(err1, err2) != nil {
		return false
	}
	return haveMajor > major || haveMajor == major && haveMinor >= minor
}

var pcAlias = regexp.MustCompile(`(?m)^pc\s.*\(alias of (\S+)\)`)

// parseMachineType finds what "pc" stands for in the output of -machine help.
func parseMachineType(help string) (string, error) {
	found := pcAlias.FindStringSubmatch(help)
	if found == nil {
		return "", errors.New("qemu lists no versioned machine type behind pc")
	}
	return found[1], nil
}

// ChooseAccel decides between KVM and TCG from the files under root (a host's
// "/"). A device file that opens is no proof: some hosts offer KVM without the
// hardware for it and emulate it, more slowly than TCG and not to the end. So
// the CPU must have the extension, or the kernel the module that found it.
func ChooseAccel(root string) (Accel, string) {
	hardware := kvmHardware(root)
	if hardware == "" {
		return AccelTCG, "the CPU has neither vmx nor svm and neither kvm_intel nor kvm_amd is loaded"
	}
	device := filepath.Join(root, "dev/kvm")
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return AccelTCG, fmt.Sprintf("%s, but %s cannot be opened: %v", hardware, device, errors.Unwrap(err))
	}
	defer f.Close() //nolint:errcheck // nothing was written
	const getAPIVersion = 0xAE00
	version, err := unix.IoctlRetInt(int(f.Fd()), getAPIVersion)
	if err != nil || version != 12 {
		return AccelTCG, fmt.Sprintf("%s, but %s does not answer as KVM", hardware, device)
	}
	return AccelKVM, fmt.Sprintf("%s and %s answers", hardware, device)
}

// kvmHardware says what shows that KVM is backed by hardware; empty if nothing does.
func kvmHardware(root string) string {
	for _, module := range []string{"kvm_intel", "kvm_amd"} {
		if _, err := os.Stat(filepath.Join(root, "sys/module", module)); err == nil {
			return "the module " + module + " is loaded"
		}
	}
	info, err := os.ReadFile(filepath.Join(root, "proc/cpuinfo"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(info)) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) != "flags" {
			continue
		}
		for _, flag := range []string{"vmx", "svm"} {
			if slices.Contains(strings.Fields(value), flag) {
				return "the CPU has " + flag
			}
		}
		return ""
	}
	return ""
}
