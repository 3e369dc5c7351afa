package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/pandovm/pando/internal/agent/sysfile"
)

// defaultUID is the account that commands run as unless the order names one;
// root stands in where the guest has no such account.
const defaultUID = 1000

// ErrNoAccount is what a look-up of an account that the guest does not have returns.
var ErrNoAccount = errors.New("no such account")

// Account is an entry of passwd with the groups that group adds.
type Account struct {
	Name, Home, Shell string
	UID, GID          uint32
	// Groups holds GID first.
	Groups []uint32
}

// Accounts reads the account files of a folder. They are read anew for each
// command: the guest may change them at any time.
type Accounts struct {
	// Dir is the folder of passwd and group; empty means /etc.
	Dir string
}

// Find returns the account of that name, or the default one if name is empty.
// ErrNoAccount says that there is none.
func (a Accounts) Find(name string) (Account, error) {
	passwd, err := sysfile.Read(a.dir() + "/passwd")
	if err != nil {
		return Account{}, fmt.Errorf("read accounts: %w", err)
	}
	acc, ok := findAccount(passwd, name)
	if !ok {
		return Account{}, fmt.Errorf("account %q: %w", name, ErrNoAccount)
	}
	group, err := sysfile.Read(a.dir() + "/group")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Account{}, fmt.Errorf("read groups: %w", err)
	}
	acc.Groups = findGroups(group, acc.Name, acc.GID)
	return acc, nil
}

// Name returns the name of the account with that number, or the number.
func (a Accounts) Name(uid uint32) string {
	passwd, _ := sysfile.Read(a.dir() + "/passwd")
	for line := range bytes.Lines(passwd) {
		if acc, ok := parseAccount(line); ok && acc.UID == uid {
			return acc.Name
		}
	}
	return strconv.FormatUint(uint64(uid), 10)
}

func (a Accounts) dir() string {
	if a.Dir == "" {
		return "/etc"
	}
	return a.Dir
}

func findAccount(passwd []byte, name string) (Account, bool) {
	var root Account
	haveRoot := false
	for line := range bytes.Lines(passwd) {
		acc, ok := parseAccount(line)
		if !ok {
			continue
		}
		if name != "" {
			if acc.Name == name {
				return acc, true
			}
			continue
		}
		if acc.UID == defaultUID {
			return acc, true
		}
		if acc.UID == 0 && !haveRoot {
			root, haveRoot = acc, true
		}
	}
	return root, haveRoot
}

// parseAccount parses name:password:uid:gid:comment:home:shell.
func parseAccount(line []byte) (Account, bool) {
	var f [7][]byte
	if !split(bytes.TrimRight(line, "\n"), f[:]) || len(f[0]) == 0 {
		return Account{}, false
	}
	uid, ok1 := parseID(f[2])
	gid, ok2 := parseID(f[3])
	if !ok1 || !ok2 {
		return Account{}, false
	}
	acc := Account{Name: string(f[0]), UID: uid, GID: gid, Home: string(f[5]), Shell: string(f[6])}
	if acc.Shell == "" {
		acc.Shell = "/bin/sh"
	}
	if acc.Home == "" {
		acc.Home = "/"
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
