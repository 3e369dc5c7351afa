package jail_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/internal/jail"
)

// groupsOf maps each controller to the group that the process is in.
func groupsOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string]string{}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for controller := range strings.SplitSeq(fields[1], ",") {
			groups[controller] = fields[2]
		}
	}
	return groups
}

// TestProgramIsInItsCgroup runs on whatever hierarchy this host has.
func TestProgramIsInItsCgroup(t *testing.T) {
	t.Parallel()
	cgroups, err := jail.DetectCgroups()
	if err != nil {
		t.Fatal(err)
	}
	if cgroups.Version() == 0 || len(cgroups.Missing()) > 0 {
		t.Fatalf("version %d, missing %v: this test needs all controllers", cgroups.Version(), cgroups.Missing())
	}
	j := jail.New(self(t), cgroups)
	const name = "test-in-its-cgroup"
	p, err := j.Start(t.Context(), jail.Spec{
		Argv: []string{"/bin/busybox", "sleep", "1000"}, UID: testUID, GID: testGID,
		Cgroup: name, Limits: jail.Limits{MemoryBytes: 96 << 20, CPUs: 2, Processes: 33},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill(); _ = p.Wait(t.Context()) })
	groups := groupsOf(t, p.PID)
	for _, controller := range cgroups.Controllers() {
		group, ok := groups[controller]
		if !ok {
			group = groups[""] // version 2
		}
		if group != "/pando/"+name {
			t.Errorf("%s: in group %s", controller, group)
		}
	}
	score, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/oom_score_adj")
	if err != nil || strings.TrimSpace(string(score)) != "300" {
		t.Errorf("oom score = %s, %v", score, err)
	}
	if err := j.Remove(name); err != nil { // also ends what is left in it
		t.Fatal(err)
	}
	if err := p.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if err := j.Remove(name); err != nil {
		t.Errorf("second remove: %v", err)
	}
	if err := j.Remove("../escape"); err == nil {
		t.Error("a path passes for a group's name")
	}
}

