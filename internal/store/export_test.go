package store

import (
	"context"
	"fmt"
)

// LimitPages makes the database full at that many pages more than it has.
func (s *Store) LimitPages(ctx context.Context, more int) error {
	var pages int
	if err := s.write.QueryRowContext(ctx, `PRAGMA page_count`).Scan(&pages); err != nil {
		return err
	}
	_, err := s.write.ExecContext(ctx, fmt.Sprintf(`PRAGMA max_page_count = %d`, pages+more))
	return err
}
