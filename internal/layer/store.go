package layer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// dirMode lets VM users open layers by name without listing them.
	dirMode = 0o711
	// frozenMode is the mode of a sealed layer: nobody writes.
	frozenMode = 0o444
	draftMode  = 0o600
)

// Store keeps layers in one folder. All methods are safe for concurrent use.
type Store struct {
	dir string

	// mu guards the maps and is held across the unlink of a file, so that a
	// Hold either comes before it and prevents it, or after it.
	mu      sync.Mutex
	holders map[ID]map[string]struct{}
	held    map[string]map[ID]struct{}
	// fresh are layers of this process that nobody has held yet.
	fresh map[ID]struct{}

	checks checks
}

// Open returns the Store of the folder dir and makes the folder if need be. A
// folder has one Store at a time.
func Open(dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolve layer folder: %w", err)
	}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("make layer folder: %w", err)
	}
	if err := os.Chmod(dir, dirMode); err != nil {
		return nil, fmt.Errorf("open layer folder to vms: %w", err)
	}
	return &Store{
		dir:     dir,
		holders: map[ID]map[string]struct{}{},
		held:    map[string]map[ID]struct{}{},
		fresh:   map[ID]struct{}{},
		checks:  checks{running: map[ID]chan struct{}{}, good: map[ID]identity{}},
	}, nil
}

// Dir returns the absolute path of the folder.
func (s *Store) Dir() string { return s.dir }

// Path returns the absolute path of a layer. An id that does not parse leads to
// a path that does not exist.
func (s *Store) Path(id ID) string {
	if _, err := ParseID(string(id)); err != nil {
		return filepath.Join(s.dir, "malformed-layer-id")
	}
	return filepath.Join(s.dir, string(id))
}

// Hold adds ids to what owner (a vm or a snapshot) holds. The ids must be held
// by somebody already, or be fresh: an unheld layer may be deleted at any time.
func (s *Store) Hold(owner string, ids ...ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold(owner, ids)
}

func (s *Store) hold(owner string, ids []ID) {
	for _, id := range ids {
		if s.holders[id] == nil {
			s.holders[id] = map[string]struct{}{}
		}
		if s.held[owner] == nil {
			s.held[owner] = map[ID]struct{}{}
		}
		s.holders[id][owner] = struct{}{}
		s.held[owner][id] = struct{}{}
		delete(s.fresh, id)
	}
}

// Drop ends all holds of owner and deletes the files whose last holder that
// was. An error names files that could not be deleted; the holds are gone.
func (s *Store) Drop(owner string) error { return s.Replace(owner) }

// Replace makes ids exactly what owner holds, in one step, and deletes the
// files whose last holder it was. An error is as with Drop.
func (s *Store) Replace(owner string, ids ...ID) error {
	s.mu.Lock()
	before := s.held[owner]
	delete(s.held, owner)
	s.hold(owner, ids)
	var orphans []ID
	for id := range before {
		if _, kept := s.held[owner][id]; kept {
			continue
		}
		delete(s.holders[id], owner)
		if len(s.holders[id]) == 0 {
			delete(s.holders, id)
			orphans = append(orphans, id)
		}
	}
	closers, err := s.unlink(orphans)
	s.mu.Unlock()
	return errors.Join(err, closeAll(closers))
}

// Forget deletes the files of ids that nobody holds, and leaves the others
// alone: the way to undo a layer that was sealed but never held.
func (s *Store) Forget(ids ...ID) error {
	s.mu.Lock()
	var orphans []ID
	for _, id := range ids {
		if len(s.holders[id]) == 0 {
			orphans = append(orphans, id)
		}
	}
	closers, err := s.unlink(orphans)
	s.mu.Unlock()
	return errors.Join(err, closeAll(closers))
}

// Sweep deletes the layers that nobody holds and returns their ids. It is for
// the start of a process, after every Hold; layers that this process has made
// and not yet held are left alone.
func (s *Store) Sweep() ([]ID, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list layer folder: %w", err)
	}
	s.mu.Lock()
	var orphans []ID
	var errs []error
	for _, e := range entries {
		id, err := ParseID(e.Name())
		if err != nil {
			errs = append(errs, s.sweepTemporary(e.Name()))
			continue
		}
		if _, isFresh := s.fresh[id]; !isFresh && len(s.holders[id]) == 0 {
			orphans = append(orphans, id)
		}
	}
	closers, err := s.unlink(orphans)
	s.mu.Unlock()
	return orphans, errors.Join(errors.Join(errs...), err, closeAll(closers))
}

// sweepTemporary removes what an interrupted copy left. Other foreign files are
// not ours to delete.
func (s *Store) sweepTemporary(name string) error {
	if ok, _ := filepath.Match(temporaryPattern, name); !ok {
		return nil
	}
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove temporary file: %w", err)
	}
	return nil
}

// Holders returns the owners of a layer, in no order.
func (s *Store) Holders(id ID) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	owners := make([]string, 0, len(s.holders[id]))
	for owner := range s.holders[id] {
		owners = append(owners, owner)
	}
	return owners
}

// unlink removes the names of files under the lock. The files stay open until
// the lock is free: giving back the blocks of a large file takes long, and a
// fork that wants to Hold must not wait for it.
func (s *Store) unlink(ids []ID) ([]int, error) {
	var fds []int
	var errs []error
	for _, id := range ids {
		path := s.Path(id)
		if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0); err == nil {
			fds = append(fds, fd)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("delete layer: %w", err))
		}
		delete(s.fresh, id)
		s.checks.forget(id)
	}
	return fds, errors.Join(errs...)
}

func closeAll(fds []int) error {
	var errs []error
	for _, fd := range fds {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}

func (s *Store) markFresh(id ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.holders[id]) == 0 {
		s.fresh[id] = struct{}{}
	}
}
