package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
)

// Intent is the record of work that was begun and not yet finished. It is
// written before the first outside effect, so that a restarted daemon can
// finish the work or undo it.
type Intent struct {
	ID string
	// Kind names the work, for example "fork".
	Kind string
	VMID string
	// Detail is what the work needs to be finished or undone; nil means {}.
	Detail    json.RawMessage
	CreatedAt time.Time
}

// Intents keeps the intents. All methods are safe for concurrent use.
type Intents struct{ s *Store }

// Intents returns the intents of the database.
func (s *Store) Intents() *Intents { return &Intents{s} }

// Begin records an intent; it is on disk when the call returns. A zero
// CreatedAt becomes the present moment.
func (n *Intents) Begin(ctx context.Context, i Intent) error {
	if i.CreatedAt.IsZero() {
		i.CreatedAt = n.s.now()
	}
	if i.Detail == nil {
		i.Detail = json.RawMessage(`{}`)
	}
	err := inTx(ctx, n.s.write, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO intents (id, kind, vm_id, detail, created_at) VALUES (?, ?, ?, ?, ?)`,
			i.ID, i.Kind, i.VMID, string(i.Detail), i.CreatedAt.UnixNano())
		return err
	})
	if err != nil {
		return fmt.Errorf("begin intent %s: %w", i.ID, err)
	}
	return nil
}

// Done removes an intent. One that is not there is no error.
func (n *Intents) Done(ctx context.Context, id string) error {
	return n.s.remove(ctx, "intents", id)
}

// Open lists the intents that are not done, oldest first.
func (n *Intents) Open(ctx context.Context) ([]Intent, error) {
	rows, err := n.s.read.QueryContext(ctx, `SELECT id, kind, vm_id, detail, created_at FROM intents ORDER BY seq`)
	if err != nil {
		return nil, fmt.Errorf("list intents: %w", err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err says what went wrong.
	var list []Intent
	for rows.Next() {
		var i Intent
		var detail string
		if err := rows.Scan(&i.ID, &i.Kind, &i.VMID, &detail, instant{&i.CreatedAt}); err != nil {
			return nil, fmt.Errorf("list intents: %w", err)
		}
		i.Detail = json.RawMessage(detail)
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
