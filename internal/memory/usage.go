package memory

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// Use is the memory of one process, in bytes.
type Use struct {
	// Resident is all that is in memory; Unique is the part of it that only this
	// process uses, and that ending it would free.
	Resident, Unique int64
}

// Shared is what the process has in common with others, such as pages of layers.
func (u Use) Shared() int64 { return u.Resident - u.Unique }

// Measure reads the memory use of the process pid. It walks the process's page
// tables, about a millisecond for each GiB.
func Measure(pid int) (Use, error) {
	b, err := os.ReadFile(procPath(pid, "smaps_rollup"))
	if err != nil {
		return Use{}, fmt.Errorf("read memory use: %w", err)
	}
	var u Use
	for line := range bytes.Lines(b) {
		unique, resident := bytes.HasPrefix(line, []byte("Private_")), bytes.HasPrefix(line, []byte("Rss:"))
		if !unique && !resident {
			continue
		}
		n, err := kilobytes(line)
		if err != nil {
			return Use{}, err
		}
		if resident {
			u.Resident = n
		} else {
			u.Unique += n
		}
	}
	return u, nil
}

// kilobytes is the number in a line like "Rss: 12 kB", in bytes.
func kilobytes(line []byte) (int64, error) {
	fields := bytes.Fields(line)
	if len(fields) < 2 {
		return 0, fmt.Errorf("read memory use: %q", line)
	}
	kb, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read memory use: %w", err)
	}
	return kb << 10, nil
}

// Unique returns the bytes of memory that only the process pid uses.
func Unique(pid int) (int64, error) {
	u, err := Measure(pid)
	return u.Unique, err
}
