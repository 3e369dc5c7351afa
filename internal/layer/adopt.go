package layer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// temporaryPattern names files that Link is still copying.
const temporaryPattern = ".copy-*"

// Adopt moves a finished file of the same file system in under id. The file is
// made root's (where the process may) and read-only. The path may be in a
// folder of a hostile VM: whatever is no plain file with one name is refused,
// and then gone.
func (s *Store) Adopt(path string, id ID, k Kind) (Layer, error) {
	if _, err := id.Bytes(); err != nil {
		return Layer{}, fmt.Errorf("adopt layer: %w", err)
	}
	if !k.Valid() {
		return Layer{}, fmt.Errorf("adopt layer: no kind %q", k)
	}
	final := s.Path(id)
	s.markFresh(id)
	// NOREPLACE: an existing layer must not change, not even by a wrong id.
	if err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, final, unix.RENAME_NOREPLACE); err != nil {
		return Layer{}, fmt.Errorf("adopt layer %s: %w", id, &os.LinkError{Op: "rename", Old: path, New: final, Err: err})
	}
	// In our folder nobody else can swap the file any more, so it is now that
	// it is looked at.
	size, err := freezeFile(final)
	if err != nil {
		return Layer{}, errors.Join(fmt.Errorf("adopt layer %s: %w", id, err), s.Forget(id))
	}
	return Layer{ID: id, Kind: k, Bytes: size}, nil
}

// freezeFile checks that path is a plain file with one name, and makes it
// root's and read-only.
func freezeFile(path string) (int64, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close() //nolint:errcheck // read only
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		return 0, fmt.Errorf("%s is not a plain file with one name", path)
	}
	if os.Geteuid() == 0 {
		if err := f.Chown(0, 0); err != nil {
			return 0, err
		}
	}
	return st.Size, f.Chmod(frozenMode)
}

// Link brings the layer l, a file of an image, into the store: by a hard link,
// or by a copy where the file systems differ. It does nothing if the layer is
// there already. The content is not checked; Verify does that.
func (s *Store) Link(path string, l Layer) error {
	if _, err := l.ID.Bytes(); err != nil {
		return fmt.Errorf("link layer: %w", err)
	}
	final := s.Path(l.ID)
	if info, err := os.Lstat(final); err == nil && info.Mode().IsRegular() && info.Size() == l.Bytes {
		return nil
	}
	s.markFresh(l.ID)
	err := os.Link(path, final)
	switch {
	case err == nil:
		if err := os.Chmod(final, frozenMode); err != nil {
			return fmt.Errorf("link layer: %w", err)
		}
		return nil
	case errors.Is(err, fs.ErrExist):
		// Somebody was quicker, or the file is damaged, which Verify reports.
		return nil
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EPERM), errors.Is(err, unix.EMLINK):
		return s.copyIn(path, final, l.Bytes)
	}
	return fmt.Errorf("link layer %s: %w", l.ID, err)
}

// copyIn copies through a temporary name, so that a layer under its final name
// is always whole.
func (s *Store) copyIn(path, final string, size int64) (err error) {
	from, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("copy layer: %w", err)
	}
	defer from.Close() //nolint:errcheck // read only
	to, err := os.CreateTemp(s.dir, temporaryPattern)
	if err != nil {
		return s.Full(size, fmt.Errorf("copy layer: %w", err))
	}
	defer func() {
		if err != nil {
			_ = to.Close()
			_ = os.Remove(to.Name())
		}
	}()
	_, err = io.Copy(to, from)
	if err != nil {
		return s.Full(size, fmt.Errorf("copy layer: %w", err))
	}
	if err := errors.Join(to.Chmod(frozenMode), to.Sync(), to.Close()); err != nil {
		return fmt.Errorf("copy layer: %w", err)
	}
	if err := os.Rename(to.Name(), final); err != nil {
		return fmt.Errorf("copy layer: %w", err)
	}
	return syncDir(filepath.Dir(final))
}
