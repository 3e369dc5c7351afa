package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/snapshot"
)

const snapshotColumns = `id, slug, display_name, source_vm_id, source_vm_slug, source_vm_display_name,
	public, cpu, memory_mib, storage_mib, image, durable, ancestry, bytes, last_used_at, created_at, updated_at, auto_delete, ttl`

// InsertSnapshot adds a record; a taken slug is fault CONFLICT with reason
// slug_taken. Zero times become the present moment.
func (s *Store) InsertSnapshot(ctx context.Context, r snapshot.Snapshot) error {
	if r.CreatedAt.IsZero() {
		r.CreatedAt = s.now()
	}
	if r.UpdatedAt.IsZero() {
		r.UpdatedAt = r.CreatedAt
	}
	err := inTx(ctx, s.write, func(tx *sql.Tx) error {
		if err := slugFree(ctx, tx, "snapshots", "snapshot", r.Slug, r.ID); err != nil {
			return err
		}
		values, err := snapshotValues(&r)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO snapshots `+insertion(snapshotColumns+", search"), values...) //nolint:gosec // The text is made of constants.
		return err
	})
	if err != nil {
		return fmt.Errorf("insert snapshot %s: %w", r.ID, err)
	}
	return nil
}

// UpdateSnapshot applies change in one transaction and returns the result with
// a new updated-at time. An error or panic in change leaves the record as it
// was. The id cannot change. Other writers wait while change
// runs, so it must neither wait nor write to the store.
func (s *Store) UpdateSnapshot(
	ctx context.Context, id string, change func(*snapshot.Snapshot) error,
) (snapshot.Snapshot, error) {
	var r snapshot.Snapshot
	err := inTx(ctx, s.write, func(tx *sql.Tx) error {
		var err error
		r, err = scanSnapshot(tx.QueryRowContext(ctx, `SELECT `+snapshotColumns+` FROM snapshots WHERE id = ?`, id))
		if err != nil {
			return err
		}
		if err := change(&r); err != nil {
			return err
		}
		r.ID, r.UpdatedAt = id, s.now()
		r, err = rewriteSnapshot(ctx, tx, &r)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return snapshot.Snapshot{}, fault.NotFound("snapshot", id)
	}
	if err != nil {
		return snapshot.Snapshot{}, fmt.Errorf("update snapshot %s: %w", id, err)
	}
	return r, nil
}

// rewriteSnapshot stores the record and returns it as a later read would.
func rewriteSnapshot(ctx context.Context, tx *sql.Tx, r *snapshot.Snapshot) (snapshot.Snapshot, error) {
	if err := slugFree(ctx, tx, "snapshots", "snapshot", r.Slug, r.ID); err != nil {
		return snapshot.Snapshot{}, err
	}
	values, err := snapshotValues(r)
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	query := `UPDATE snapshots SET ` + assignments(snapshotColumns+", search") + ` WHERE id = ? RETURNING ` + snapshotColumns
	return scanSnapshot(tx.QueryRowContext(ctx, query, append(values, r.ID)...))
}

// FindSnapshot looks a snapshot up by id or slug; fault NOT_FOUND if there is
// none. An id wins over a slug of the same text.
func (s *Store) FindSnapshot(ctx context.Context, ref string) (snapshot.Snapshot, error) {
	r, err := scanSnapshot(s.read.QueryRowContext(ctx,
		`SELECT `+snapshotColumns+` FROM snapshots WHERE id = ?1 OR slug = ?1 ORDER BY id = ?1 DESC LIMIT 1`, ref))
	if errors.Is(err, sql.ErrNoRows) {
		return snapshot.Snapshot{}, fault.NotFound("snapshot", ref)
	}
	if err != nil {
		return snapshot.Snapshot{}, fmt.Errorf("find snapshot: %w", err)
	}
	return r, nil
}

// ListSnapshots returns the page of private snapshots, newest first, and the
// number that match. SourceVMID in the filter may be the id of any VM, or the
// slug of one that exists.
func (s *Store) ListSnapshots(ctx context.Context, f snapshot.Filter) ([]snapshot.Snapshot, int, error) {
	var list []snapshot.Snapshot
	var total int
	w := snapshotWhere(f)
	err := inTx(ctx, s.read, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, `SELECT count(*) FROM snapshots`+w.sql(), w.args...).Scan(&total)
		if err != nil {
			return fmt.Errorf("count: %w", err)
		}
		tail, args := w.page(f.Limit, f.Offset)
		list, err = selectSnapshots(ctx, tx, tail, args)
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list snapshots: %w", err)
	}
	return list, total, nil
}

// DeleteSnapshot removes the record and frees its slug. A record that is not
// there is no error.
func (s *Store) DeleteSnapshot(ctx context.Context, id string) error {
	return s.remove(ctx, "snapshots", id)
}

func snapshotWhere(f snapshot.Filter) *where {
	w := &where{}
	w.add("public = 0")
	if f.SourceVMID != "" {
		w.add("(source_vm_id = ? OR source_vm_id IN (SELECT id FROM vms WHERE slug = ?))", f.SourceVMID, f.SourceVMID)
	}
	w.search(f.Search)
	return w
}

func selectSnapshots(ctx context.Context, tx *sql.Tx, tail string, args []any) ([]snapshot.Snapshot, error) {
	rows, err := tx.QueryContext(ctx, `SELECT `+snapshotColumns+` FROM snapshots`+tail, args...) //nolint:gosec // The text is made of constants.
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err says what went wrong.
	var list []snapshot.Snapshot
	for rows.Next() {
		r, err := scanSnapshot(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

func scanSnapshot(row row) (snapshot.Snapshot, error) {
	var r snapshot.Snapshot
	var slug sql.NullString
	err := row.Scan(&r.ID, &slug, &r.DisplayName, &r.SourceVMID, &r.SourceVMSlug, &r.SourceVMDisplayName,
		&r.Public, &r.Resources.CPU, &r.Resources.Memory, &r.Resources.Storage, &r.Image, &r.Durable,
		document{&r.Ancestry}, &r.Bytes, instant{&r.LastUsedAt}, instant{&r.CreatedAt}, instant{&r.UpdatedAt},
		span{&r.AutoDelete}, span{&r.TTL})
	r.Slug = slug.String
	return r, err
}

// snapshotValues is the record in the order of snapshotColumns and the search
// text.
func snapshotValues(r *snapshot.Snapshot) ([]any, error) {
	ancestry, err := listText(r.Ancestry)
	if err != nil {
		return nil, err
	}
	return []any{
		r.ID, orNull(r.Slug), r.DisplayName, r.SourceVMID, r.SourceVMSlug, r.SourceVMDisplayName,
		r.Public, r.Resources.CPU, r.Resources.Memory, r.Resources.Storage, r.Image, r.Durable,
		ancestry, r.Bytes, instant{&r.LastUsedAt}.value(), instant{&r.CreatedAt}.value(), instant{&r.UpdatedAt}.value(),
		span{&r.AutoDelete}.value(), span{&r.TTL}.value(),
		searchText(r.ID, r.Slug, r.DisplayName, r.Image, r.SourceVMID, r.SourceVMSlug, r.SourceVMDisplayName),
	}, nil
}
