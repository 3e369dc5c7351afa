package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pandovm/pando/internal/operation"
)

// ClaimKey implements operation.Records.
func (s *Store) ClaimKey(ctx context.Context, r operation.Record, expired time.Time) (operation.Record, bool, error) {
	if r.CreatedAt.IsZero() {
		r.CreatedAt = s.now()
	}
	claimed := false
	err := inTx(ctx, s.write, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM idempotency_keys WHERE created_at <= ?`, expired.UnixNano()); err != nil {
			return err
		}
		found, err := scanKey(tx.QueryRowContext(ctx, `SELECT owner, key, fingerprint, seed, status, header, body, request_id, created_at
			FROM idempotency_keys WHERE owner = ? AND key = ?`, r.Owner, r.Key))
		if err == nil {
			r = found
			return nil
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		claimed = true
		_, err = tx.ExecContext(ctx, `INSERT INTO idempotency_keys (owner, key, fingerprint, seed, header, request_id, created_at)
			VALUES (?, ?, ?, ?, '{}', '', ?)`, r.Owner, r.Key, r.Fingerprint, r.Seed, r.CreatedAt.UnixNano())
		return err
	})
	if err != nil {
		return operation.Record{}, false, fmt.Errorf("claim key: %w", err)
	}
	return r, claimed, nil
}

func scanKey(r row) (operation.Record, error) {
	var rec operation.Record
	var a operation.Answer
	var status sql.NullInt64
	err := r.Scan(&rec.Owner, &rec.Key, &rec.Fingerprint, &rec.Seed, &status, document{&a.Header}, &a.Body, &a.RequestID, instant{&rec.CreatedAt})
	if status.Valid {
		a.Status = int(status.Int64)
		rec.Answer = &a
	}
	return rec, err
}

// ReseedKey implements operation.Records.
func (s *Store) ReseedKey(ctx context.Context, owner, key, seed string) error {
	return s.changeKey(ctx, `UPDATE idempotency_keys SET seed = ? WHERE owner = ? AND key = ?`, seed, owner, key)
}

// AnswerKey implements operation.Records.
func (s *Store) AnswerKey(ctx context.Context, owner, key string, a operation.Answer) error {
	header := a.Header
	if header == nil {
		header = map[string][]string{}
	}
	text, err := jsonText(header)
	if err != nil {
		return err
	}
	body := a.Body
	if body == nil {
		body = []byte{}
	}
	return s.changeKey(ctx, `UPDATE idempotency_keys SET status = ?, header = ?, body = ?, request_id = ? WHERE owner = ? AND key = ?`,
		a.Status, text, body, a.RequestID, owner, key)
}

// DropKey implements operation.Records.
func (s *Store) DropKey(ctx context.Context, owner, key string) error {
	return s.changeKey(ctx, `DELETE FROM idempotency_keys WHERE owner = ? AND key = ?`, owner, key)
}

func (s *Store) changeKey(ctx context.Context, query string, args ...any) error {
	err := inTx(ctx, s.write, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("change key: %w", err)
	}
	return nil
}
