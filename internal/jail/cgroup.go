package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// groupFolder holds the groups of all VMs, directly below the root of each
// hierarchy: there they stay when the daemon's own group (a systemd unit, a
// login session) is torn down.
const groupFolder = "pando"

// removeWithin is how long Remove waits for ended processes to leave a group.
const removeWithin = 2 * time.Second

// Cgroups is where this host takes resource limits. The zero value takes none.
type Cgroups struct {
	// unified is the root of the version 2 hierarchy, if it has a controller
	// that is used here.
	unified string
	// homes maps a controller to the root of its hierarchy.
	homes map[string]string
	// refused maps a controller to the reason why it cannot be used.
	refused map[string]string
}

// controllers are those that carry a limit.
func controllers() []string { return []string{"memory", "cpu", "pids"} }

// DetectCgroups finds the hierarchies that are mounted (version 1, 2 or both)
// and makes the common folder in each. Controllers that the host does not have
// or does not let us use are left out; see Missing.
func DetectCgroups() (Cgroups, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Cgroups{}, fmt.Errorf("detect cgroups: %w", err)
	}
	return detectCgroups(string(mounts)), nil
}

func detectCgroups(mountinfo string) Cgroups {
	c := Cgroups{homes: map[string]string{}, refused: map[string]string{}}
	for line := range strings.Lines(mountinfo) {
		point, kind, options := parseMount(line)
		switch kind {
		case "cgroup2":
			c.adoptUnified(point)
		case "cgroup":
			c.adoptV1(point, strings.Split(options, ","))
		}
	}
	for _, name := range controllers() {
		if c.homes[name] == "" && c.refused[name] == "" {
			c.refused[name] = "no hierarchy has it"
		}
	}
	return c
}

// parseMount reads one line of mountinfo: mount point, file system type and
// super options.
func parseMount(line string) (point, kind, options string) {
	before, after, ok := strings.Cut(line, " - ")
	head, tail := strings.Fields(before), strings.Fields(after)
	if !ok || len(head) < 5 || len(tail) < 3 {
		return "", "", ""
	}
	return unescape(head[4]), tail[0], tail[2]
}

// unescape resolves the octal escapes of mountinfo.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// adoptUnified takes the controllers that version 2 offers at its root.
func (c *Cgroups) adoptUnified(root string) {
	offered, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return
	}
	for _, name := range controllers() {
		if !slices.Contains(strings.Fields(string(offered)), name) {
			continue
		}
		if err := enableUnified(root, name); err != nil {
			c.refused[name] = reason(err)
			continue
		}
		c.unified = root
		c.homes[name] = root
		delete(c.refused, name)
	}
}

// enableUnified passes a controller on to the groups of the VMs.
func enableUnified(root, name string) error {
	if err := enable(root, name); err != nil {
		return err
	}
	folder := filepath.Join(root, groupFolder)
	if err := makeGroup(folder); err != nil {
		return err
	}
	if err := unix.Access(filepath.Join(folder, "cgroup.procs"), unix.W_OK); err != nil {
		return &fs.PathError{Op: "write", Path: folder, Err: err}
	}
	return enable(folder, name)
}

func enable(folder, name string) error {
	file := filepath.Join(folder, "cgroup.subtree_control")
	enabled, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if slices.Contains(strings.Fields(string(enabled)), name) {
		return nil
	}
	return set(folder, "cgroup.subtree_control", "+"+name)
}

// adoptV1 takes the controllers of one version 1 hierarchy.
func (c *Cgroups) adoptV1(root string, options []string) {
	for _, name := range controllers() {
		if !slices.Contains(options, name) || c.homes[name] != "" {
			continue
		}
		folder := filepath.Join(root, groupFolder)
		err := makeGroup(folder)
		if err == nil {
			err = unix.Access(folder, unix.W_OK)
		}
		if err != nil {
			c.refused[name] = reason(err)
			continue
		}
		c.homes[name] = root
		delete(c.refused, name)
	}
}

func reason(err error) string {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Sprintf("%s: %v", pathError.Path, pathError.Err)
	}
	return err.Error()
}

// Version is 1, 2, or 0 if no limit can be set.
func (c Cgroups) Version() int {
	switch {
	case c.unified != "":
		return 2
	case len(c.homes) > 0:
		return 1
	default:
		return 0
	}
}

// Controllers lists those in use.
func (c Cgroups) Controllers() []string {
	return slices.DeleteFunc(controllers(), func(name string) bool { return c.homes[name] == "" })
}

// Missing maps each controller that is not in use to the reason.
func (c Cgroups) Missing() map[string]string { return c.refused }

// group is one VM's cgroup in all hierarchies.
type group struct {
	// unified is the folder in version 2, which a process is born into.
	unified string
	// tasks are the version 1 files that a thread joins by writing 0.
	tasks []string
}

