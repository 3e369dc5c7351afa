package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/qemu"
)

// What a host should have. The disk holds images (3 GiB unpacked while one is
// built) and what VMs write; the memory one default VM beside the host's own.
const (
	diskFail    = 1 << 30
	diskWarn    = 10 << 30
	memoryFail  = 512 << 20
	memoryWarn  = 3 << 30
	mappingsMin = 65530
)

func (e *examination) qemu(ctx context.Context) Check {
	const name, install = "qemu", "sudo apt-get install -y qemu-system-x86"
	host, err := e.Probe(ctx)
	if err != nil {
		return Check{name, Fail, err.Error(), install}
	}
	seen := fmt.Sprintf("%s, version %s, machine %s, CPU %s", host.Binary, host.Version, host.MachineType, host.CPUModel)
	if !qemu.AtLeast(host.Version, qemu.MinMajor, qemu.MinMinor) {
		fix := fmt.Sprintf("use a release that has QEMU %d.%d or newer (Debian 12, Ubuntu 24.04), then: %s", qemu.MinMajor, qemu.MinMinor, install)
		return Check{name, Fail, seen, fix}
	}
	return Check{name, OK, seen, ""}
}

func (e *examination) qemuImg(context.Context) Check {
	return program("qemu-img", Fail, "sudo apt-get install -y qemu-utils")
}

func (e *examination) mmdebstrap(context.Context) Check {
	return program("mmdebstrap", Warn, "sudo apt-get install -y mmdebstrap # only to build images")
}

func (e *examination) e2fsprogs(context.Context) Check {
	c := program("mkfs.ext4", Warn, "sudo apt-get install -y e2fsprogs # only to build images")
	c.Name = "e2fsprogs"
	return c
}

// program looks in PATH and in the folders of the system's administrator, which
// are not in everyone's PATH.
func program(name string, missing Result, fix string) Check {
	path, err := exec.LookPath(name)
	for _, folder := range []string{"/usr/sbin", "/sbin"} {
		if err != nil {
			path, err = exec.LookPath(filepath.Join(folder, name))
		}
	}
	if err != nil {
		return Check{name, missing, "not found", fix}
	}
	return Check{name, OK, path, ""}
}

func (e *examination) acceleration(context.Context) Check {
	const name = "acceleration"
	accel, why := qemu.ChooseAccel(e.root)
	if accel == qemu.AccelKVM {
		return Check{name, OK, "KVM: " + why, ""}
	}
	return Check{
		name, Warn, "software emulation, about ten times slower: " + why,
		"enable virtualisation in the firmware (or nested virtualisation on the cloud host), then: " +
			"sudo modprobe -a kvm_intel kvm_amd; sudo usermod -aG kvm \"$USER\"",
	}
}

// nested is about guests that run virtual machines themselves.
func (e *examination) nested(context.Context) Check {
	const name = "nested"
	if accel, _ := qemu.ChooseAccel(e.root); accel != qemu.AccelKVM {
		return Check{name, Warn, "no virtualisation inside guests without KVM", "see acceleration"}
	}
	for _, module := range []string{"kvm_intel", "kvm_amd"} {
		value := e.read("sys/module/" + module + "/parameters/nested")
		if value == "Y" || value == "1" {
			return Check{name, OK, module + " allows virtualisation inside guests", ""}
		}
		if value != "" {
			return Check{
				name, Warn, module + " forbids virtualisation inside guests",
				fmt.Sprintf("echo 'options %s nested=1' | sudo tee /etc/modprobe.d/kvm-nested.conf, then reload the module", module),
			}
		}
	}
	return Check{name, Warn, "KVM is built in and does not say whether it nests", "none needed unless guests are to run virtual machines"}
}

func (e *examination) privileges(context.Context) Check {
	const name = "privileges"
	if os.Geteuid() == 0 {
		return Check{name, OK, "root: each VM gets its own uid, namespaces and limits", ""}
	}
	fix := "run the daemon as root: sudo pando serve"
	if why := e.userNamespaces(); why != "" {
		return Check{name, Warn, "not root, and " + why + ": VMs see the host's files and network", fix}
	}
	return Check{name, Warn, "not root: VMs get namespaces, but share one uid and have no limits", fix}
}

// userNamespaces says what forbids them; empty if nothing is known to.
func (e *examination) userNamespaces() string {
	if e.read("proc/sys/user/max_user_namespaces") == "0" {
		return "user.max_user_namespaces is 0"
	}
	if e.read("proc/sys/kernel/unprivileged_userns_clone") == "0" {
		return "kernel.unprivileged_userns_clone is 0"
	}
	if e.read("proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
		return "AppArmor restricts user namespaces"
	}
	return ""
}

