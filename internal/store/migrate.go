package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migration is one step of the schema. Its version is its place in the list;
// its sum tells an edited step from the one that was applied.
type migration struct {
	version   int
	name, sum string
	sql       string
}

func migrations(files fs.FS) ([]migration, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	steps := make([]migration, 0, len(names))
	for i, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		sum := sha256.Sum256(text)
		steps = append(steps, migration{version: i + 1, name: name, sum: hex.EncodeToString(sum[:]), sql: string(text)})
	}
	return steps, nil
}

func (s *Store) migrate(ctx context.Context) error {
	steps, err := migrations(migrationFiles)
	if err != nil {
		return err
	}
	return s.apply(ctx, steps)
}

// apply brings the schema to the last step. Each step and its record are one
// transaction, so a crash leaves a whole schema of some version.
func (s *Store) apply(ctx context.Context, steps []migration) error {
	const record = `CREATE TABLE IF NOT EXISTS migrations (
		version INTEGER PRIMARY KEY, name TEXT NOT NULL, sum TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT`
	if _, err := s.write.ExecContext(ctx, record); err != nil {
		return fmt.Errorf("create migrations table: %w", asFault(err))
	}
	if err := s.refuseNewer(ctx, len(steps)); err != nil {
		return err
	}
	for _, m := range steps {
		if err := inTx(ctx, s.write, func(tx *sql.Tx) error { return s.step(ctx, tx, m) }); err != nil {
			return fmt.Errorf("migrate to %s: %w", m.name, err)
		}
	}
	return nil
}

func (s *Store) refuseNewer(ctx context.Context, known int) error {
	var version int
	if err := s.write.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) FROM migrations`).Scan(&version); err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	if version > known {
		return fmt.Errorf("the database has schema %d and this program knows %d: use the newer pando", version, known)
	}
	return nil
}

func (s *Store) step(ctx context.Context, tx *sql.Tx, m migration) error {
	var sum string
	err := tx.QueryRowContext(ctx, `SELECT sum FROM migrations WHERE version = ?`, m.version).Scan(&sum)
	if err == nil {
		if sum != m.sum {
			return errors.New("the database was migrated by another text of this step")
		}
		return nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("read migration record: %w", err)
	}
	if _, err := tx.ExecContext(ctx, m.sql); err != nil {
		return fmt.Errorf("run migration: %w", err)
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO migrations (version, name, sum, applied_at) VALUES (?, ?, ?, ?)`,
		m.version, m.name, m.sum, s.now().UnixNano())
	if err != nil {
		return fmt.Errorf("record migration: %w", err)
	}
	return nil
}
