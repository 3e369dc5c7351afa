package process

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent/sysfile"
)

// maxTitle bounds the name of something that runs, in bytes.
const maxTitle = 80

// title is what to call c: the text that a shell runs, else the program's name.
func (c *Command) title() string {
	text := c.Path
	switch {
	case len(c.Argv) == 3 && c.Argv[1] == "-c":
		text = c.Argv[2]
	case len(c.Argv) > 0:
		text = strings.TrimPrefix(c.Argv[0], "-")
	}
	return text[:min(len(text), maxTitle)]
}

// Running names all that was started and has not been reaped, with its process
// id, in that order.
func (s *Spawner) Running() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.running))
	for _, pid := range slices.Sorted(maps.Keys(s.running)) {
		names = append(names, strconv.Itoa(pid)+" "+s.running[pid])
	}
	return names
}

func (s *Spawner) forget(pid int) {
	s.mu.Lock()
	delete(s.running, pid)
	s.mu.Unlock()
}

// ReapInherited waits for the children that this process has without having
// started them as it is now: those of the program that it ran before it was
// replaced. It does not wait itself.
func ReapInherited() {
	for _, pid := range children() {
		go func() {
			for {
				_, err := syscall.Wait4(pid, nil, 0, nil)
				if err != unix.EINTR { //nolint:errorlint // system calls return it bare
					return
				}
			}
		}()
	}
}

// children lists the children of this process. Not every kernel has the list
// made up, so it is made here.
func children() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if stat, err := sysfile.Read("/proc/" + e.Name() + "/stat"); err == nil && parentIn(string(stat)) == os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parentIn returns the parent named in a stat file: "pid (name) state parent …".
func parentIn(stat string) int {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}
