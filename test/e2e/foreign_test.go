package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"syscall"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
)

// A snapshot that was made elsewhere, on another CPU, QEMU or machine, is
// refused with the difference in the message before anything starts.
func TestForeignSnapshots(t *testing.T) {
	t.Parallel()
	for field, foreign := range map[string]string{
		"cpuModel": "EPYC", "qemu": "9.2.0", "type": "pc-i440fx-9.2", "accelerator": "other", "layout": "0123456789abcdef",
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			l := testlab.New(t)
			id, manifest := snapshotFor(t, l)
			l.Signal(syscall.SIGTERM)
			edit(t, manifest, func(b []byte) []byte { return reseal(t, b, field, foreign) })
			l.Start()
			_, err := l.Client.VMs.Create(t.Context(), api.CreateVMRequest{SnapshotID: &id})
			e := wantError(t, err, api.CodeConflict, api.ReasonSnapshotIncompatible)
			if !bytes.Contains([]byte(e.Message), []byte(foreign)) || e.Remedy == "" {
				t.Errorf("the error is %+v", e)
			}
		})
	}
}

// reseal changes a field of the saved machine and makes the checksum right.
func reseal(t *testing.T, data []byte, field, value string) []byte {
	t.Helper()
	var file struct {
		Format int             `json:"format"`
		SHA256 string          `json:"sha256"`
		Body   json.RawMessage `json:"body"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	start := bytes.Index(file.Body, fmt.Appendf(nil, "%q:", field))
	if start < 0 {
		t.Fatalf("the manifest has no %s", field)
	}
	start += len(field) + 3
	end := start + 1 + bytes.IndexByte(file.Body[start+1:], '"') + 1
	file.Body = append(append(bytes.Clone(file.Body[:start]), fmt.Sprintf("%q", value)...), file.Body[end:]...)
	sum := sha256.Sum256(file.Body)
	file.SHA256 = hex.EncodeToString(sum[:])
	out, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
