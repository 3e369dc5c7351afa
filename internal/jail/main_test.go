package jail_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/jail"
)

// What else the test binary can be, by its first argument.
const (
	probeArg = "__probe" // a confined program that says what it sees
	startArg = "__start" // a daemon that starts a probe, for another uid
	// A daemon that starts a program, notes it in a file, and ends.
	daemonArg = "__daemon"
	// In the environment of a probe, it tells startArg what the host forbids.
	refuseNamespaces = "REFUSE_NAMESPACES=1"
)

// TestMain lets the test binary be the launcher, as the pando binary is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case jail.LauncherArg:
			jail.Main(os.Args[2:])
		case probeArg:
			os.Exit(probe(os.Args[2:]))
		case daemonArg:
			os.Exit(startAndEnd(os.Args[2]))
		case startArg:
			os.Exit(startAsOther(os.Args[2]))
		}
	}
	goleak.VerifyTestMain(m)
}

// sight is what a confined program sees of itself and of the world.
type sight struct {
	UID, GID, EUID, EGID int
	Groups               []int
	Session, Process     int
	Capabilities         [3]uint64 // effective, permitted, inheritable
	Bounding             int       // how many are left
	Ambient              int
	NoNewPrivs           bool
	NoHugePages          bool
	Interfaces           []string // name and flags
	Dialled              string   // the error of a connect to 127.0.0.1
	Host                 string
	Dir                  string
	Root                 []string
	OpenFiles            []int
	Limits               map[string]uint64
	Env                  []string
	// Read and Written map each path of the arguments to what became of it.
	Read, Written map[string]string
	Devices       map[string]string
	Gained        string // the error of asking for uid 0
}

// probe prints a sight as JSON. It tries to read, then to write, each path.
func probe(paths []string) int {
	s := sight{
		UID: os.Getuid(), GID: os.Getgid(), EUID: os.Geteuid(), EGID: os.Getegid(), Env: os.Environ(),
		Process: os.Getpid(), Read: map[string]string{}, Written: map[string]string{}, Limits: map[string]uint64{}, Devices: map[string]string{},
	}
	s.OpenFiles = openFiles()
	s.Groups, _ = os.Getgroups()
	s.Session, _ = unix.Getsid(0)
	s.Host, _ = os.Hostname()
	s.Dir, _ = os.Getwd()
	s.capabilities()
	interfaces, _ := net.Interfaces()
	for _, i := range interfaces {
		s.Interfaces = append(s.Interfaces, i.Name+" "+i.Flags.String())
	}
	s.Dialled = dialLoopback()
	for name, resource := range map[string]int{"core": unix.RLIMIT_CORE, "nofile": unix.RLIMIT_NOFILE, "memlock": unix.RLIMIT_MEMLOCK, "nproc": unix.RLIMIT_NPROC} {
		var limit syscall.Rlimit
		_ = syscall.Getrlimit(resource, &limit)
		s.Limits[name] = limit.Max
	}
	entries, _ := os.ReadDir("/")
	for _, entry := range entries {
		s.Root = append(s.Root, entry.Name())
	}
	for _, path := range paths {
		s.Read[path] = tryRead(path)
		s.Written[path] = tryWrite(path)
	}
	for _, device := range []string{"/dev/null", "/dev/urandom", "/dev/kvm", "/dev/zero", "/dev/full"} {
		f, err := os.OpenFile(device, os.O_RDWR, 0)
		s.Devices[device] = outcome(err)
		_ = f.Close()
	}
	s.Gained = outcome(syscall.Setuid(0))
	if s.UID == 0 {
		s.Gained = "root already"
	}
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		return 1
	}
	return 0
}

// outcome is the kernel's word for what happened.
func outcome(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return unix.ErrnoName(errno)
	}
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func dialLoopback() string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: 1, Addr: [4]byte{127, 0, 0, 1}})
	}
	return outcome(err)
}

func tryRead(path string) string {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		_, err = os.ReadDir(path)
		return outcome(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return outcome(err)
	}
	if len(content) > 100 {
		return "ok"
	}
	return string(content)
}

// tryWrite makes a file in a folder, or opens a file for writing.
func tryWrite(path string) string {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return outcome(os.WriteFile(filepath.Join(path, "written"), []byte("by the program"), 0o600))
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		err = f.Close()
	}
	return outcome(err)
}