func TestLimitsHold(t *testing.T) {
	t.Parallel()
	j := newJail(t)
	t.Cleanup(func() {
		if err := errors.Join(j.Remove("test-pids"), j.Remove("test-memory")); err != nil {
			t.Error(err)
		}
	})
	out, exit := runSpec(t, j, jail.Spec{
		Argv: []string{"/bin/busybox", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done; echo all; wait"},
		UID:  testUID + 1, GID: testGID, Cgroup: "test-pids", Limits: jail.Limits{Processes: 5},
	})
	if strings.Contains(out, "all") || exit.Code == 0 {
		t.Errorf("ten processes in a group of five: %q, %v", out, exit)
	}
	_, exit = runSpec(t, j, jail.Spec{
		Argv: []string{"/bin/busybox", "dd", "if=/dev/urandom", "of=/dev/null", "bs=256M", "count=1"},
		UID:  testUID, GID: testGID, Cgroup: "test-memory", Limits: jail.Limits{MemoryBytes: 32 << 20},
	})
	if exit.Signal != 9 {
		t.Errorf("256 MiB in a group of 32: %v", exit)
	}
}

// hierarchy is a fake mount: plain files where the kernel would have made them.
type hierarchy struct{ root string }

func newHierarchy(t *testing.T, files map[string]string, groups ...string) hierarchy {
	t.Helper()
	h := hierarchy{t.TempDir()}
	for _, group := range append(groups, "") {
		for file, content := range files {
			path := filepath.Join(h.root, group, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return h
}

func (h hierarchy) read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(h.root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (h hierarchy) mount(kind, options string) string {
	return "30 23 0:26 / " + strings.ReplaceAll(h.root, " ", `\040`) + " rw,nosuid shared:9 - " + kind + " none rw," + options + "\n"
}

func unified(t *testing.T, controllers string, groups ...string) hierarchy {
	t.Helper()
	files := map[string]string{"cgroup.controllers": controllers, "cgroup.subtree_control": "", "cgroup.procs": ""}
	for _, file := range []string{"memory.max", "cpu.max", "cpu.weight", "pids.max"} {
		files[file] = ""
	}
	return newHierarchy(t, files, groups...)
}

func TestVersion2(t *testing.T) {
	t.Parallel()
	h := unified(t, "cpuset cpu io memory pids", "pando", "pando/vm-1")
	cgroups := jail.DetectIn("garbage\n" + h.mount("cgroup2", "nsdelegate,memory_recursiveprot"))
	if cgroups.Version() != 2 || len(cgroups.Missing()) > 0 {
		t.Fatalf("version %d, missing %v", cgroups.Version(), cgroups.Missing())
	}
	for _, file := range []string{"cgroup.subtree_control", "pando/cgroup.subtree_control"} {
		if got := h.read(t, file); !strings.HasPrefix(got, "+pids") { // the last of three writes
			t.Errorf("%s = %q", file, got)
		}
	}
	folder, tasks, err := jail.CreateGroup(cgroups, "vm-1", jail.Limits{MemoryBytes: 1 << 30, CPUs: 4, Processes: 100})
	if err != nil || folder != filepath.Join(h.root, "pando/vm-1") || len(tasks) > 0 {
		t.Errorf("group %s, tasks %v, %v", folder, tasks, err)
	}
	want := map[string]string{"memory.max": "1073741824", "cpu.max": "500000 100000", "cpu.weight": "400", "pids.max": "100"}
	for file, value := range want {
		if got := h.read(t, "pando/vm-1/"+file); got != value {
			t.Errorf("%s = %q, want %q", file, got, value)
		}
	}
	if _, _, err := jail.CreateGroup(cgroups, "vm-1", jail.Limits{}); err != nil {
		t.Fatal(err)
	}
	for file, value := range map[string]string{"memory.max": "max", "cpu.max": "max 100000", "pids.max": "max"} {
		if got := h.read(t, "pando/vm-1/"+file); !strings.HasPrefix(got, value) { // a real file has no rest
			t.Errorf("%s = %q, want %q", file, got, value)
		}
	}
}

func TestVersion1(t *testing.T) {
	t.Parallel()
	memory := newHierarchy(t, map[string]string{"memory.limit_in_bytes": "", "tasks": ""}, "pando/vm-1")
	cpu := newHierarchy(t, map[string]string{"cpu.cfs_quota_us": "", "cpu.cfs_period_us": "", "cpu.shares": "", "tasks": ""}, "pando/vm-1")
	cgroups := jail.DetectIn(memory.mount("cgroup", "memory") + cpu.mount("cgroup", "cpu,cpuacct"))
	if cgroups.Version() != 1 {
		t.Fatalf("version %d", cgroups.Version())
	}
	if diff := cmp.Diff(map[string]string{"pids": "no hierarchy has it"}, cgroups.Missing()); diff != "" {
		t.Error(diff)
	}
	folder, tasks, err := jail.CreateGroup(cgroups, "vm-1", jail.Limits{MemoryBytes: 4096, CPUs: 1, Processes: 9})
	want := []string{filepath.Join(memory.root, "pando/vm-1/tasks"), filepath.Join(cpu.root, "pando/vm-1/tasks")}
	if err != nil || folder != "" || !slices.Equal(tasks, want) {
		t.Errorf("group %s, tasks %v, %v", folder, tasks, err)
	}
	for got, value := range map[string]string{
		memory.read(t, "pando/vm-1/memory.limit_in_bytes"): "4096",
		cpu.read(t, "pando/vm-1/cpu.cfs_quota_us"):         "200000",
		cpu.read(t, "pando/vm-1/cpu.cfs_period_us"):        "100000",
		cpu.read(t, "pando/vm-1/cpu.shares"):               "1024",
	} {
		if got != value {
			t.Errorf("%q, want %q", got, value)
		}
	}
}

// TestHybrid is this: controllers in version 1, and an empty version 2 beside.
func TestHybrid(t *testing.T) {
	t.Parallel()
	empty := unified(t, "hugetlb")
	memory := newHierarchy(t, map[string]string{"memory.limit_in_bytes": "", "tasks": ""})
	cgroups := jail.DetectIn(empty.mount("cgroup2", "") + memory.mount("cgroup", "memory"))
	if cgroups.Version() != 1 || !slices.Equal(cgroups.Controllers(), []string{"memory"}) {
		t.Errorf("version %d, controllers %v", cgroups.Version(), cgroups.Controllers())
	}
	if _, err := os.Stat(filepath.Join(empty.root, "pando")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a group in the hierarchy that is not used: %v", err)
	}
}

func TestHierarchyThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	// A version 2 without its control file, and a mount point that is a file.
	broken := newHierarchy(t, map[string]string{"cgroup.controllers": "memory pids"})
	file := filepath.Join(broken.root, "cgroup.controllers")
	cgroups := jail.DetectIn(broken.mount("cgroup2", "") + hierarchy{file}.mount("cgroup", "cpu") + hierarchy{"/no/such"}.mount("cgroup2", ""))
	if cgroups.Version() != 0 || len(cgroups.Missing()) != 3 {
		t.Errorf("version %d, missing %v", cgroups.Version(), cgroups.Missing())
	}
	for controller, why := range cgroups.Missing() {
		if !strings.Contains(why, broken.root) {
			t.Errorf("%s: %s", controller, why)
		}
	}
	if _, tasks, err := jail.CreateGroup(cgroups, "vm-1", jail.Limits{MemoryBytes: 1}); err != nil || tasks != nil {
		t.Errorf("tasks %v, %v", tasks, err)
	}
	if err := jail.New("", jail.Cgroups{}).Remove("vm-1"); err != nil {
		t.Error(err)
	}
}

func TestLimitThatCannotBeSet(t *testing.T) {
	t.Parallel()
	h := newHierarchy(t, map[string]string{"tasks": ""}, "pando/vm-1")
	cgroups := jail.DetectIn(h.mount("cgroup", "memory"))
	if _, _, err := jail.CreateGroup(cgroups, "vm-1", jail.Limits{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("err = %v, want not exist", err)
	}
	if _, err := jail.New(self(t), cgroups).Start(t.Context(), jail.Spec{Argv: []string{"/bin/busybox"}, Cgroup: "vm-1"}); err == nil {
		t.Error("started without its limit")
	}
}
