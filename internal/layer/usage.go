package layer

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Sole returns the bytes on disk of the layers that only owner holds: what goes
// when owner drops them.
func (s *Store) Sole(owner string) (int64, error) {
	total := int64(0)
	for _, id := range s.soleIDs(owner) {
		n, err := Allocated(s.Path(id))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it went meanwhile
			return 0, err
		}
		total += n
	}
	return total, nil
}

func (s *Store) soleIDs(owner string) []ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []ID
	for id := range s.held[owner] {
		if len(s.holders[id]) == 1 {
			ids = append(ids, id)
		}
	}
	return ids
}

// Allocated returns the bytes that a file takes on disk; holes take none.
func Allocated(path string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("measure %s: %w", path, err)
	}
	return st.Blocks * 512, nil
}
