package layer

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// FreeBytes returns what this process can still write to the file system of
// the folder dir.
func FreeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("ask for free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// Reserve checks that needed bytes can be written in the store. If not, the
// error is fault CONFLICT with reason disk_full. Nothing is set aside: others
// may be quicker, so the writer still handles a full disk with Full.
func (s *Store) Reserve(needed int64) error {
	free, err := FreeBytes(s.dir)
	if err != nil {
		return err
	}
	if free < needed {
		return diskFull(s.dir, needed, free, nil)
	}
	return nil
}

// Full turns an error that means "no space left" into fault CONFLICT with
// reason disk_full, and returns every other error as it is. needed is what the
// caller wanted to write, or 0 if it does not know.
func (s *Store) Full(needed int64, err error) error { return Full(s.dir, needed, err) }

// Full is Store.Full for a folder that is no store.
func Full(dir string, needed int64, err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	free, statErr := FreeBytes(dir)
	if statErr != nil {
		free = 0
	}
	return diskFull(dir, needed, free, err)
}

func diskFull(dir string, needed, free int64, cause error) error {
	f := fault.Conflict(api.ReasonDiskFull, "the disk is full: %d bytes needed, %d available in %s", needed, free, dir)
	f.Needed, f.Available = needed, free
	return f.With(cause).Hint("free space in %s, or delete VMs and snapshots that are no longer needed", dir)
}
