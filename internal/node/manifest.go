package node

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/layer"
	"github.com/pandovm/pando/internal/memory"
	"github.com/pandovm/pando/internal/qemu"
)

// ManifestFormat is the version of the manifest file. Readers refuse others, but
// for the first, which lacks what a VM has or shall get beyond its boot.
const (
	ManifestFormat = 2
	firstFormat    = 1
)

// maxManifestBytes bounds what is read of a manifest: the memory map of the
// largest VM takes about 300 kB.
const maxManifestBytes = 16 << 20

// Hardware is what a guest's memory and device state depend on. A snapshot can
// be restored only on a host that offers exactly the same.
type Hardware struct {
	// Accelerator is "tcg" or "kvm".
	Accelerator string `json:"accelerator"`
	// Type is the versioned machine type, for example "pc-i440fx-7.2".
	Type string `json:"type"`
	// CPUModel is QEMU's name of the virtual CPU.
	CPUModel string `json:"cpuModel"`
	// QEMU is the version of the program.
	QEMU string `json:"qemu"`
	// Layout is a checksum of the devices on the command line.
	Layout string `json:"layout"`
}

// Machine is the shape of a VM.
type Machine struct {
	Hardware
	CPUs int `json:"cpus"`
	// MemoryMiB is the memory of the boot, AddedMiB what was added since.
	MemoryMiB int `json:"memoryMiB"`
	AddedMiB  int `json:"addedMiB,omitempty"`
	// Grow is the size to take on at the next start.
	Grow   Growth      `json:"grow,omitzero"`
	Kernel layer.Layer `json:"kernel"`
	Initrd layer.Layer `json:"initrd"`
	// Append is the kernel's command line.
	Append string `json:"append"`
}

// Growth is a size in CPUs and memory; what is zero stays as it is.
type Growth struct {
	CPUs      int `json:"cpus,omitempty"`
	MemoryMiB int `json:"memoryMiB,omitempty"`
}

// ramBytes is how much RAM the guest may have used: what a memory map is for.
func (m Machine) ramBytes() int64 {
	return int64(m.MemoryMiB+qemu.AddedReach(m.MemoryMiB, m.AddedMiB)) << 20
}

// size is what the machine has, or will have at its next start.
func (m Manifest) size() api.Resources {
	return api.Resources{
		CPU: max(m.Machine.CPUs, m.Machine.Grow.CPUs), Memory: max(m.Machine.MemoryMiB+m.Machine.AddedMiB, m.Machine.Grow.MemoryMiB),
		Storage: int(m.Disk.SizeBytes >> 20),
	}
}

// Memory is a saved RAM: a map and the layers that it refers to.
type Memory struct {
	// Map is the binary form of a memory.Map.
	Map    []byte        `json:"map,omitempty"`
	Layers []layer.Layer `json:"layers,omitempty"`
}

// Disk is a chain of qcow2 layers, base first, and the size of the disk that
// they make.
type Disk struct {
	SizeBytes int64         `json:"sizeBytes"`
	Chain     []layer.Layer `json:"chain"`
}

// Guest is what the agent said of itself.
type Guest struct {
	AgentVersion string `json:"agentVersion,omitempty"`
	Kernel       string `json:"kernel,omitempty"`
}

// Manifest describes one saved machine.
type Manifest struct {
	Machine Machine `json:"machine"`
	Memory  Memory  `json:"memory"`
	// State is the device state; its ID is empty when only the disk is saved.
	State layer.Layer `json:"state"`
	Disk  Disk        `json:"disk"`
	// Token opens the next epoch with the agent that is in the saved memory.
	Token      []byte    `json:"token"`
	Guest      Guest     `json:"guest"`
	CapturedAt time.Time `json:"capturedAt"`
}

