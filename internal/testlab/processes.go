package testlab

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// processesOf lists the QEMU processes that have the path in their arguments.
func processesOf(path string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is constant and valid
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(line, []byte("qemu-system")) || !bytes.Contains(line, []byte(path)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
