package files

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent/process"
	"github.com/pandovm/pando/internal/link"
)

// owner is to whom a file shall belong; -1 leaves it as it is.
type owner struct{ uid, gid int }

// newOwner is to whom what is made belongs: the order's owner and group, else the
// account that commands run as. An owner without a group brings its own.
func (r *request) newOwner() (owner, error) {
	o, err := r.namedOwner()
	if err != nil || o.uid >= 0 && o.gid >= 0 {
		return o, err
	}
	a, err := r.accounts.Find("")
	switch {
	case errors.Is(err, process.ErrNoAccount):
		a = process.Account{}
	case err != nil:
		a = process.Account{} // a guest whose accounts cannot be read still has root
	}
	if o.uid < 0 {
		o.uid = int(a.UID)
	}
	if o.gid < 0 {
		o.gid = int(a.GID)
	}
	return o, nil
}

// namedOwner is what the order says.
func (r *request) namedOwner() (owner, error) {
	o := owner{-1, -1}
	if name := r.order.Owner; name != "" {
		a, err := r.accounts.Find(name)
		if err == nil {
			o = owner{int(a.UID), int(a.GID)}
		} else if o.uid, err = number(name); err != nil {
			return o, refuse(link.FileNoOwner, name, "no such account")
		}
	}
	if name := r.order.Group; name != "" {
		gid, ok := r.accountNames().GID(name)
		o.gid = int(gid)
		if !ok {
			n, err := number(name)
			if err != nil {
				return o, refuse(link.FileNoGroup, name, "no such group")
			}
			o.gid = n
		}
	}
	return o, nil
}

func number(text string) (int, error) {
	const nobody = 1<<32 - 1 // means "leave it" to chown
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == nobody {
		return -1, fmt.Errorf("%q is not an id", text)
	}
	return int(n), nil
}

func (r *request) accountNames() *process.Names {
	if r.names == nil {
		r.names = r.accounts.Names()
	}
	return r.names
}

// apply gives what fd refers to away and sets its permissions: in this order,
// since giving a file away clears its set-user-id bit.
func (o owner) apply(fd int, mode uint32) error {
	if err := unix.Fchown(fd, o.uid, o.gid); err != nil {
		return err
	}
	return unix.Fchmod(fd, mode)
}

func itoa(n int) string { return strconv.Itoa(n) }
