package files

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/link"
)

// extractor makes the files of an archive below one folder. Every name is
// resolved by the kernel beneath that folder's descriptor: no name and no symbolic
// link leads out of it.
type extractor struct {
	r     *request
	root  int
	where string
	owner owner
	// dir is the folder of the last entry, kept open as dirFD.
	dir   string
	dirFD int
	// folders are those whose times are set at the end: filling them changes them.
	folders []link.FileInfo
}

// maxFolders bounds the folders whose times are set at the end.
const maxFolders = 64 << 10

func (r *request) extract() error {
	p, err := checked(r.order.Path)
	if err != nil {
		return err
	}
	o, err := r.newOwner()
	if err == nil {
		err = mkdirAll(p, parentMode, o)
	}
	if err != nil {
		return err
	}
	root, err := openat(unix.AT_FDCWD, p, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return at(p, err)
	}
	x := &extractor{r: r, root: root, where: p, owner: o, dirFD: -1}
	defer x.close()
	return x.run()
}

func (x *extractor) close() {
	if x.dirFD >= 0 {
		_ = unix.Close(x.dirFD)
	}
	_ = unix.Close(x.root)
}

func (x *extractor) run() error {
	for {
		t, payload, err := x.r.frames.Next()
		if errors.Is(err, io.EOF) {
			return x.finish()
		}
		if err == nil && t != link.FrameFileInfo {
			err = link.ErrFrame
		}
		var info link.FileInfo
		if err == nil {
			err = info.UnmarshalBinary(payload)
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if err := x.entry(&info); err != nil {
			return err
		}
		x.r.done.Received++
	}
}

func (x *extractor) entry(i *link.FileInfo) error {
	if i.Name == "" {
		if kind(i.Mode) != link.ModeDir {
			return refuse(link.FileBadEntry, x.where, "without a name")
		}
		return nil // the folder itself is the caller's
	}
	dir, name := "", i.Name
	if cut := strings.LastIndexByte(i.Name, '/'); cut >= 0 {
		dir, name = i.Name[:cut], i.Name[cut+1:]
	}
	if !properName(i.Name) {
		return refuse(link.FileBadEntry, i.Name, "not a name within the folder")
	}
	fd, err := x.folder(dir)
	if err != nil {
		return x.failed(i, err)
	}
	switch kind(i.Mode) {
	case link.ModeDir:
		err = x.makeFolder(fd, name, i)
	case link.ModeSymlink:
		err = x.makeLink(fd, name, i)
	case link.ModeFile:
		if i.LinkTo != "" {
			err = x.makeHardlink(fd, name, i)
		} else {
			err = x.makeFile(fd, name, i)
		}
	default:
		return refuse(link.FileNotAFile, join(x.where, i.Name), "%s", kindName(i.Mode))
	}
	return x.failed(i, err)
}

// properName tells whether a name consists of parts that go down only.
func properName(name string) bool {
	if name == "" || len(name) >= unix.PathMax || strings.IndexByte(name, 0) >= 0 {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

// failed names the entry in an error. What leads out of the folder is the
// archive's fault.
func (x *extractor) failed(i *link.FileInfo, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*refusal](err); ok {
		return err
	}
	p := join(x.where, i.Name)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ELOOP) {
		return refuse(link.FileBadEntry, p, "leads out of the folder through a symbolic link")
	}
	return at(p, err)
}

// beneath opens a path below the root for its own sake.
func (x *extractor) beneath(rel string, flags uint64) (int, error) {
	if rel == "" {
		rel = "."
	}
	for {
		fd, err := unix.Openat2(x.root, rel, &unix.OpenHow{
			Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
		})
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// folder returns the folder rel, made if it is missing; it stays the extractor's.
func (x *extractor) folder(rel string) (int, error) {
	if x.dirFD >= 0 && x.dir == rel {
		return x.dirFD, nil
	}
	fd, err := x.makeBeneath(rel)
	if err != nil {
		return -1, err
	}
	if x.dirFD >= 0 {
		_ = unix.Close(x.dirFD)
	}
	x.dir, x.dirFD = rel, fd
	return fd, nil
}

func (x *extractor) makeBeneath(rel string) (int, error) {
	fd, err := x.beneath(rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if rel == "" || !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	up, name := "", rel
	if cut := strings.LastIndexByte(rel, '/'); cut >= 0 {
		up, name = rel[:cut], rel[cut+1:]
	}
	above, err := x.makeBeneath(up)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(above) }()
	if err := mkdirAt(above, name, parentMode, x.owner); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return x.beneath(rel, unix.O_RDONLY|unix.O_DIRECTORY)
}

// ownerOf is to whom an entry shall belong.
func (x *extractor) ownerOf(i *link.FileInfo) owner {
	if x.r.order.KeepOwner {
		return owner{int(i.UID), int(i.GID)}
	}
	return x.owner
}

func (x *extractor) makeFolder(dir int, name string, i *link.FileInfo) error {
	err := mkdirAt(dir, name, i.Mode&0o7777, x.ownerOf(i))
	if errors.Is(err, unix.EEXIST) {
		// A folder that is there, or a symbolic link to one beneath, is kept.
		fd, err := x.beneath(i.Name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
	if err == nil && len(x.folders) < maxFolders {
		x.folders = append(x.folders, link.FileInfo{Name: i.Name, ModifiedNs: i.ModifiedNs})
	}
	return err
}

// makeLink makes a symbolic link, wherever it leads: following it is what is
// guarded.
func (x *extractor) makeLink(dir int, name string, i *link.FileInfo) error {
	if i.Target == "" || strings.IndexByte(i.Target, 0) >= 0 {
		return refuse(link.FileBadEntry, join(x.where, i.Name), "a symbolic link without a target")
	}
	err := unix.Symlinkat(i.Target, dir, name)
	if errors.Is(err, unix.EEXIST) {
		if err = unix.Unlinkat(dir, name, 0); err == nil {
			err = unix.Symlinkat(i.Target, dir, name)
		}
	}
	if err != nil {
		return err
	}
	o := x.ownerOf(i)
	if err := unix.Fchownat(dir, name, o.uid, o.gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return unix.UtimesNanoAt(dir, name, times(i.ModifiedNs), unix.AT_SYMLINK_NOFOLLOW)
}

// makeHardlink gives a regular file beneath the folder one more name.
func (x *extractor) makeHardlink(dir int, name string, i *link.FileInfo) error {
	if !properName(i.LinkTo) {
		return refuse(link.FileBadEntry, join(x.where, i.Name), "a hard link out of the folder")
	}
	src, err := x.beneath(i.LinkTo, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(src) }()
	var st unix.Stat_t
	if err := unix.Fstat(src, &st); err != nil {
		return err
	}
	if kind(st.Mode) != link.ModeFile {
		return refuse(link.FileBadEntry, join(x.where, i.Name), "a hard link to %s", kindName(st.Mode))
	}
	err = unix.Linkat(src, "", dir, name, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EEXIST) {
		var there unix.Stat_t
		if unix.Fstatat(dir, name, &there, unix.AT_SYMLINK_NOFOLLOW) == nil && there.Ino == st.Ino && there.Dev == st.Dev {
			return nil
		}
		if err = unix.Unlinkat(dir, name, 0); err == nil {
			err = unix.Linkat(src, "", dir, name, unix.AT_EMPTY_PATH)
		}
	}
	return err
}

// makeFile takes the content into a temporary file and renames it, which replaces
// a symbolic link instead of following it.
func (x *extractor) makeFile(dir int, name string, i *link.FileInfo) error {
	if isDirAt(dir, name) {
		return unix.EISDIR
	}
	temp := tempName()
	fd, err := openat(dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	err = x.content(fd, i)
	if err == nil {
		err = x.ownerOf(i).apply(fd, i.Mode&0o7777)
	}
	if err == nil {
		err = unix.UtimesNanoAt(dir, temp, times(i.ModifiedNs), unix.AT_SYMLINK_NOFOLLOW)
	}
	if closeErr := unix.Close(fd); err == nil {
		err = closeErr
	}
	if err == nil {
		err = unix.Renameat(dir, temp, dir, name)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, temp, 0)
	}
	return err
}

func (x *extractor) content(fd int, i *link.FileInfo) error {
	for left := i.Size; left > 0; {
		t, payload, err := x.r.frames.Next()
		if err == nil && (t != link.FrameFileData || int64(len(payload)) > left) {
			err = link.ErrFrame
		}
		if err != nil {
			return refuse(link.FileFailed, join(x.where, i.Name), "read archive: %s", err.Error())
		}
		if err := writeAll(fd, payload); err != nil {
			return err
		}
		left -= int64(len(payload))
	}
	return nil
}

// finish sets the times of folders, which filling them had changed.
func (x *extractor) finish() error {
	for k := len(x.folders) - 1; k >= 0; k-- {
		i := &x.folders[k]
		fd, err := x.beneath(i.Name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
		if err != nil {
			continue // replaced later in the archive, or by the guest
		}
		_ = unix.UtimesNanoAt(fd, ".", times(i.ModifiedNs), 0)
		_ = unix.Close(fd)
	}
	return nil
}
