package disk

import (
	"encoding/binary"
	"testing"

	"github.com/pandovm/pando/internal/layer"
)

// FuzzHeader reads headers as a hostile VM may leave them.
func FuzzHeader(f *testing.F) {
	good, err := makeTemplate(f.Context(), "../layers/"+string(layer.NewID()), 1<<30)
	if err != nil {
		f.Fatal(err)
	}
	good = good[:1024]
	f.Add(good)
	for _, field := range []struct {
		at    int
		value uint64
	}{{8, 1 << 63}, {8, 1000}, {16, 1 << 40}, {24, 1 << 63}, {72, featureDataFile}} {
		b := append([]byte(nil), good...)
		binary.BigEndian.PutUint64(b[field.at:], field.value)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		info, err := parseHeader(b)
		if err != nil {
			return
		}
		if info.VirtualSize < 0 || info.VirtualSize > maxDiskBytes || len(info.BackingFile) > maxBackingName ||
			info.ClusterSize < 512 || info.ClusterSize > 2<<20 {
			t.Errorf("%+v", info)
		}
		if same, err := withBacking(b, info.BackingFile); err != nil || string(same) != string(b) {
			t.Errorf("naming the backing file as it is changes the header: %v", err)
		}
	})
}
