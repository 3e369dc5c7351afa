package testlab

import (
	"bytes"
	"os"
	"path/filepath"
)

// Home is the folder of a VM: that of its id, or of the spare that it was.
func (l *Lab) Home(vm string) string {
	l.tb.Helper()
	records, _ := filepath.Glob(filepath.Join(l.Data, "vms", "*", "record.json")) // the pattern is valid
	for _, path := range records {
		data, err := os.ReadFile(path)
		if err == nil && bytes.Contains(data, []byte(`"id":"`+vm+`"`)) {
			return filepath.Dir(path)
		}
	}
	l.tb.Fatalf("no folder of vm %s", vm)
	return ""
}

// Spares lists the VMs that are kept ready.
func (l *Lab) Spares() []string {
	l.tb.Helper()
	found, _ := filepath.Glob(filepath.Join(l.Data, "vms", "spare-*")) // the pattern is valid
	return found
}