// setting is one value to write into a group.
type setting struct{ controller, file, value string }

// create makes the group, or finds it, and sets its limits.
func (c Cgroups) create(name string, limits Limits) (group, error) {
	var g group
	for _, controller := range c.Controllers() {
		home := c.homes[controller]
		folder := filepath.Join(home, groupFolder, name)
		if err := makeGroup(folder); err != nil {
			return group{}, fmt.Errorf("make cgroup: %w", err)
		}
		settings := settingsV1
		if home == c.unified {
			g.unified = folder
			settings = settingsV2
		} else if tasks := filepath.Join(folder, "tasks"); !slices.Contains(g.tasks, tasks) {
			g.tasks = append(g.tasks, tasks)
		}
		for _, s := range settings(limits) {
			if s.controller != controller {
				continue
			}
			if err := set(folder, s.file, s.value); err != nil {
				return group{}, fmt.Errorf("limit cgroup: %w", err)
			}
		}
	}
	return g, nil
}

// cpuPeriod is the kernel's default, in microseconds.
const cpuPeriod = 100_000

func settingsV1(l Limits) []setting {
	return []setting{
		{"memory", "memory.limit_in_bytes", orUnlimited(l.MemoryBytes, "-1")},
		{"cpu", "cpu.cfs_period_us", strconv.Itoa(cpuPeriod)},
		{"cpu", "cpu.cfs_quota_us", orUnlimited(quota(l), "-1")},
		{"cpu", "cpu.shares", strconv.Itoa(min(1024*max(l.CPUs, 1), 262144))},
		{"pids", "pids.max", orUnlimited(int64(l.Processes), "max")},
	}
}

func settingsV2(l Limits) []setting {
	return []setting{
		{"memory", "memory.max", orUnlimited(l.MemoryBytes, "max")},
		{"cpu", "cpu.max", orUnlimited(quota(l), "max") + " " + strconv.Itoa(cpuPeriod)},
		{"cpu", "cpu.weight", strconv.Itoa(min(100*max(l.CPUs, 1), 10_000))},
		{"pids", "pids.max", orUnlimited(int64(l.Processes), "max")},
	}
}

// quota is CPU time per period: one CPU above what the guest has, see Limits.
func quota(l Limits) int64 {
	if l.CPUs == 0 {
		return 0
	}
	return int64(l.CPUs+1) * cpuPeriod
}

func orUnlimited(n int64, unlimited string) string {
	if n == 0 {
		return unlimited
	}
	return strconv.FormatInt(n, 10)
}

// folders lists the group's folder in every hierarchy.
func (c Cgroups) folders(name string) []string {
	var folders []string
	for _, controller := range c.Controllers() {
		folder := filepath.Join(c.homes[controller], groupFolder, name)
		if !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
	}
	return folders
}

// remove ends what is left in the group and removes it; idempotent.
func (c Cgroups) remove(name string) error {
	var errs []error
	for _, folder := range c.folders(name) {
		if err := removeGroup(folder); err != nil {
			errs = append(errs, fmt.Errorf("remove cgroup: %w", err))
		}
	}
	return errors.Join(errs...)
}

// removeGroup retries while the group is busy: an ended process leaves it only
// when its last thread is gone.
func removeGroup(folder string) error {
	for deadline := time.Now().Add(removeWithin); ; time.Sleep(2 * time.Millisecond) {
		err := unix.Rmdir(folder)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return nil
		case !errors.Is(err, unix.EBUSY) || time.Now().After(deadline):
			return &fs.PathError{Op: "rmdir", Path: folder, Err: err}
		}
		killMembers(folder)
	}
}

// killMembers ends the processes of a group. What it cannot end keeps the group
// busy, which is the error that Remove reports.
func killMembers(folder string) {
	members, err := os.ReadFile(filepath.Join(folder, "cgroup.procs"))
	if err != nil {
		return
	}
	for field := range strings.FieldsSeq(string(members)) {
		pid, err := strconv.Atoi(field)
		if err != nil || pid <= 0 {
			continue
		}
		if process, err := FindProcess(pid); err == nil && isMember(folder, field) {
			_ = process.Kill() // see above
		}
	}
}

// isMember looks again after the process was identified: a number read before
// may have been recycled in between.
func isMember(folder, pid string) bool {
	members, err := os.ReadFile(filepath.Join(folder, "cgroup.procs"))
	return err == nil && slices.Contains(strings.Fields(string(members)), pid)
}

func makeGroup(folder string) error {
	err := os.Mkdir(folder, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// set writes one value. The file must exist: creating it would hide a typing
// error on a host where the kernel does not refuse.
func set(folder, file, value string) error {
	f, err := os.OpenFile(filepath.Join(folder, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