func (e *examination) network(context.Context) Check {
	const name = "network namespace"
	if _, err := os.Stat(filepath.Join(e.root, "proc/self/ns/net")); err != nil {
		return Check{name, Fail, "the kernel has no network namespaces", "use a kernel with CONFIG_NET_NS, as every distribution's has"}
	}
	if e.read("proc/sys/user/max_net_namespaces") == "0" {
		return Check{name, Fail, "user.max_net_namespaces is 0", "sudo sysctl -w user.max_net_namespaces=65536"}
	}
	return Check{name, OK, "each VM's process gets an empty one", ""}
}

func (e *examination) cgroups(context.Context) Check {
	const name = "cgroups"
	var missing []string
	for controller, why := range e.Cgroups.Missing() {
		missing = append(missing, controller+" ("+why+")")
	}
	slices.Sort(missing)
	seen := fmt.Sprintf("version %d: %s", e.Cgroups.Version(), strings.Join(e.Cgroups.Controllers(), ", "))
	if e.Cgroups.Version() == 0 {
		seen = "no usable hierarchy"
	} else if len(missing) == 0 {
		return Check{name, OK, seen, ""}
	}
	if len(missing) > 0 {
		seen += "; no limit for " + strings.Join(missing, ", ")
	}
	return Check{name, Warn, seen, "run the daemon as root; in a container, give it a writable cgroup tree (--cgroupns=host)"}
}

func (e *examination) memory(context.Context) Check {
	const name = "memory"
	available, ok := e.meminfo("MemAvailable")
	if !ok {
		return Check{name, Warn, "the kernel does not say how much is available", "none"}
	}
	seen := bytes(available) + " available"
	switch {
	case available < memoryFail:
		return Check{name, Fail, seen, "free memory: a small VM needs " + bytes(memoryFail)}
	case available < memoryWarn:
		return Check{name, Warn, seen, "use smaller VMs (--image pando/debian-sm): the default has 2 GiB"}
	default:
		return Check{name, OK, seen, ""}
	}
}

// meminfo reads one line of /proc/meminfo, in bytes.
func (e *examination) meminfo(key string) (int64, bool) {
	for line := range strings.Lines(e.read("proc/meminfo")) {
		name, value, _ := strings.Cut(line, ":")
		if name != key {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		return kib << 10, err == nil
	}
	return 0, false
}

// mappings: a VM's memory may consist of thousands of them.
func (e *examination) mappings(context.Context) Check {
	const name = "memory mappings"
	seen := e.read("proc/sys/vm/max_map_count")
	count, err := strconv.Atoi(seen)
	if err != nil {
		return Check{name, Warn, "the kernel does not say how many a process may have", "none"}
	}
	if count < mappingsMin {
		return Check{name, Fail, "vm.max_map_count is " + seen, fmt.Sprintf("sudo sysctl -w vm.max_map_count=%d", mappingsMin)}
	}
	return Check{name, OK, "vm.max_map_count is " + seen, ""}
}

func (e *examination) pageSize(context.Context) Check {
	const name = "page size"
	size := os.Getpagesize()
	if size != 4096 {
		return Check{name, Fail, fmt.Sprintf("%d bytes", size), "use a kernel with pages of 4096 bytes"}
	}
	return Check{name, OK, "4096 bytes", ""}
}

func (e *examination) disk(name, dir string) Check {
	dir = existing(dir)
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return Check{name, Fail, fmt.Sprintf("%s: %v", dir, err), "choose another folder"}
	}
	free := int64(fs.Bavail) * fs.Bsize
	seen := fmt.Sprintf("%s free in %s", bytes(free), dir)
	switch {
	case free < diskFail:
		return Check{name, Fail, seen, "free space, or choose a folder on another disk"}
	case free < diskWarn:
		return Check{name, Warn, seen, "have " + bytes(diskWarn) + " free for images and a few VMs"}
	default:
		return Check{name, OK, seen, ""}
	}
}

// read returns a small file below the root without its last newline; empty if
// it is not there.
func (e *examination) read(name string) string {
	text, err := os.ReadFile(filepath.Join(e.root, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// bytes is for people: "3.4 GiB".
func bytes(n int64) string {
	const gib = 1 << 30
	if n >= gib {
		return fmt.Sprintf("%.1f GiB", float64(n)/gib)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
