package jail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Level is how much confinement the host allows.
type Level string

// The levels.
const (
	// LevelFull: the daemon is root. Everything that the package promises.
	LevelFull Level = "full"
	// LevelUser: namespaces through a user namespace. No own uid, and cgroups
	// only where they were delegated.
	LevelUser Level = "user"
	// LevelBare: no namespaces. Only no_new_privs, resource limits and an own
	// session.
	LevelBare Level = "bare"
)

const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// Jail starts confined processes. It is safe for concurrent use.
type Jail struct {
	launcher string
	cgroups  Cgroups
	bare     atomic.Bool // the host refused a user namespace
}

// New returns a Jail that starts launcher, a binary whose main calls Main, and
// limits what it starts through cgroups.
func New(launcher string, cgroups Cgroups) *Jail {
	return &Jail{launcher: launcher, cgroups: cgroups}
}

// Level says how much confinement a Start gives. Without root it is known only
// after a first Start; until then it is LevelUser.
func (j *Jail) Level() Level {
	switch {
	case os.Geteuid() == 0:
		return LevelFull
	case j.bare.Load():
		return LevelBare
	default:
		return LevelUser
	}
}

// Start runs the program and returns once it has taken the launcher's place.
// The error says which step failed; then no process is left, and an empty
// cgroup may be. The process outlives the daemon and ctx; Process.Wait must be
// called for it to be reaped.
func (j *Jail) Start(ctx context.Context, spec Spec) (Process, error) {
	if err := spec.Validate(); err != nil {
		return Process{}, err
	}
	o := orders{Spec: spec, Level: j.Level()}
	var g group
	if spec.Cgroup != "" {
		var err error
		if g, err = j.cgroups.create(spec.Cgroup, spec.Limits); err != nil {
			return Process{}, err
		}
		o.Tasks = g.tasks
	}
	p, err := j.launch(ctx, o, g)
	if o.Level == LevelUser && namespacesRefused(err) {
		j.bare.Store(true)
		o.Level = LevelBare
		p, err = j.launch(ctx, o, g)
	}
	if err != nil {
		return Process{}, fmt.Errorf("start %s: %w", spec.Argv[0], err)
	}
	return p, nil
}

// namespacesRefused tells a host that forbids user namespaces from other
// failures, which must not end in less confinement.
func namespacesRefused(err error) bool {
	if failed, ok := errors.AsType[*StepError](err); ok {
		return failed.Step == stepNamespaces
	}
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSPC) ||
		errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EUSERS)
}

// Limit changes the limits of a cgroup whose processes may run.
func (j *Jail) Limit(cgroup string, limits Limits) error {
	if !groupName(cgroup) {
		return fmt.Errorf("limit cgroup: %q is not a plain name", cgroup)
	}
	_, err := j.cgroups.create(cgroup, limits)
	return err
}

// Remove ends what is left in a cgroup and removes it; idempotent.
func (j *Jail) Remove(cgroup string) error {
	if !groupName(cgroup) {
		return fmt.Errorf("remove cgroup: %q is not a plain name", cgroup)
	}
	return j.cgroups.remove(cgroup)
}

// launch starts the launcher and follows it until it has become the program.
func (j *Jail) launch(ctx context.Context, o orders, g group) (Process, error) {
	files, err := openFiles(o)
	if err != nil {
		return Process{}, err
	}
	defer files.close()
	attributes, err := attributes(o.Level, g)
	if err != nil {
		return Process{}, err
	}
	defer attributes.close()
	child, err := os.StartProcess(j.launcher, []string{j.launcher, LauncherArg}, &os.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1", "GOGC=off"}, Files: files.inherited(), Sys: attributes.sys,
	})
	if err != nil {
		return Process{}, fmt.Errorf("start launcher: %w", err)
	}
	files.handedOver()
	p, err := follow(ctx, child.Pid, files.report)
	if err != nil {
		err = errors.Join(err, ignoreDone(child.Kill()))
		_, waitErr := child.Wait()
		return Process{}, errors.Join(err, waitErr)
	}
	return p, child.Release()
}

