package testlab

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// ChainLength is the number of immutable files under a VM's disk.
func (l *Lab) ChainLength(vm string) int {
	l.tb.Helper()
	data, err := os.ReadFile(filepath.Join(l.Home(vm), "record.json"))
	if err != nil {
		l.tb.Fatal(err)
	}
	var file struct {
		Body struct {
			Disk struct {
				Chain []json.RawMessage `json:"chain"`
			} `json:"disk"`
		} `json:"body"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		l.tb.Fatal(err)
	}
	return len(file.Body.Disk.Chain)
}
