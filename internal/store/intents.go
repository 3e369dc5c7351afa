package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pandovm/pando/internal/vm"
)

// BeginIntent records an intent; it is on disk when the call returns. Beginning
// one again changes nothing. A zero CreatedAt becomes the present moment.
func (s *Store) BeginIntent(ctx context.Context, i vm.Intent) error {
	if i.CreatedAt.IsZero() {
		i.CreatedAt = s.now()
	}
	err := inTx(ctx, s.write, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx,
			`INSERT INTO intents (id, kind, vm_id, created_at) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
			i.ID, i.Kind, i.VMID, i.CreatedAt.UnixNano())
		return err
	})
	if err != nil {
		return fmt.Errorf("begin intent %s: %w", i.ID, err)
	}
	return nil
}

// EndIntent removes an intent. One that is not there is no error.
func (s *Store) EndIntent(ctx context.Context, id string) error {
	return s.remove(ctx, "intents", id)
}

// OpenIntents lists what was begun and not ended, oldest first.
func (s *Store) OpenIntents(ctx context.Context) ([]vm.Intent, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT id, kind, vm_id, created_at FROM intents ORDER BY seq`)
	if err != nil {
		return nil, fmt.Errorf("list intents: %w", err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err says what went wrong.
	var list []vm.Intent
	for rows.Next() {
		var i vm.Intent
		if err := rows.Scan(&i.ID, &i.Kind, &i.VMID, instant{&i.CreatedAt}); err != nil {
			return nil, fmt.Errorf("list intents: %w", err)
		}
		list = append(list, i)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list intents: %w", err)
	}
	return list, nil
}

// remove deletes the record with that id. The table is a constant of this
// package.
func (s *Store) remove(ctx context.Context, table, id string) error {
	err := inTx(ctx, s.write, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM `+table+` WHERE id = ?`, id) //nolint:gosec // See above.
		return err
	})
	if err != nil {
		return fmt.Errorf("delete %s from %s: %w", id, table, err)
	}
	return nil
}
