package cgroup

import "testing"

func TestVictims(t *testing.T) {
	t.Parallel()
	const summary = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/g/run,task_memcg="
	for name, c := range map[string]struct {
		records []string
		after   uint64
		want    string
	}{
		"none": {records: []string{"6,1,100,-;booted\n"}},
		"in the group": {
			records: []string{"6,7,100,-;" + summary + "/g/run/1,task=hog,pid=12,uid=0\n", "3,8,100,-;Memory cgroup out of memory: Killed process 12 (hog) total-vm:1kB\n"},
			want:    "hog",
		},
		"in another group last": {
			records: []string{"6,7,100,-;" + summary + "/g/run/1,task=mine,pid=12,uid=0\n", "6,9,100,-;" + summary + "/g/run/11,task=other,pid=13,uid=0\n"},
			want:    "mine",
		},
		"without a summary": {records: []string{"3,8,100,-;Out of memory: Killed process 12 (a b) total-vm:1kB, anon-rss:1kB\n"}, want: "a b"},
		"a name with commas": {
			records: []string{"6,7,100,-;" + summary + "/g/run/1,task=a,pid=1,task=b,pid=12,uid=0\n"}, want: "a,pid=1,task=b",
		},
		"a name with brackets": {records: []string{"3,8,1,-;Out of memory: Killed process 12 (x) total-vm:) total-vm:1kB\n"}, want: "x) total-vm:"},
		"seen before":          {records: []string{"3,8,1,-;Out of memory: Killed process 12 (x) total-vm:1kB\n"}, after: 8},
		"nonsense":             {records: []string{"", ";", "6,x,1,-;" + summary, "6,7,100,-;oom-kill:", "6,8,1,-;" + summary + ",task=", "6,9,1,-;Killed process ("}},
	} {
		l := killLog{group: "/g/run/1", after: c.after}
		for _, r := range c.records {
			l.take(r)
		}
		got := l.inGroup
		if got == "" {
			got = l.anywhere
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func FuzzVictims(f *testing.F) {
	f.Add("6,7,100,-;oom-kill:constraint=X,task_memcg=/g,task=hog,pid=12,uid=0\n")
	f.Add("3,8,100,-;Memory cgroup out of memory: Killed process 12 (hog) total-vm:1kB\n")
	f.Fuzz(func(_ *testing.T, record string) {
		l := killLog{group: "/g"}
		l.take(record)
	})
}

// Some memory always stays out of reach, and one command cannot have all that is
// within it; small VMs keep most of theirs.
func TestShares(t *testing.T) {
	t.Parallel()
	for _, mib := range []uint64{16, 64, 93, 128, 512, 2048, 65536} {
		tree := Tree{memory: mib << 20}
		all, one := tree.allMemory(), tree.oneMemory()
		if one >= all || all >= tree.memory || one < tree.memory/5 {
			t.Errorf("of %d MiB all get %d and one %d", mib, all>>20, one>>20)
		}
		if mib >= 93 && (tree.memory-all < heldBack || one < tree.memory/2) {
			t.Errorf("of %d MiB all get %d and one %d", mib, all>>20, one>>20)
		}
	}
}
