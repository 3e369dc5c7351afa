package jail_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/internal/jail"
)

func valid() jail.Spec {
	return jail.Spec{Argv: []string{"/usr/bin/program"}, Env: []string{"A=b"}, UID: 1, GID: 1, Dir: "/data", Cgroup: "vm-1"}
}

func TestSpecIsChecked(t *testing.T) {
	t.Parallel()
	for want, alter := range map[string]func(*jail.Spec){
		"":                         func(*jail.Spec) {},
		"argv is empty":            func(s *jail.Spec) { s.Argv = nil },
		"argv[0]":                  func(s *jail.Spec) { s.Argv[0] = "program" },
		"argv[0] \"/usr/../etc\"":  func(s *jail.Spec) { s.Argv[0] = "/usr/../etc" },
		"more than 1024 arguments": func(s *jail.Spec) { s.Argv = append(s.Argv, make([]string, 1024)...) },
		"zero byte":                func(s *jail.Spec) { s.Argv = append(s.Argv, "a\x00b") },
		"too long":                 func(s *jail.Spec) { s.Env[0] = "A=" + strings.Repeat("x", 128<<10) },
		"KEY=value":                func(s *jail.Spec) { s.Env[0] = "A" },
		"not KEY=value":            func(s *jail.Spec) { s.Env[0] = "=b" },
		"dir \"data\"":             func(s *jail.Spec) { s.Dir = "data" },
		"uid -1":                   func(s *jail.Spec) { s.UID = -1 },
		"uid 1 or gid 2147483648":  func(s *jail.Spec) { s.GID = 1 << 31 },
		"limit is negative":        func(s *jail.Spec) { s.Limits.CPUs = -1 },
		"cgroup \"..\"":            func(s *jail.Spec) { s.Cgroup = ".." },
		"cgroup \"a/b\"":           func(s *jail.Spec) { s.Cgroup = "a/b" },
		"mount \"data\"":           func(s *jail.Spec) { s.Mounts = []jail.Mount{{Source: "data", Target: "/data"}} },
		"on \"/\"":                 func(s *jail.Spec) { s.Mounts = []jail.Mount{{Source: "/data", Target: "/"}} },
		"more than 256 mounts":     func(s *jail.Spec) { s.Mounts = make([]jail.Mount, 257) },
		"more than 16 devices":     func(s *jail.Spec) { s.Devices = make([]string, 17) },
		"device \"/dev/net/tun\"":  func(s *jail.Spec) { s.Devices = []string{"/dev/net/tun"} },
		"device \"/etc/shadow\"":   func(s *jail.Spec) { s.Devices = []string{"/etc/shadow"} },
		"\"/data/x\" is inside the writable \"/data\"": func(s *jail.Spec) {
			s.Mounts = []jail.Mount{{Source: "/data", Target: "/data", Writable: true}, {Source: "/x", Target: "/data/x"}}
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := valid()
			alter(&s)
			err := s.Validate()
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("err = %v, want %q", err, want)
			}
		})
	}
}

func TestMountsMayLieBesideAndAboveEachOther(t *testing.T) {
	t.Parallel()
	s := valid()
	s.Mounts = []jail.Mount{
		{Source: "/a", Target: "/data"},
		{Source: "/b", Target: "/data/vm", Writable: true},
		{Source: "/c", Target: "/data/vm-2"},
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
}

// FuzzSpec feeds the validation what a damaged or hostile order may hold: what
// passes must be safe to act on.
func FuzzSpec(f *testing.F) {
	full := valid()
	full.Mounts = []jail.Mount{{Source: "/a", Target: "/b", Writable: true}, {Source: "/c", Target: "/b/c"}}
	full.Devices = []string{"/dev/kvm"}
	seed, err := json.Marshal(full)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"Argv":["/a"],"Cgroup":"..","Mounts":[{"Source":"/","Target":"//x"}]}`))
	f.Add([]byte(`{"Argv":["/a\u0000"],"Devices":["/dev/..","/dev/."]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s jail.Spec
		if json.Unmarshal(text, &s) != nil || s.Validate() != nil {
			return
		}
		paths := []string{s.Argv[0]}
		var writable []string
		for _, m := range s.Mounts {
			paths = append(paths, m.Source, m.Target)
			for _, w := range writable {
				if strings.HasPrefix(m.Target+"/", w+"/") {
					t.Errorf("%q is below the writable %q", m.Target, w)
				}
			}
			if m.Writable {
				writable = append(writable, m.Target)
			}
		}
		for _, path := range append(paths, s.Devices...) {
			if !strings.HasPrefix(path, "/") || strings.Contains(path+"/", "/../") || strings.Contains(path+"/", "/./") || strings.Contains(path, "\x00") {
				t.Errorf("path %q passed", path)
			}
		}
		if strings.ContainsAny(s.Cgroup, "/\x00") || strings.HasPrefix(s.Cgroup, ".") {
			t.Errorf("cgroup %q passed", s.Cgroup)
		}
	})
}

func TestStatOfAnyName(t *testing.T) {
	t.Parallel()
	const rest = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21"
	for _, name := range []string{"qemu", "a b", "x) Z 1", ") R (", ""} {
		start, state, err := jail.ParseStat([]byte("77 (" + name + ")" + rest))
		if err != nil || start != 4242 || state != 'S' {
			t.Errorf("%q: start %d, state %c, %v", name, start, state, err)
		}
	}
	for _, line := range []string{"", "77 (qemu", "77 (qemu) S 1 2", "77 (qemu)" + strings.ReplaceAll(rest, "4242", "x")} {
		if _, _, err := jail.ParseStat([]byte(line)); err == nil {
			t.Errorf("%q was accepted", line)
		}
	}
}

func TestChildInfo(t *testing.T) {
	t.Parallel()
	const exited, killed, dumped = 1, 2, 3
	got := fmt.Sprint(jail.ChildInfo(exited, 7, 3), "; ", jail.ChildInfo(killed, 7, 9), "; ", jail.ChildInfo(dumped, 7, 11), "; ", jail.ChildInfo(exited, 0, 0))
	want := "exited with status 3; was killed (signal 9); was killed (signal 11); ended"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
