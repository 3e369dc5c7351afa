package qemu

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pandovm/pando/internal/memory"
)

// Accel is how guest code is run.
type Accel string

// The accelerators.
const (
	// AccelKVM runs guest code on the CPU's virtualisation extensions.
	AccelKVM Accel = "kvm"
	// AccelTCG translates guest code in software.
	AccelTCG Accel = "tcg"
)

// Names inside the machine that other packages and the guest rely on.
const (
	// AgentPort is the name of the virtio-serial port of the guest agent.
	AgentPort = "org.pando.agent"
	// DiskDevice is the id of the VM's disk device.
	DiskDevice = "disk0"
	// DiskNode is the block node at the top of the chain when QEMU starts.
	DiskNode = "disk0-start"

	ramObject    = "ram0"
	addedObject  = "ram1"
	addedDevice  = "mem0"
	firmwareNode = "firmware"
)

// Up to what a VM can grow while it runs. Both are part of what the guest sees,
// so they are the same on every host; a machine that is larger from the start
// keeps its size.
const (
	MaxCPUs      = 16
	MaxMemoryMiB = 64 << 10
)

// DefaultFirmware is where Debian and Ubuntu have the BIOS for the PC machines.
const DefaultFirmware = "/usr/share/seabios/bios-256k.bin"

// maxSocketPath is what fits into a unix socket address, without its final NUL.
const maxSocketPath = 107

// Machine is one VM as QEMU is to run it. Everything except ID, Dir, Kernel,
// Initrd and Disk (names of files, not their content), MemoryLibrary, Incoming
// and Paused is visible to the guest: a saved state can only be loaded by a
// machine that agrees in it.
type Machine struct {
	// ID names the process in lists; letters, digits, dash.
	ID string
	// Dir is the VM's own folder, absolute: sockets, RAM file, serial log.
	Dir  string
	CPUs int
	// MemoryMiB is the memory that the guest boots with.
	MemoryMiB int
	// AddedMemory says that the machine has the device through which it was given
	// more memory; how much is in the state that it loads.
	AddedMemory bool
	Accel       Accel
	CPUModel    string
	// Type is a versioned machine type, never an alias: "pc-i440fx-7.2".
	Type string
	// Firmware is the BIOS image; empty means DefaultFirmware.
	Firmware string
	// Kernel, Initrd and Append boot the guest directly; they are also needed
	// when a state is loaded, because a reboot of the guest reads them again.
	Kernel, Initrd, Append string
	// Disk is the qcow2 file at the top of the chain; empty for no disk.
	Disk string
	// MemoryLibrary is the shared library that turns guest RAM into a private
	// mapping; empty runs plain QEMU on the RAM file.
	MemoryLibrary string
	// Incoming waits, paused, for a state to load instead of booting.
	Incoming bool
	// Paused does not start the virtual CPUs.
	Paused bool
}

// QMPSocket is the monitor's socket.
func (m Machine) QMPSocket() string { return filepath.Join(m.Dir, "qmp.sock") }

// AgentSocket is the host's end of the guest agent's port.
func (m Machine) AgentSocket() string { return filepath.Join(m.Dir, "agent.sock") }

// MemorySocket is the control socket of the memory library.
func (m Machine) MemorySocket() string { return filepath.Join(m.Dir, "memory.sock") }

// RAMFile is the file behind guest RAM. QEMU creates or extends it, sparse.
func (m Machine) RAMFile() string { return filepath.Join(m.Dir, "ram") }

// AddedRAMFile is the file behind memory that is added while the guest runs.
func (m Machine) AddedRAMFile() string { return filepath.Join(m.Dir, "ram-added") }

// SerialLog is what the guest writes to its first serial port. QEMU appends, so
// truncating the file at any time is safe and is how its size is bounded.
func (m Machine) SerialLog() string { return filepath.Join(m.Dir, "serial.log") }

// Devices lists the device files that the process needs besides null and urandom.
func (m Machine) Devices() []string {
	if m.Accel == AccelKVM {
		return []string{"/dev/kvm"}
	}
	return nil
}

// Validate says what in m cannot be run, naming the field.
func (m Machine) Validate() error {
	switch {
	case m.ID == "" || strings.ContainsAny(m.ID, ",= /"):
		return fmt.Errorf("machine id %q is not a plain name", m.ID)
	case !filepath.IsAbs(m.Dir):
		return fmt.Errorf("machine dir %q is not absolute", m.Dir)
	case len(m.MemorySocket()) > maxSocketPath:
		return fmt.Errorf("machine dir %q is too long: a socket in it has more than %d bytes", m.Dir, maxSocketPath)
	case m.CPUs < 1:
		return fmt.Errorf("machine with %d cpus", m.CPUs)
	case m.MemoryMiB < 1:
		return fmt.Errorf("machine with %d MiB of memory", m.MemoryMiB)
	case m.Accel != AccelKVM && m.Accel != AccelTCG:
		return fmt.Errorf("machine accelerator %q is unknown", m.Accel)
	case m.Type == "" || m.CPUModel == "":
		return errors.New("machine without type or cpu model")
	case m.Kernel == "" && (m.Initrd != "" || m.Append != ""):
		return errors.New("machine with initrd or append, but no kernel")
	}
	return nil
}

// Args is the command line after the program's name.
func (m Machine) Args() []string {
	var args []string
	for _, part := range m.parts() {
		args = append(args, part.args()...)
	}
	return args
}

// Env is the environment of the process. Its allocator is held to one arena,
// and gives freed memory back early: a process has a dozen threads, and each
// arena would keep private memory that an idle VM never uses again.
func (m Machine) Env() []string {
	env := []string{
		"PATH=/usr/bin:/bin", "LC_ALL=C", "TMPDIR=" + m.Dir,
		"MALLOC_ARENA_MAX=1", "MALLOC_TRIM_THRESHOLD_=131072", "MALLOC_MMAP_THRESHOLD_=131072",
	}
	if m.MemoryLibrary != "" {
		env = append(env, memory.LibraryEnv(m.MemoryLibrary, m.RAMFile(), m.AddedRAMFile(), m.MemorySocket())...)
	}
	return env
}

// parts lists the machine in the order of the command line. Devices on the PCI
// bus take their slots in this order, and slots are part of the saved state: a
// new device goes to the end of its kind.
func (m Machine) parts() []part {
	parts := []part{
		identity{m.ID},
		confinement{},
		board{m.Type, cmp.Or(m.Firmware, DefaultFirmware)},
		accelerator{m.Accel},
		processors{m.CPUModel, m.CPUs},
		ram{m.MemoryMiB, m.RAMFile()},
		monitor{m.QMPSocket()},
		serial{m.SerialLog()},
		agentPort{m.AgentSocket()},
		entropy{},
		generationID{},
		panicNotifier{},
	}
	if m.Disk != "" {
		parts = append(parts, disk{m.Disk})
	}
	if m.AddedMemory {
		parts = append(parts, m.addedMemory())
	}
	if m.Kernel != "" {
		parts = append(parts, kernel{m.Kernel, m.Initrd, m.Append})
	}
	return append(parts, start{incoming: m.Incoming, paused: m.Paused})
}

func (m Machine) addedMemory() addedMemory {
	return addedMemory{MaxMemoryMiB - m.MemoryMiB, m.AddedRAMFile()}
}

// memoryArg is QEMU's notation for a number of MiB.
func memoryArg(mib int) string { return strconv.Itoa(mib) + "M" }
