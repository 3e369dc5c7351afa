package files

import (
	"syscall"

	"github.com/pandovm/pando/internal/agent/sysfile"
	"github.com/pandovm/pando/internal/link"
)

func (r *request) stat() error {
	p, err := checked(r.order.Path)
	if err != nil {
		return err
	}
	info, err := r.describe(p, "")
	if err != nil {
		return err
	}
	return r.sendInfo(info)
}

// describe returns what is at p itself, under the given name.
func (r *request) describe(p, name string) (link.FileInfo, error) {
	st, err := lstat(p)
	if err != nil {
		return link.FileInfo{}, at(p, err)
	}
	info := r.info(name, &st)
	if kind(st.Mode) == link.ModeSymlink {
		if info.Target, err = readlink(p); err != nil {
			return info, at(p, err)
		}
		if to, err := sysfile.Stat(p, true); err == nil {
			info.TargetMode = to.Mode
		}
	}
	return info, nil
}

func (r *request) info(name string, st *syscall.Stat_t) link.FileInfo {
	names := r.accountNames()
	return link.FileInfo{
		Name: name, Mode: st.Mode, Size: st.Size, ModifiedNs: st.Mtim.Nano(), UID: st.Uid, GID: st.Gid,
		Owner: names.User(st.Uid), Group: names.Group(st.Gid), Inode: int64(st.Ino),
	}
}
