package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Mount makes a file or folder of the host visible to the program.
type Mount struct {
	// Source is a path on the host, Target the one inside; both absolute.
	Source, Target string
	Writable       bool
}

// Limits bounds what the program and its threads use. Zero means no limit.
type Limits struct {
	// MemoryBytes counts everything that is charged to the cgroup, including
	// the page cache it was first to read, which the kernel reclaims first.
	MemoryBytes int64
	// CPUs is the number of virtual CPUs. The program may use one host CPU more
	// than that, for its own threads: a quota without room for them would stall
	// the monitor whenever the guest is busy.
	CPUs int
	// Processes bounds processes and threads together.
	Processes int
}

// Spec is one program to run confined.
type Spec struct {
	// Argv[0] is the program's absolute path under /usr or /bin, or in a mount.
	Argv, Env []string
	// UID and GID are ignored without root: the program keeps the caller's.
	UID, GID int
	// Dir is the working folder inside; empty means "/".
	Dir    string
	Mounts []Mount
	// Devices are device files that the program needs besides null and urandom,
	// for example /dev/kvm.
	Devices []string
	// Cgroup names the group, one path element; empty means none.
	Cgroup string
	Limits Limits
	// Stdout and Stderr are inherited; nil is the null device.
	Stdout, Stderr *os.File `json:"-"`
}

const (
	maxArgs    = 1024
	maxMounts  = 256
	maxDevices = 16
	maxString  = 128 << 10 // the kernel's limit for one argument
	maxUID     = 1<<31 - 1
)

// Validate says what in s cannot be run, naming the field.
func (s Spec) Validate() error {
	switch {
	case len(s.Argv) == 0:
		return errors.New("jail spec: argv is empty")
	case len(s.Argv) > maxArgs || len(s.Env) > maxArgs:
		return fmt.Errorf("jail spec: more than %d arguments or variables", maxArgs)
	case !cleanAbs(s.Argv[0]):
		return fmt.Errorf("jail spec: argv[0] %q is not a clean absolute path", s.Argv[0])
	case s.Dir != "" && !cleanAbs(s.Dir):
		return fmt.Errorf("jail spec: dir %q is not a clean absolute path", s.Dir)
	case s.UID < 0 || s.GID < 0 || s.UID > maxUID || s.GID > maxUID:
		return fmt.Errorf("jail spec: uid %d or gid %d is out of range", s.UID, s.GID)
	case s.Limits.MemoryBytes < 0 || s.Limits.CPUs < 0 || s.Limits.Processes < 0:
		return errors.New("jail spec: a limit is negative")
	case s.Cgroup != "" && !groupName(s.Cgroup):
		return fmt.Errorf("jail spec: cgroup %q is not a plain name", s.Cgroup)
	}
	return errors.Join(s.validateStrings(), s.validateMounts(), s.validateDevices())
}

func (s Spec) validateStrings() error {
	for _, list := range [][]string{s.Argv, s.Env} {
		for _, text := range list {
			if strings.ContainsRune(text, 0) || len(text) >= maxString {
				return fmt.Errorf("jail spec: argument or variable %.40q has a zero byte or is too long", text)
			}
		}
	}
	for _, variable := range s.Env {
		if key, _, ok := strings.Cut(variable, "="); !ok || key == "" {
			return fmt.Errorf("jail spec: variable %.40q is not KEY=value", variable)
		}
	}
	return nil
}

// validateMounts also forbids a target below a writable one: whoever owns that
// folder could put a link where the target is to be.
func (s Spec) validateMounts() error {
	if len(s.Mounts) > maxMounts {
		return fmt.Errorf("jail spec: more than %d mounts", maxMounts)
	}
	for i, mount := range s.Mounts {
		if !cleanAbs(mount.Source) || !cleanAbs(mount.Target) || mount.Target == "/" {
			return fmt.Errorf("jail spec: mount %q on %q is not a pair of clean absolute paths", mount.Source, mount.Target)
		}
		for _, earlier := range s.Mounts[:i] {
			if earlier.Writable && below(mount.Target, earlier.Target) {
				return fmt.Errorf("jail spec: mount target %q is inside the writable %q", mount.Target, earlier.Target)
			}
		}
	}
	return nil
}

func (s Spec) validateDevices() error {
	if len(s.Devices) > maxDevices {
		return fmt.Errorf("jail spec: more than %d devices", maxDevices)
	}
	for _, device := range s.Devices {
		if !cleanAbs(device) || filepath.Dir(device) != "/dev" {
			return fmt.Errorf("jail spec: device %q is not a file in /dev", device)
		}
	}
	return nil
}

// cleanAbs reports whether path is absolute, has no "..", no doubled slash and
// no zero byte.
func cleanAbs(path string) bool {
	return filepath.IsAbs(path) && filepath.Clean(path) == path && !strings.ContainsRune(path, 0) && len(path) < 4096
}

func below(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

// groupName reports whether name is one harmless path element.
func groupName(name string) bool {
	if len(name) > 128 || strings.HasPrefix(name, ".") {
		return false
	}
	for _, r := range name {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", r) {
			return false
		}
	}
	return name != ""
}
