package process

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFindAccount(t *testing.T) {
	t.Parallel()
	const users = "root:x:0:0:root:/root:/bin/bash\ntoor:x:0:0::/:/bin/sh\nu:x:1000:5:A B,,,:/home/u:\nlast:x:7:8:::/bin/sh"
	root := Account{Name: "root", Home: "/root", Shell: "/bin/bash"}
	u := Account{Name: "u", Home: "/home/u", Shell: "/bin/sh", UID: 1000, GID: 5}
	for name, c := range map[string]struct {
		passwd, name string
		want         Account
		ok           bool
	}{
		"by name":           {users, "u", u, true},
		"default":           {users, "", u, true},
		"default root":      {"x:x:5:5::/:/bin/sh\n" + users[:48], "", root, true},
		"no last newline":   {users, "last", Account{Name: "last", Home: "/", Shell: "/bin/sh", UID: 7, GID: 8}, true},
		"unknown":           {users, "nobody", Account{}, false},
		"not by number":     {users, "1000", Account{}, false},
		"empty":             {"", "", Account{}, false},
		"too few fields":    {"u:x:1000:5:A:/home/u\n", "u", Account{}, false},
		"too many fields":   {"u:x:1000:5:A:/home/u:/bin/sh:\n", "u", Account{}, false},
		"number too large":  {"u:x:4294967296:5:A:/home/u:/bin/sh\n", "u", Account{}, false},
		"number is no one":  {"u:x:-1:5:A:/home/u:/bin/sh\n", "u", Account{}, false},
		"name with newline": {"u:x:1000:5:A:/home/u:/bin/sh\n", "u\n", Account{}, false},
	} {
		got, ok := findAccount([]byte(c.passwd), c.name)
		if ok != c.ok {
			t.Errorf("%s: found %v", name, ok)
		}
		if diff := cmp.Diff(c.want, got); ok && diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestFindGroups(t *testing.T) {
	t.Parallel()
	const groups = "own:x:5:u\na:x:6:x,u,y\nb:x:7:ux\nc:x:8:\nbroken\nd:x:9:u"
	if diff := cmp.Diff([]uint32{5, 6, 9}, findGroups([]byte(groups), "u", 5)); diff != "" {
		t.Error(diff)
	}
}

func TestAccountFiles(t *testing.T) {
	t.Parallel()
	if _, err := (Accounts{Dir: t.TempDir()}).Find(""); err == nil || errors.Is(err, ErrNoAccount) {
		t.Errorf("without passwd: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/passwd", []byte("root:x:0:0::/root:/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Accounts{Dir: dir}.Find("")
	if err != nil || got.Name != "root" || len(got.Groups) != 1 {
		t.Errorf("without group: %+v, %v", got, err)
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	a := Account{Name: "u", Home: "/h", Shell: "/s"}
	got := environment(a, []string{"PATH=/x", "NEW=1=2", "NEW=3", "HOM=x"})
	want := []string{"HOME=/h", "USER=u", "LOGNAME=u", "SHELL=/s", "PATH=/x", "LANG=C.UTF-8", "NEW=3", "HOM=x"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzAccounts(f *testing.F) {
	f.Add([]byte("root:x:0:0:root:/root:/bin/bash\nu:x:1000:5::/home/u:"), []byte("g:x:5:u,v\n"), "u")
	f.Add([]byte(":::::::\n\n::"), []byte(":::\n,"), "")
	f.Fuzz(func(t *testing.T, passwd, group []byte, name string) {
		a, ok := findAccount(passwd, name)
		if !ok {
			return
		}
		if name != "" && a.Name != name || a.Shell == "" || a.Home == "" {
			t.Fatalf("asked for %q, found %+v", name, a)
		}
		if g := findGroups(group, a.Name, a.GID); g[0] != a.GID {
			t.Fatalf("groups %v", g)
		}
	})
}