func ignoreDone(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// follow reads the launcher's report. An end of the report without the mark
// means that the launcher died.
func follow(ctx context.Context, pid int, report *os.File) (Process, error) {
	stop := context.AfterFunc(ctx, func() { _ = report.Close() })
	defer stop()
	said, err := io.ReadAll(io.LimitReader(report, maxReport))
	if ctx.Err() != nil {
		return Process{}, context.Cause(ctx)
	}
	if err != nil {
		return Process{}, fmt.Errorf("read launcher's report: %w", err)
	}
	if len(said) == 1 && said[0] == markReady {
		return FindProcess(pid)
	}
	if len(said) > 0 && said[0] == markReady {
		said = said[1:]
	}
	var failed StepError
	if err := json.Unmarshal(said, &failed); err != nil {
		return Process{}, errors.New("the launcher ended without a report")
	}
	return Process{}, &failed
}

// launchFiles are the descriptors of one launch, on both sides.
type launchFiles struct {
	null, orders, report, reportEnd *os.File
	stdout, stderr                  *os.File
}

func openFiles(o orders) (*launchFiles, error) {
	f := &launchFiles{stdout: o.Stdout, stderr: o.Stderr}
	var err error
	if f.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, fmt.Errorf("open null device: %w", err)
	}
	if f.orders, err = writeOrders(o); err != nil {
		f.close()
		return nil, err
	}
	if f.report, f.reportEnd, err = os.Pipe(); err != nil {
		f.close()
		return nil, fmt.Errorf("make report pipe: %w", err)
	}
	return f, nil
}

// writeOrders puts the orders into a memory file: unlike a pipe it never blocks.
func writeOrders(o orders) (*os.File, error) {
	fd, err := unix.MemfdCreate("pando-orders", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make orders: %w", err)
	}
	f := os.NewFile(uintptr(fd), "pando-orders")
	text, err := json.Marshal(o)
	if err == nil {
		_, err = f.Write(text)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write orders: %w", err), f.Close())
	}
	return f, nil
}

// inherited is what the launcher gets as 0 to 4.
func (f *launchFiles) inherited() []*os.File {
	stdout, stderr := f.stdout, f.stderr
	if stdout == nil {
		stdout = f.null
	}
	if stderr == nil {
		stderr = f.null
	}
	return []*os.File{f.null, stdout, stderr, f.orders, f.reportEnd}
}

// handedOver closes our copy of the report's writing end, so that the launcher's
// exec ends the report.
func (f *launchFiles) handedOver() {
	_ = f.reportEnd.Close() // nothing was written on this side
	f.reportEnd = nil
}

func (f *launchFiles) close() {
	for _, file := range []*os.File{f.null, f.orders, f.report, f.reportEnd} {
		if file != nil {
			_ = file.Close() // nothing that a failure could lose
		}
	}
}

// launchAttributes are the kernel's orders for the clone.
type launchAttributes struct {
	sys    *syscall.SysProcAttr
	folder *os.File
}

func attributes(level Level, g group) (launchAttributes, error) {
	a := launchAttributes{sys: &syscall.SysProcAttr{Setsid: true}}
	if level != LevelBare {
		a.sys.Cloneflags = namespaces
	}
	if level == LevelUser {
		// The launcher must be root in there: another uid would lose its
		// capabilities at the launcher's own exec.
		a.sys.Cloneflags |= unix.CLONE_NEWUSER
		a.sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		a.sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	if g.unified == "" {
		return a, nil
	}
	folder, err := os.OpenFile(g.unified, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return a, fmt.Errorf("open cgroup: %w", err)
	}
	a.folder = folder
	a.sys.UseCgroupFD = true
	a.sys.CgroupFD = int(folder.Fd())
	return a, nil
}

func (a launchAttributes) close() {
	if a.folder != nil {
		_ = a.folder.Close() // nothing was written
	}
}
