package process

import (
	"bytes"
	"strconv"

	"github.com/pandovm/pando/internal/agent/sysfile"
)

// Names are the names of accounts and groups at one time. The zero Names knows
// none. It is not safe for concurrent use.
type Names struct {
	users, groups map[uint32]string
	gids          map[string]uint32
}

// Names reads all accounts and groups. What cannot be read has no names.
func (a Accounts) Names() *Names {
	n := &Names{users: map[uint32]string{}, groups: map[uint32]string{}, gids: map[string]uint32{}}
	passwd, _ := sysfile.Read(a.dir() + "/passwd")
	for line := range bytes.Lines(passwd) {
		if acc, ok := parseAccount(line); ok {
			if _, known := n.users[acc.UID]; !known {
				n.users[acc.UID] = acc.Name
			}
		}
	}
	group, _ := sysfile.Read(a.dir() + "/group")
	for line := range bytes.Lines(group) {
		var f [4][]byte
		if !split(bytes.TrimRight(line, "\n"), f[:]) {
			continue
		}
		id, ok := parseID(f[2])
		if !ok {
			continue
		}
		if _, known := n.groups[id]; !known {
			n.groups[id] = string(f[0])
		}
		if _, known := n.gids[string(f[0])]; !known {
			n.gids[string(f[0])] = id
		}
	}
	return n
}

// User returns the name of an account, its digits if it has none.
func (n *Names) User(uid uint32) string { return nameOr(n.users, uid) }

// Group returns the name of a group, its digits if it has none.
func (n *Names) Group(gid uint32) string { return nameOr(n.groups, gid) }

// GID returns the number of a group.
func (n *Names) GID(group string) (uint32, bool) {
	gid, ok := n.gids[group]
	return gid, ok
}

func nameOr(names map[uint32]string, id uint32) string {
	if name, ok := names[id]; ok {
		return name
	}
	return strconv.FormatUint(uint64(id), 10)
}
