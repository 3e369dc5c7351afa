package agent

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ResideInMemory maps all of the program's code and constants in, so that they
// are part of a snapshot's memory, and keeps them there: a guest that is short of
// memory would otherwise drop them and read them from the disk, at each turn.
func ResideInMemory() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		if len(f) != 6 || f[5] != exe {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 == nil && err2 == nil {
			// Kernels before 5.14 refuse it: then the first use maps it in.
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(start), uintptr(end-start), unix.MADV_POPULATE_READ)
			_, _, _ = unix.Syscall(unix.SYS_MLOCK, uintptr(start), uintptr(end-start), 0)
		}
	}
}
