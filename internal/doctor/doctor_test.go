package doctor_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/internal/doctor"
	"github.com/pandovm/pando/internal/jail"
	"github.com/pandovm/pando/internal/qemu"
)

// fakeRoot makes a host's files.
func fakeRoot(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// goodFiles are those of a host that has all but KVM.
func goodFiles() map[string]string {
	return map[string]string{
		"proc/cpuinfo": "flags : fpu sse2", "proc/self/ns/net": "", "proc/sys/vm/max_map_count": "65530",
		"proc/meminfo": "MemTotal: 9000000 kB\nMemAvailable:    8000000 kB",
	}
}

func goodHost(context.Context) (qemu.Host, error) {
	return qemu.Host{Binary: "/usr/bin/qemu-system-x86_64", Version: "7.2.22", MachineType: "pc-i440fx-7.2", CPUModel: "Nehalem"}, nil
}

// check returns the one with that name.
func check(t *testing.T, r doctor.Report, name string) doctor.Check {
	t.Helper()
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %q in %v", name, r)
	return doctor.Check{}
}

func TestThisHostIsFit(t *testing.T) {
	t.Parallel()
	cgroups, err := jail.DetectCgroups()
	if err != nil {
		t.Fatal(err)
	}
	var told []doctor.Check
	r := doctor.Examine(t.Context(), doctor.Options{
		DataDir: t.TempDir(), CacheDir: "/no/such/cache", Cgroups: cgroups,
		Boot: func(context.Context) (string, error) { return "Linux 6.1 said hello", nil },
		Seen: func(c doctor.Check) { told = append(told, c) },
	})
	if !r.OK() {
		t.Errorf("this host runs the tests, and is not fit: %+v", r)
	}
	if diff := cmp.Diff(r.Checks, told); diff != "" {
		t.Errorf("what was told while it went on: %s", diff)
	}
	if c := check(t, r, "guest"); c.Result != doctor.OK || !strings.Contains(c.Seen, "said hello") {
		t.Errorf("guest: %+v", c)
	}
	text, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(text), `{"checks":[{"name":"qemu","result":"ok","seen":"/usr`) {
		t.Errorf("as JSON: %s, %v", text, err)
	}
}

func TestWhatIsMissingIsNamedWithItsFix(t *testing.T) {
	t.Parallel()
	old := func(context.Context) (qemu.Host, error) { return qemu.Host{Version: "6.2.0"}, nil }
	none := func(context.Context) (qemu.Host, error) {
		return qemu.Host{}, errors.New("find qemu-system-x86_64: not there")
	}
	for name, c := range map[string]struct {
		check, seen, fix string
		result           doctor.Result
		files            map[string]string
		probe            func(context.Context) (qemu.Host, error)
	}{
		"no qemu":        {check: "qemu", result: doctor.Fail, seen: "not there", fix: "apt-get install", probe: none},
		"old qemu":       {check: "qemu", result: doctor.Fail, seen: "6.2.0", fix: "7.2", probe: old},
		"no kvm":         {check: "acceleration", result: doctor.Warn, seen: "emulation", fix: "modprobe"},
		"no nesting":     {check: "nested", result: doctor.Warn, seen: "without KVM", fix: "acceleration"},
		"few mappings":   {check: "memory mappings", result: doctor.Fail, seen: "4096", fix: "sysctl", files: map[string]string{"proc/sys/vm/max_map_count": "4096"}},
		"no count":       {check: "memory mappings", result: doctor.Warn, seen: "does not say", fix: "none", files: map[string]string{"proc/sys/vm/max_map_count": ""}},
		"little memory":  {check: "memory", result: doctor.Warn, seen: "1.9 GiB", fix: "smaller", files: map[string]string{"proc/meminfo": "MemAvailable: 2000000 kB"}},
		"no memory":      {check: "memory", result: doctor.Fail, seen: "97 MiB", fix: "free memory", files: map[string]string{"proc/meminfo": "MemAvailable: 100000 kB"}},
		"unknown memory": {check: "memory", result: doctor.Warn, seen: "does not say", fix: "none", files: map[string]string{"proc/meminfo": "MemFree: 1 kB"}},
		"no net":         {check: "network namespace", result: doctor.Fail, seen: "0", fix: "sysctl", files: map[string]string{"proc/sys/user/max_net_namespaces": "0"}},
		"no cgroups":     {check: "cgroups", result: doctor.Warn, seen: "no usable", fix: "root"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := goodFiles()
			maps.Copy(files, c.files)
			probe := goodHost
			if c.probe != nil {
				probe = c.probe
			}
			r := doctor.ExamineIn(t.Context(), fakeRoot(t, files), doctor.Options{DataDir: "/", CacheDir: "/", Probe: probe})
			got := check(t, r, c.check)
			if got.Result != c.result || !strings.Contains(got.Seen, c.seen) || !strings.Contains(got.Fix, c.fix) {
				t.Errorf("%+v, want %s, %q, %q", got, c.result, c.seen, c.fix)
			}
			if r.OK() != (c.result != doctor.Fail) {
				t.Errorf("OK = %v", r.OK())
			}
			for _, c := range r.Checks {
				if (c.Fix == "") != (c.Result == doctor.OK) || c.Seen == "" {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

func TestGuestIsTheProof(t *testing.T) {
	t.Parallel()
	boots := 0
	o := doctor.Options{DataDir: "/", CacheDir: "/", Probe: goodHost, Boot: func(context.Context) (string, error) {
		boots++
		return "", errors.New("the guest is silent")
	}}
	r := doctor.ExamineIn(t.Context(), fakeRoot(t, goodFiles()), o)
	if c := check(t, r, "guest"); c.Result != doctor.Fail || c.Seen != "the guest is silent" || r.OK() {
		t.Errorf("%+v", c)
	}
	o.Probe = func(context.Context) (qemu.Host, error) { return qemu.Host{}, errors.New("none") }
	r = doctor.ExamineIn(t.Context(), fakeRoot(t, goodFiles()), o)
	if c := check(t, r, "guest"); c.Result != doctor.Fail || !strings.Contains(c.Seen, "not tried") || boots != 1 {
		t.Errorf("%+v after %d boots", c, boots)
	}
}
