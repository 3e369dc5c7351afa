package qemu

// part is one piece of the machine on the command line.
type part interface{ args() []string }

// identity names the process and its threads.
type identity struct{ name string }

func (p identity) args() []string {
	return []string{"-name", option("").set("guest", p.name).on("debug-threads").String()}
}

// confinement takes away what QEMU does not need. spawn stays allowed because a
// capture is a fork(2) inside QEMU; the memory library denies execve instead.
type confinement struct{}

func (confinement) args() []string {
	sandbox := option("on").set("obsolete", "deny").set("elevateprivileges", "deny").set("resourcecontrol", "deny")
	return []string{"-no-user-config", "-nodefaults", "-display", "none", "-vga", "none", "-sandbox", sandbox.String()}
}

// board is the mainboard. hpet and vmport cost emulation time and give a Linux
// guest nothing.
//
// The firmware is a flash chip. As a plain ROM it would be part of the saved
// state: QEMU throws the ROM's content away when it waits for a state, and the
// first reboot after a restore would run into nothing.
type board struct{ machineType, firmware string }

func (p board) args() []string {
	o := option(p.machineType).off("usb").off("vmport").off("hpet").on("acpi").on("suppress-vmdesc").
		set("memory-backend", ramObject).set("pflash0", firmwareNode)
	chip := option("").set("driver", "file").set("node-name", firmwareNode).set("filename", p.firmware).on("read-only")
	return []string{
		"-blockdev", chip.String(),
		"-machine", o.String(),
		// A state is device sections alone (see Saving), without the header that
		// repeats the machine's name: what must agree is in the manifest.
		"-global", "migration.send-configuration=off",
		// An accelerator of the task priority register for guests of the 1990s.
		// Its option ROM lies in memory that is not saved.
		"-global", "apic-common.vapic=off",
		"-rtc", "base=utc",
		// A reboot resets in place, a power-off ends the process with status 0,
		// and a kernel panic ends it with status 1 after GUEST_PANICKED: a
		// machine that cannot answer any more should not hold its memory.
		"-action", option("").set("reboot", "reset").set("shutdown", "poweroff").set("panic", "exit-failure").String(),
	}
}

type accelerator struct{ accel Accel }

// translationMiB is address space for translated code, not memory: pages of it
// are used as code is translated.
const translationMiB = 256

func (p accelerator) args() []string {
	if p.accel == AccelKVM {
		return []string{"-accel", "kvm"}
	}
	return []string{"-accel", option("tcg").set("thread", "multi").number("tb-size", translationMiB).String()}
}

type processors struct {
	model string
	count int
}

func (p processors) args() []string {
	return []string{"-cpu", p.model, "-smp", option("").number("cpus", p.count).number("maxcpus", max(p.count, MaxCPUs)).String()}
}

// ram is guest memory, shared as far as QEMU knows: the memory library makes it
// private behind QEMU's back.
type ram struct {
	mib  int
	path string
}

func (p ram) args() []string {
	backend := option("memory-backend-file").set("id", ramObject).set("size", memoryArg(p.mib)).
		set("mem-path", p.path).on("share").off("prealloc").off("merge").off("dump")
	size := option("").set("size", memoryArg(p.mib)).set("maxmem", memoryArg(max(p.mib, MaxMemoryMiB)))
	return []string{"-m", size.String(), "-object", backend.String()}
}

// addedMemory is the room for memory that is added while the guest runs, and the
// device that tells the guest how much of it there is. A machine gets both when
// memory is added to it for the first time, because the device has the modern
// interface only: it makes each saved state six times as large (see virtio).
type addedMemory struct {
	mib  int
	path string
}

// addedSlot is where the device is on the PCI bus: far behind those that the
// machine starts with, and the same whether it was there at the start or not.
const addedSlot = "1e"

func (p addedMemory) args() []string {
	backend := option("memory-backend-file").set("id", addedObject).set("size", memoryArg(p.mib)).
		set("mem-path", p.path).on("share").off("prealloc").off("merge").off("dump")
	device := option("virtio-mem-pci").set("id", addedDevice).set("memdev", addedObject).set("addr", addedSlot)
	return []string{"-object", backend.String(), "-device", device.String()}
}

type monitor struct{ socket string }

func (p monitor) args() []string {
	return []string{
		"-chardev", socketServer("monitor", p.socket),
		"-mon", option("").set("chardev", "monitor").set("mode", "control").String(),
	}
}

func socketServer(id, path string) string {
	return option("socket").set("id", id).set("path", path).on("server").off("wait").String()
}

type serial struct{ log string }

func (p serial) args() []string {
	return []string{
		"-chardev", option("file").set("id", "serial").set("path", p.log).on("append").String(),
		"-device", option("isa-serial").set("chardev", "serial").String(),
	}
}

// virtio builds a virtio device with the legacy interface only. The modern one
// keeps a table of 1024 queues per device, which would make up 97 % of a saved
// state and 2 ms of each pause.
func virtio(driver string) *options { return option(driver).on("disable-modern") }

// agentPort is the one channel to the guest agent. Port 0 of a virtio-serial
// device is reserved for a console, hence two ports for one channel.
type agentPort struct{ socket string }

func (p agentPort) args() []string {
	return []string{
		"-chardev", socketServer("agent", p.socket),
		"-device", virtio("virtio-serial-pci").set("id", "serial0").number("max_ports", 2).String(),
		"-device", option("virtserialport").set("bus", "serial0.0").number("nr", 1).
			set("chardev", "agent").set("name", AgentPort).String(),
	}
}

type entropy struct{}

func (entropy) args() []string {
	return []string{
		"-object", option("rng-builtin").set("id", "rng0").String(),
		"-device", virtio("virtio-rng-pci").set("rng", "rng0").String(),
	}
}

// generationID tells a guest with a driver for it that it was restored: every
// process draws a new one.
type generationID struct{}

func (generationID) args() []string {
	return []string{"-device", option("vmgenid").set("guid", "auto").String()}
}

type panicNotifier struct{}

func (panicNotifier) args() []string { return []string{"-device", "pvpanic"} }

// disk is a qcow2 file on the VM's virtio disk. Guest flushes reach the host's
// disk; discards free space in the overlay. It has one queue whatever the number
// of CPUs, which grows and must not change the device: one thread of QEMU serves
// all queues anyway.
type disk struct{ path string }

func (p disk) args() []string {
	file := option("").set("driver", "file").set("node-name", DiskNode+"-file").set("filename", p.path).
		set("aio", "threads").set("discard", "unmap")
	qcow2 := option("").set("driver", "qcow2").set("node-name", DiskNode).set("file", DiskNode+"-file").
		set("discard", "unmap").set("detect-zeroes", "off")
	return []string{
		"-blockdev", file.String(),
		"-blockdev", qcow2.String(),
		"-device", virtio("virtio-blk-pci").number("num-queues", 1).set("id", DiskDevice).set("drive", DiskNode).String(),
	}
}

type kernel struct{ image, initrd, cmdline string }

func (p kernel) args() []string {
	args := []string{"-kernel", p.image}
	if p.initrd != "" {
		args = append(args, "-initrd", p.initrd)
	}
	if p.cmdline != "" {
		args = append(args, "-append", p.cmdline)
	}
	return args
}

// start says what the process does once it is up.
type start struct{ incoming, paused bool }

func (p start) args() []string {
	switch {
	case p.incoming:
		return []string{"-incoming", "defer", "-S"}
	case p.paused:
		return []string{"-S"}
	default:
		return nil
	}
}