// layers lists everything that the manifest needs to exist.
func (m Manifest) layers() []layer.Layer {
	all := append([]layer.Layer{m.Machine.Kernel, m.Machine.Initrd, m.State}, m.Disk.Chain...)
	all = append(all, m.Memory.Layers...)
	return onlySet(all)
}

// onlySet drops the layers that are not set.
func onlySet(all []layer.Layer) []layer.Layer {
	var set []layer.Layer
	for _, l := range all {
		if l.ID != "" {
			set = append(set, l)
		}
	}
	return set
}

func idsOf(layers []layer.Layer) []layer.ID {
	ids := make([]layer.ID, len(layers))
	for i, l := range layers {
		ids[i] = l.ID
	}
	return ids
}

// memoryMap decodes the memory map.
func (m Manifest) memoryMap() (memory.Map, error) {
	var mm memory.Map
	if err := mm.UnmarshalBinary(m.Memory.Map); err != nil {
		return mm, fmt.Errorf("decode memory map: %w", err)
	}
	if want := m.Machine.ramBytes(); mm.Size != want {
		return mm, fmt.Errorf("decode memory map: it is for %d bytes of RAM, the machine has %d", mm.Size, want)
	}
	return mm, nil
}

// sealed is the file form: the checksum covers the bytes of the body, so a
// truncated or altered file is never taken for a manifest.
type sealed struct {
	Format int             `json:"format"`
	SHA256 string          `json:"sha256"`
	Body   json.RawMessage `json:"body"`
}

// seal encodes a manifest or a record with its checksum.
func seal(body any) ([]byte, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode body: %w", err)
	}
	sum := sha256.Sum256(raw)
	return json.Marshal(sealed{Format: ManifestFormat, SHA256: hex.EncodeToString(sum[:]), Body: raw})
}

// unseal decodes what seal made. It refuses unknown fields: a field that this
// version does not know may be one that a restore depends on.
func unseal(data []byte, body any) error {
	if len(data) > maxManifestBytes {
		return fmt.Errorf("%d bytes are more than %d", len(data), maxManifestBytes)
	}
	var s sealed
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("decode envelope: %w", err)
	}
	if s.Format != ManifestFormat && s.Format != firstFormat {
		return fmt.Errorf("format %d is neither %d nor %d", s.Format, firstFormat, ManifestFormat)
	}
	sum := sha256.Sum256(s.Body)
	if subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(s.SHA256)) != 1 {
		return errors.New("the checksum does not match")
	}
	d := json.NewDecoder(bytes.NewReader(s.Body))
	d.DisallowUnknownFields()
	if err := d.Decode(body); err != nil {
		return fmt.Errorf("decode body: %w", err)
	}
	return nil
}

// validate checks what a restore would otherwise stumble over.
func (m Manifest) validate() error {
	switch {
	case m.Machine.CPUs < 1 || m.Machine.CPUs > 255:
		return fmt.Errorf("%d cpus", m.Machine.CPUs)
	case m.Machine.MemoryMiB < 1 || m.Machine.MemoryMiB > 16<<20:
		return fmt.Errorf("%d MiB of memory", m.Machine.MemoryMiB)
	case m.Machine.AddedMiB < 0 || m.Machine.AddedMiB > qemu.MaxMemoryMiB:
		return fmt.Errorf("%d MiB of added memory", m.Machine.AddedMiB)
	case len(m.Disk.Chain) == 0 || m.Disk.SizeBytes <= 0:
		return errors.New("no disk")
	}
	for _, l := range m.layers() {
		if _, err := layer.ParseID(string(l.ID)); err != nil {
			return fmt.Errorf("layer %q: %w", l.ID, err)
		}
	}
	if m.State.ID == "" {
		return nil
	}
	mm, err := m.memoryMap()
	if err != nil {
		return err
	}
	if len(mm.Layers) != len(m.Memory.Layers) {
		return fmt.Errorf("the memory map names %d layers, the manifest %d", len(mm.Layers), len(m.Memory.Layers))
	}
	return nil
}
