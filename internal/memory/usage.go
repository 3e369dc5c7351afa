package memory

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// Unique returns the bytes of memory that only the process pid uses, and that
// ending it would free: the Private_* lines of smaps_rollup.
func Unique(pid int) (int64, error) {
	b, err := os.ReadFile(procPath(pid, "smaps_rollup"))
	if err != nil {
		return 0, fmt.Errorf("read memory use: %w", err)
	}
	total := int64(0)
	for line := range bytes.Lines(b) {
		if !bytes.HasPrefix(line, []byte("Private_")) {
			continue
		}
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			return 0, fmt.Errorf("read memory use: %q", line)
		}
		kb, err := strconv.ParseInt(string(fields[1]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read memory use: %w", err)
		}
		total += kb << 10
	}
	return total, nil
}
