package jail

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime is the processor time that all threads of the process have used. The
// caller must see afterwards that the process is Alive: before, another process
// may have its number.
func (p Process) CPUTime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(processClock(p.PID), &t); err != nil {
		return 0, fmt.Errorf("read processor time of process %d: %w", p.PID, err)
	}
	return time.Duration(t.Nano()), nil
}

// processClock is the kernel's name for the processor-time clock of a process:
// the complement of the number, shifted by three, and the kind of clock below.
func processClock(pid int) int32 {
	const scheduler = 2
	return int32(^pid)<<3 | scheduler
}
