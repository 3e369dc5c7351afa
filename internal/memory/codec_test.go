package memory_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pandovm/pando/internal/layer"
	"github.com/pandovm/pando/internal/memory"
)

var update = flag.Bool("update", false, "write the golden files") //nolint:gochecknoglobals // a test flag

const page = memory.PageSize

func exampleMap() memory.Map {
	return memory.Map{
		Size: 64 << 20,
		Layers: []layer.ID{
			"ly-000102030405060708090a0b0c0d0e0f",
			"ly-f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
		},
		Extents: []memory.Extent{
			{Offset: 0, Length: 16 * page, Layer: 0, LayerOffset: 0},
			{Offset: 16 * page, Length: page, Layer: 1, LayerOffset: 1 << 30},
			{Offset: 100 * page, Length: 300 * page, Layer: 0, LayerOffset: 16 * page},
			{Offset: 1 << 20 << 4, Length: 48 << 20, Layer: 1, LayerOffset: 0},
		},
	}
}

// TestMapVersion1 keeps the format readable for ever.
func TestMapVersion1(t *testing.T) {
	t.Parallel()
	path := filepath.Join("testdata", "map-v1.bin")
	got, err := exampleMap().MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	var m memory.Map
	if err := m.UnmarshalBinary(want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(exampleMap(), m); diff != "" {
		t.Error(diff)
	}
}

func TestMapRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		m := memory.Map{Size: rapid.Int64Range(0, 1<<14).Draw(r, "pages") * page}
		for range rapid.IntRange(1, memory.MaxLayers).Draw(r, "layers") {
			m.Layers = append(m.Layers, layer.NewID())
		}
		for at := int64(0); ; {
			at += rapid.Int64Range(0, 40).Draw(r, "gap") * page
			length := rapid.Int64Range(1, 2000).Draw(r, "length") * page
			if at+length > m.Size {
				break
			}
			m.Extents = append(m.Extents, memory.Extent{
				Offset: at, Length: length, Layer: rapid.IntRange(0, len(m.Layers)-1).Draw(r, "layer"),
				LayerOffset: rapid.Int64Range(0, memory.MaxSize/page-2000).Draw(r, "at") * page,
			})
			at += length
		}
		b, err := m.MarshalBinary()
		if err != nil {
			r.Fatal(err)
		}
		var got memory.Map
		if err := got.UnmarshalBinary(b); err != nil {
			r.Fatal(err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			r.Fatal(diff)
		}
	})
}

// TestDamagedMap flips every bit and cuts at every length.
func TestDamagedMap(t *testing.T) {
	t.Parallel()
	whole, err := exampleMap().MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	before := memory.Map{Size: page}
	for i := range whole {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[i] ^= 1 << bit
			m := before
			if err := m.UnmarshalBinary(b); err == nil {
				t.Fatalf("bit %d of byte %d is not needed", bit, i)
			}
			if diff := cmp.Diff(before, m); diff != "" {
				t.Fatalf("a damaged map changed the receiver: %s", diff)
			}
		}
		if err := new(memory.Map).UnmarshalBinary(whole[:i]); err == nil {
			t.Fatalf("%d of %d bytes are enough", i, len(whole))
		}
	}
	if err := new(memory.Map).UnmarshalBinary(append(whole, 0)); err == nil {
		t.Error("a byte more is accepted")
	}
}

// sealed appends the checksum that makes any body pass the first test.
func sealed(body []byte) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

// FuzzUnmarshalMap feeds bodies with a right checksum: what is read is valid,
// and stays the same when it is written and read again.
func FuzzUnmarshalMap(f *testing.F) {
	whole, err := exampleMap().MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	body := whole[:len(whole)-4]
	f.Add(body)
	f.Add(body[:len(body)-1])
	f.Add([]byte("PNDOMAP\x01" + strings.Repeat("\xff", 40)))
	f.Add([]byte("PNDOMAP\x01\x00\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x20\x00\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		var m memory.Map
		if m.UnmarshalBinary(sealed(body)) != nil {
			return
		}
		if err := m.Validate(); err != nil {
			t.Fatalf("an invalid map was read: %v", err)
		}
		b, err := m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var again memory.Map
		if err := again.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, again); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestValidate(t *testing.T) {
	t.Parallel()
	if err := exampleMap().Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		spoil func(m *memory.Map)
		says  string
	}{
		{"negative size", func(m *memory.Map) { m.Size = -page }, "size"},
		{"half a page of RAM", func(m *memory.Map) { m.Size++ }, "size"},
		{"too much RAM", func(m *memory.Map) { m.Size = memory.MaxSize + page }, "size"},
		{"a malformed layer", func(m *memory.Map) { m.Layers[1] = "../etc/passwd" }, "layer 1"},
		{"a layer twice", func(m *memory.Map) { m.Layers[1] = m.Layers[0] }, "twice"},
		{"too many layers", func(m *memory.Map) {
			for range memory.MaxLayers {
				m.Layers = append(m.Layers, layer.NewID())
			}
		}, "at most"},
		{"too many extents", func(m *memory.Map) { m.Extents = make([]memory.Extent, memory.MaxExtents+1) }, "at most"},
		{"half a page", func(m *memory.Map) { m.Extents[1].LayerOffset++ }, "whole pages"},
		{"an empty extent", func(m *memory.Map) { m.Extents[1].Length = 0 }, "length"},
		{"a negative extent", func(m *memory.Map) { m.Extents[3].Length = -page }, "length"},
		{"an overlap", func(m *memory.Map) { m.Extents[1].Offset -= page }, "overlaps"},
		{"disorder", func(m *memory.Map) { m.Extents[0], m.Extents[2] = m.Extents[2], m.Extents[0] }, "out of order"},
		{"beyond the end", func(m *memory.Map) { m.Extents[3].Length += page }, "beyond"},
		{"overflow", func(m *memory.Map) { m.Extents[3].Length = 1<<63 - page }, "beyond"},
		{"before the layer", func(m *memory.Map) { m.Extents[3].LayerOffset = -page }, "in its layer"},
		{"far in the layer", func(m *memory.Map) { m.Extents[3].LayerOffset = 1<<63 - page }, "in its layer"},
		{"no such layer", func(m *memory.Map) { m.Extents[2].Layer = 2 }, "names layer"},
		{"a negative layer", func(m *memory.Map) { m.Extents[2].Layer = -1 }, "names layer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := exampleMap()
			c.spoil(&m)
			err := m.Validate()
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want one that says %q", err, c.says)
			}
			if _, err := m.MarshalBinary(); err == nil {
				t.Error("it can be marshalled")
			}
		})
	}
}

func TestMapBytes(t *testing.T) {
	t.Parallel()
	m := exampleMap()
	if got, want := m.Bytes(), int64(317*page+(48<<20)); got != want {
		t.Errorf("Bytes %d, want %d", got, want)
	}
	if got := m.OwnBytes(m.Layers[0]); got != 316*page {
		t.Errorf("OwnBytes %d", got)
	}
	if got := m.OwnBytes(layer.NewID()); got != 0 {
		t.Errorf("OwnBytes of a stranger %d", got)
	}
}
