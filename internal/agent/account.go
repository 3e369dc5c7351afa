package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// defaultUID is the account that commands run as unless the order names one;
// root stands in where the guest has no such account.
const defaultUID = 1000

var errNoAccount = errors.New("no such account")

// account is an entry of passwd with the groups that group adds.
type account struct {
	name, home, shell string
	uid, gid          uint32
	groups            []uint32
}

// accounts reads the account files of a folder. They are read anew for each
// command: the guest may change them at any time.
type accounts struct{ dir string }

// find returns the account of that name, or the default one if name is empty.
func (a accounts) find(name string) (account, error) {
	passwd, err := readFile(a.dir + "/passwd")
	if err != nil {
		return account{}, fmt.Errorf("read accounts: %w", err)
	}
	acc, ok := findAccount(passwd, name)
	if !ok {
		return account{}, fmt.Errorf("account %q: %w", name, errNoAccount)
	}
	group, err := readFile(a.dir + "/group")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return account{}, fmt.Errorf("read groups: %w", err)
	}
	acc.groups = findGroups(group, acc.name, acc.gid)
	return acc, nil
}

func findAccount(passwd []byte, name string) (account, bool) {
	var root account
	haveRoot := false
	for line := range bytes.Lines(passwd) {
		acc, ok := parseAccount(line)
		if !ok {
			continue
		}
		if name != "" {
			if acc.name == name {
				return acc, true
			}
			continue
		}
		if acc.uid == defaultUID {
			return acc, true
		}
		if acc.uid == 0 && !haveRoot {
			root, haveRoot = acc, true
		}
	}
	return root, haveRoot
}

// parseAccount parses name:password:uid:gid:comment:home:shell.
func parseAccount(line []byte) (account, bool) {
	var f [7][]byte
	if !split(bytes.TrimRight(line, "\n"), f[:]) || len(f[0]) == 0 {
		return account{}, false
	}
	uid, ok1 := parseID(f[2])
	gid, ok2 := parseID(f[3])
	if !ok1 || !ok2 {
		return account{}, false
	}
	acc := account{name: string(f[0]), uid: uid, gid: gid, home: string(f[5]), shell: string(f[6])}
	if acc.shell == "" {
		acc.shell = "/bin/sh"
	}
	if acc.home == "" {
		acc.home = "/"
	}
	return acc, true
}

// findGroups returns gid and the groups of which name is a member.
func findGroups(group []byte, name string, gid uint32) []uint32 {
	ids := []uint32{gid}
	for line := range bytes.Lines(group) {
		var f [4][]byte
		if !split(bytes.TrimRight(line, "\n"), f[:]) {
			continue
		}
		id, ok := parseID(f[2])
		if ok && id != gid && isMember(f[3], name) {
			ids = append(ids, id)
		}
	}
	return ids
}

func isMember(list []byte, name string) bool {
	for m := range bytes.SplitSeq(list, []byte{','}) {
		if string(m) == name {
			return true
		}
	}
	return false
}

// split cuts line at colons into exactly len(f) fields.
func split(line []byte, f [][]byte) bool {
	for i := range f {
		head, rest, more := bytes.Cut(line, []byte{':'})
		if more != (i < len(f)-1) {
			return false
		}
		f[i], line = head, rest
	}
	return true
}

func parseID(b []byte) (uint32, bool) {
	n, err := strconv.ParseUint(string(b), 10, 32)
	return uint32(n), err == nil
}
