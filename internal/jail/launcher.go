package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// LauncherArg is the first argument of the binary when it is to be the launcher.
const LauncherArg = "__jail"

// The launcher's descriptors, and the byte that says "about to execve".
const (
	ordersFD  = 3
	reportFD  = 4
	markReady = 0
	maxReport = 64 << 10
)

// oomScore makes the kernel end a VM before the daemon when memory runs out.
const oomScore = 300

// openFiles is how many files a program may have open.
const maxOpenFiles = 4096

// orders is what the launcher reads.
type orders struct {
	Spec
	Level Level
	// Tasks are files to write "0" to, to join the version 1 cgroups.
	Tasks []string
}

// The steps of the launcher, as StepError names them.
const (
	stepOrders     = "read orders"
	stepCgroup     = "join cgroup"
	stepNamespaces = "use namespaces"
	stepRoot       = "build root"
	stepLimits     = "set limits"
	stepPrivileges = "drop privileges"
	stepExec       = "execute program"
)

// StepError is a failure inside the launcher.
type StepError struct {
	Step    string
	Message string
	// Errno is the kernel's reason; 0 if there is none.
	Errno syscall.Errno
}

// Error names the step and what went wrong.
func (e *StepError) Error() string { return e.Step + ": " + e.Message }

// Is reports whether target is the kernel's reason, for errors.Is(err, unix.ENOENT).
func (e *StepError) Is(target error) bool {
	return e.Errno != 0 && e.Errno.Is(target) || target == error(e.Errno)
}

// Main is the launcher. The binary's main calls it first of all when its first
// argument is LauncherArg; it never returns. args is what follows, which is
// nothing yet.
func Main(args []string) {
	// Uid and capabilities belong to a thread: all that follows must happen on
	// the one that executes the program.
	runtime.LockOSThread()
	// Whatever else was inherited must not reach the program.
	_ = unix.CloseRange(ordersFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) // fails on kernels before 5.11, which QEMU 7.2 hosts are not
	report := os.NewFile(reportFD, "report")
	text, _ := json.Marshal(asStep(run(args, report))) // three plain fields
	_, _ = report.Write(text)                          // the parent sees an empty report then
	os.Exit(1)
}

func asStep(err error) *StepError {
	if failed, ok := errors.AsType[*StepError](err); ok {
		return failed
	}
	return &StepError{Step: stepOrders, Message: err.Error()}
}

// run does the launcher's work; it returns only on failure.
func run(args []string, report *os.File) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	o, err := readOrders()
	if err != nil {
		return err
	}
	steps := []struct {
		name string
		do   func(orders) error
	}{
		{stepCgroup, joinCgroup},
		{stepNamespaces, useNamespaces},
		{stepRoot, buildRoot},
		{stepLimits, setLimits},
		{stepLimits, forbidHugePages},
		{stepPrivileges, dropPrivileges},
	}
	for _, step := range steps {
		if err := step.do(o); err != nil {
			return newStepError(step.name, err)
		}
	}
	unix.Umask(0o077)
	if _, err := report.Write([]byte{markReady}); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	err = syscall.Exec(o.Argv[0], o.Argv, o.Env)
	return newStepError(stepExec, &os.PathError{Op: "execve", Path: o.Argv[0], Err: err})
}

func newStepError(step string, err error) *StepError {
	failed := &StepError{Step: step, Message: err.Error()}
	_ = errors.As(err, &failed.Errno) // stays 0 without one
	return failed
}

func readOrders() (orders, error) {
	f := os.NewFile(ordersFD, "orders")
	defer f.Close() //nolint:errcheck // only read
	var o orders
	decoder := json.NewDecoder(f)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&o); err != nil {
		return orders{}, fmt.Errorf("decode orders: %w", err)
	}
	return o, o.Validate()
}

// joinCgroup moves this thread, and with it the program. Moving the whole
// process would wait for every CPU of the host to pass a quiet point.
func joinCgroup(o orders) error {
	for _, tasks := range o.Tasks {
		if err := os.WriteFile(tasks, []byte("0"), 0); err != nil {
			return err
		}
	}
	if err := os.WriteFile("/proc/self/oom_score_adj", fmt.Append(nil, oomScore), 0); err != nil {
		return err
	}
	return nil
}

func setLimits(o orders) error {
	limits := map[int]uint64{
		unix.RLIMIT_CORE:    0,
		unix.RLIMIT_NOFILE:  maxOpenFiles,
		unix.RLIMIT_MEMLOCK: 8 << 20,
	}
	// The kernel counts this one per uid, so it says nothing where several VMs,
	// or the person who runs the daemon, share one.
	if o.Level == LevelFull && o.UID != 0 && o.Limits.Processes > 0 {
		limits[unix.RLIMIT_NPROC] = uint64(o.Limits.Processes)
	}
	for resource, limit := range limits {
		var have syscall.Rlimit
		if err := syscall.Getrlimit(resource, &have); err != nil {
			return fmt.Errorf("read limit %d: %w", resource, err)
		}
		if o.Level != LevelFull {
			limit = min(limit, have.Max)
		}
		// syscall's, not unix's: it also keeps the exec from restoring the
		// number of open files that the Go runtime has changed.
		if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("set limit %d: %w", resource, err)
		}
	}
	return nil
}

// forbidHugePages saves an idle program the rest of each huge page that it
// touched: QEMU asks for them for translated code, of which most VMs have little.
func forbidHugePages(orders) error {
	err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0)
	if err != nil && !errors.Is(err, unix.EINVAL) { // a kernel that has none
		return fmt.Errorf("forbid huge pages: %w", err)
	}
	return nil
}

// dropPrivileges leaves this thread without any way back.
func dropPrivileges(o orders) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if o.Level != LevelBare {
		if err := dropBoundingSet(); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	if o.Level == LevelFull {
		if err := changeUser(o.UID, o.GID); err != nil {
			return err
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("clear capabilities: %w", err)
	}
	return nil
}

// dropBoundingSet removes every capability that the running kernel knows, also
// those that this program does not.
func dropBoundingSet() error {
	for number := range uintptr(64) {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, number, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", number, err)
		}
	}
	return nil
}

// changeUser changes this thread only, where Go's own calls would change all:
// the others end with the exec.
func changeUser(uid, gid int) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, uintptr(unsafe.Pointer(nil)), 0); errno != 0 {
		return fmt.Errorf("clear groups: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); errno != 0 {
		return fmt.Errorf("set gid %d: %w", gid, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return fmt.Errorf("set uid %d: %w", uid, errno)
	}
	return nil
}
