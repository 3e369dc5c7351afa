package node

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/internal/layer"
	"github.com/pandovm/pando/internal/memory"
)

// sample is a manifest with every field set.
func sample(t testing.TB) Manifest {
	t.Helper()
	l := func(k layer.Kind) layer.Layer {
		return layer.Layer{ID: layer.NewID(), Kind: k, Bytes: 4096, SHA256: strings.Repeat("ab", 32)}
	}
	ram := l(layer.KindMemory)
	mm := memory.Map{
		Size: 128 << 20, Layers: []layer.ID{ram.ID},
		Extents: []memory.Extent{{Offset: 8192, Length: 4096, Layer: 0, LayerOffset: 0}},
	}
	data, err := mm.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return Manifest{
		Machine: Machine{
			Hardware: Hardware{Accelerator: "tcg", Type: "pc-i440fx-7.2", CPUModel: "Nehalem", QEMU: "7.2.22"},
			CPUs:     1, MemoryMiB: 128, Kernel: l(layer.KindKernel), Initrd: l(layer.KindInitrd), Append: "quiet",
		},
		Memory: Memory{Map: data, Layers: []layer.Layer{ram}}, State: l(layer.KindState),
		Disk:  Disk{SizeBytes: 1 << 30, Chain: []layer.Layer{l(layer.KindDisk), l(layer.KindDisk)}},
		Token: bytes.Repeat([]byte{7}, 16), Guest: Guest{AgentVersion: "1", Kernel: "6.1"},
		CapturedAt: time.Unix(1_800_000_000, 0).UTC(),
	}
}

func TestManifestRoundTrip(t *testing.T) {
	t.Parallel()
	want := sample(t)
	data, err := seal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Manifest
	if err := unseal(data, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the manifest changed (-want +got):\n%s", diff)
	}
	if err := got.validate(); err != nil {
		t.Errorf("validate: %v", err)
	}
}

// Every single changed byte and every truncation is noticed.
func TestDamagedManifestIsRefused(t *testing.T) {
	t.Parallel()
	data, err := seal(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		var m Manifest
		if unseal(data[:i], &m) == nil {
			t.Fatalf("%d of %d bytes were taken for a manifest", i, len(data))
		}
		changed := bytes.Clone(data)
		changed[i] ^= 1
		if unseal(changed, &m) == nil {
			t.Fatalf("a manifest with byte %d changed was accepted", i)
		}
	}
}

func TestValidateNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Manifest){
		"0 cpus":           func(m *Manifest) { m.Machine.CPUs = 0 },
		"MiB of memory":    func(m *Manifest) { m.Machine.MemoryMiB = -1 },
		"no disk":          func(m *Manifest) { m.Disk.Chain = nil },
		"layer":            func(m *Manifest) { m.Disk.Chain[0].ID = "../../etc/passwd" },
		"memory map":       func(m *Manifest) { m.Memory.Map = m.Memory.Map[:8] },
		"bytes of RAM":     func(m *Manifest) { m.Machine.MemoryMiB = 256 },
		"the memory map n": func(m *Manifest) { m.Memory.Layers = nil },
	} {
		m := sample(t)
		change(&m)
		if err := m.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

func TestUnknownFieldsAndFormatsAreRefused(t *testing.T) {
	t.Parallel()
	data, err := seal(map[string]any{"surprise": 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := unseal(data, &Manifest{}); err == nil {
		t.Error("an unknown field was ignored")
	}
	if err := unseal(bytes.Replace(data, []byte(`"format":1`), []byte(`"format":2`), 1), &Manifest{}); err == nil {
		t.Error("a later format was accepted")
	}
}

func FuzzUnseal(f *testing.F) {
	data, err := seal(sample(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"format":1,"sha256":"","body":null}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m Manifest
		if unseal(data, &m) == nil {
			_ = m.validate()
		}
		var r record
		_ = unseal(data, &r)
	})
}