func (s *sight) capabilities() {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		s.Capabilities[0] = ^uint64(0)
	}
	s.Capabilities = [3]uint64{
		uint64(data[1].Effective)<<32 | uint64(data[0].Effective),
		uint64(data[1].Permitted)<<32 | uint64(data[0].Permitted),
		uint64(data[1].Inheritable)<<32 | uint64(data[0].Inheritable),
	}
	for number := range uintptr(64) {
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, number, 0, 0, 0); err == nil && has == 1 {
			s.Bounding++
		}
		if has, err := unix.PrctlRetInt(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, number, 0, 0); err == nil && has == 1 {
			s.Ambient++
		}
	}
	has, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	s.NoNewPrivs = err == nil && has == 1
	has, err = unix.PrctlRetInt(unix.PR_GET_THP_DISABLE, 0, 0, 0, 0)
	s.NoHugePages = err == nil && has == 1
}

// openFiles lists the descriptors that came with the exec. The Go runtime's own
// are close-on-exec.
func openFiles() []int {
	var open []int
	for fd := range 1024 {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			open = append(open, fd)
		}
	}
	return open
}

// look runs a probe in a jail, with the changes that alter makes to its spec,
// and returns what it saw. The probe tries the given paths.
func look(t *testing.T, j *jail.Jail, alter func(*jail.Spec), paths ...string) sight {
	t.Helper()
	spec := jail.Spec{
		Argv: append([]string{self(t), probeArg}, paths...), Env: []string{"PATH=/usr/bin"},
		UID: testUID, GID: testGID,
		Mounts: []jail.Mount{{Source: self(t), Target: self(t)}},
	}
	if alter != nil {
		alter(&spec)
	}
	out, exit := runSpec(t, j, spec)
	if exit.Code != 0 || exit.Signal != 0 || !exit.Known {
		t.Fatalf("probe %v: %s", exit, out)
	}
	var s sight
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("probe printed %q: %v", out, err)
	}
	return s
}

// runSpec starts spec, and returns what it printed and how it ended.
func runSpec(t *testing.T, j *jail.Jail, spec jail.Spec) (string, jail.Exit) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "output")
	output, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	spec.Stdout = output // the race detector warns on stderr that there is no /proc
	p, err := j.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.WaitExit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), exit
}

func self(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func newJail(t testing.TB) *jail.Jail {
	t.Helper()
	cgroups, err := jail.DetectCgroups()
	if err != nil {
		t.Fatal(err)
	}
	return jail.New(self(t), cgroups)
}

// startAsOther is a daemon without root: it runs the spec in the file and
// prints the level and the program's output.
func startAsOther(specFile string) int {
	text, err := os.ReadFile(specFile)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var spec jail.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	spec.Stdout = os.Stdout
	cgroups, err := jail.DetectCgroups()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	j := jail.New(spec.Argv[0], cgroups)
	if slices.Contains(spec.Env, refuseNamespaces) {
		jail.RefuseNamespaces(j)
	}
	if err := runDetached(j, spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintln(os.Stdout, j.Level())
	return 0
}

// startAndEnd is a daemon that ends while its program runs.
func startAndEnd(noteFile string) int {
	j := jail.New(os.Args[0], jail.Cgroups{})
	p, err := j.Start(context.Background(), jail.Spec{Argv: []string{"/bin/busybox", "sleep", "1000"}, UID: testUID, GID: testGID})
	if err == nil {
		var text []byte
		if text, err = json.Marshal(p); err == nil {
			err = os.WriteFile(noteFile, text, 0o600)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// asOther runs this binary as uid in the mode startArg, on spec, and returns the
// lines of its output.
func asOther(t *testing.T, uid uint32, spec jail.Spec) []string {
	t.Helper()
	out, err := otherCommand(t, uid, spec).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// failAsOther is asOther for a start that must fail; it returns what was said.
func failAsOther(t *testing.T, uid uint32, spec jail.Spec) string {
	t.Helper()
	out, err := otherCommand(t, uid, spec).CombinedOutput()
	if err == nil {
		t.Fatalf("no failure: %s", out)
	}
	return string(out)
}

func otherCommand(t *testing.T, uid uint32, spec jail.Spec) *exec.Cmd {
	t.Helper()
	// The binary must be reachable for that uid, which go's build folder is not.
	dir, err := os.MkdirTemp("", "jail")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "binary")
	if out, err := exec.CommandContext(t.Context(), "cp", self(t), binary).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	spec.Argv[0] = binary
	spec.Mounts = append(spec.Mounts, jail.Mount{Source: binary, Target: binary})
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "spec")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, startArg, file)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}
