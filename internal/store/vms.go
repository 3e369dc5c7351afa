package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/vm"
)

const vmColumns = `id, slug, display_name, state, state_reason, cpu, memory_mib, storage_mib,
	snapshot_id, snapshot_slug, image, parent_id, ancestry, forked_at, generation, run_time, running_since,
	metadata, agent_version, created_at, updated_at,
	idle_timeout, auto_delete, ttl, max_run, max_run_total, resting_since, used_at,
	automatic_restart, restarts, restart_at, placement`

// InsertVM adds a VM; a taken slug is fault CONFLICT with reason slug_taken
// unless TakeSlug is set, and a VM that Placement forbids to be near is fault
// CONFLICT with reason placement_unsatisfiable. Zero times become the present moment.
func (s *Store) InsertVM(ctx context.Context, v vm.VM) error {
	if v.CreatedAt.IsZero() {
		v.CreatedAt = s.now()
	}
	if v.UpdatedAt.IsZero() {
		v.UpdatedAt = v.CreatedAt
	}
	err := inTx(ctx, s.write, func(tx *sql.Tx) error {
		if err := errors.Join(freeSlug(ctx, tx, &v), apart(ctx, tx, &v)); err != nil {
			return err
		}
		values, err := vmValues(&v)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO vms `+insertion(vmColumns+", search"), values...) //nolint:gosec // The text is made of constants.
		return err
	})
	if err != nil {
		return fmt.Errorf("insert vm %s: %w", v.ID, err)
	}
	return nil
}

// UpdateVM applies change to the record in one transaction and returns the
// result with a new updated-at time. An error or panic in change leaves the
// record as it was. The id cannot change. Other writers wait while change
// runs, so it must neither wait nor write to the store.
func (s *Store) UpdateVM(ctx context.Context, id string, change func(*vm.VM) error) (vm.VM, error) {
	var v vm.VM
	err := inTx(ctx, s.write, func(tx *sql.Tx) error {
		var err error
		if v, err = scanVM(tx.QueryRowContext(ctx, `SELECT `+vmColumns+` FROM vms WHERE id = ?`, id)); err != nil {
			return err
		}
		if err := change(&v); err != nil {
			return err
		}
		v.ID, v.UpdatedAt = id, s.now()
		v, err = rewriteVM(ctx, tx, &v)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return vm.VM{}, fault.NotFound("vm", id)
	}
	if err != nil {
		return vm.VM{}, fmt.Errorf("update vm %s: %w", id, err)
	}
	return v, nil
}

// rewriteVM stores the record and returns it as a later read would.
func rewriteVM(ctx context.Context, tx *sql.Tx, v *vm.VM) (vm.VM, error) {
	if err := freeSlug(ctx, tx, v); err != nil {
		return vm.VM{}, err
	}
	values, err := vmValues(v)
	if err != nil {
		return vm.VM{}, err
	}
	query := `UPDATE vms SET ` + assignments(vmColumns+", search") + ` WHERE id = ? RETURNING ` + vmColumns
	return scanVM(tx.QueryRowContext(ctx, query, append(values, v.ID)...))
}

// NoteUse sets the time of use and nothing else. A VM that is not there is no
// error.
func (s *Store) NoteUse(ctx context.Context, id string, at time.Time) error {
	err := inTx(ctx, s.write, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE vms SET used_at = ? WHERE id = ?`, at.UnixNano(), id)
		return err
	})
	if err != nil {
		return fmt.Errorf("note use of vm %s: %w", id, err)
	}
	return nil
}

// FindVM looks a VM up by id or slug; fault NOT_FOUND if there is none. An id
// wins over a slug of the same text.
func (s *Store) FindVM(ctx context.Context, ref string) (vm.VM, error) {
	v, err := scanVM(s.read.QueryRowContext(ctx,
		`SELECT `+vmColumns+` FROM vms WHERE id = ?1 OR slug = ?1 ORDER BY id = ?1 DESC LIMIT 1`, ref))
	if errors.Is(err, sql.ErrNoRows) {
		return vm.VM{}, fault.NotFound("vm", ref)
	}
	if err != nil {
		return vm.VM{}, fmt.Errorf("find vm: %w", err)
	}
	return v, nil
}

// ListVMs returns the page asked for, newest first, and the number of VMs per
// state that match the filter without its State, Limit and Offset. Page and
// counts are of one moment. SnapshotID in the filter may be an id or a slug.
func (s *Store) ListVMs(ctx context.Context, f vm.Filter) ([]vm.VM, map[api.State]int, error) {
	var list []vm.VM
	var counts map[api.State]int
	w := vmWhere(f)
	err := inTx(ctx, s.read, func(tx *sql.Tx) error {
		var err error
		if counts, err = countVMs(ctx, tx, w); err != nil {
			return err
		}
		if f.State != "" {
			w.add("state = ?", f.State)
		}
		tail, args := w.page(f.Limit, f.Offset)
		list, err = selectVMs(ctx, tx, tail, args)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list vms: %w", err)
	}
	return list, counts, nil
}

// DeleteVM removes the record and frees its slug. A record that is not there
// is no error.
func (s *Store) DeleteVM(ctx context.Context, id string) error {
	return s.remove(ctx, "vms", id)
}

func vmWhere(f vm.Filter) *where {
	w := &where{}
	if f.Slug != "" {
		w.add("slug = ?", f.Slug)
	}
	if f.SnapshotID != "" {
		w.add("(snapshot_id = ? OR snapshot_id IN (SELECT id FROM snapshots WHERE slug = ?))", f.SnapshotID, f.SnapshotID)
	}
	w.search(f.Search)
	w.labels(f.Metadata)
	return w
}

func countVMs(ctx context.Context, tx *sql.Tx, w *where) (map[api.State]int, error) {
	rows, err := tx.QueryContext(ctx, `SELECT state, count(*) FROM vms`+w.sql()+` GROUP BY state`, w.args...) //nolint:gosec // The text is made of constants.
	if err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err says what went wrong.
	counts := map[api.State]int{}
	for rows.Next() {
		var state api.State
		var n int
		if err := rows.Scan(&state, &n); err != nil {
			return nil, fmt.Errorf("count: %w", err)
		}
		counts[state] = n
	}
	return counts, rows.Err()
}

func selectVMs(ctx context.Context, tx *sql.Tx, tail string, args []any) ([]vm.VM, error) {
	rows, err := tx.QueryContext(ctx, `SELECT `+vmColumns+` FROM vms`+tail, args...) //nolint:gosec // The text is made of constants.
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err says what went wrong.
	var list []vm.VM
	for rows.Next() {
		v, err := scanVM(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}

// row is what *sql.Row and *sql.Rows have in common.
type row interface{ Scan(dest ...any) error }

func scanVM(r row) (vm.VM, error) {
	var v vm.VM
	var slug sql.NullString
	err := r.Scan(&v.ID, &slug, &v.DisplayName, &v.State, &v.StateReason,
		&v.Resources.CPU, &v.Resources.Memory, &v.Resources.Storage,
		&v.SnapshotID, &v.SnapshotSlug, &v.Image, &v.ParentID, document{&v.Ancestry}, instant{&v.ForkedAt},
		&v.Generation, &v.RunTime, instant{&v.RunningSince},
		document{&v.Metadata}, &v.AgentVersion, instant{&v.CreatedAt}, instant{&v.UpdatedAt},
		span{&v.Timers.Idle}, span{&v.Timers.AutoDelete}, span{&v.Timers.TTL}, span{&v.Timers.MaxRun}, span{&v.Timers.MaxRunTotal},
		instant{&v.RestingSince}, instant{&v.UsedAt}, &v.AutomaticRestart, &v.Restarts, instant{&v.RestartAt}, document{&v.Placement})
	v.Slug = slug.String
	return v, err
}

// vmValues is the record in the order of vmColumns and the search text.
func vmValues(v *vm.VM) ([]any, error) {
	ancestry, err := listText(v.Ancestry)
	if err != nil {
		return nil, err
	}
	metadata, err := mapText(v.Metadata)
	if err != nil {
		return nil, err
	}
	placement, err := rulesText(v.Placement)
	if err != nil {
		return nil, err
	}
	return []any{
		v.ID, orNull(v.Slug), v.DisplayName, v.State, v.StateReason,
		v.Resources.CPU, v.Resources.Memory, v.Resources.Storage,
		v.SnapshotID, v.SnapshotSlug, v.Image, v.ParentID, ancestry, instant{&v.ForkedAt}.value(),
		v.Generation, int64(v.RunTime), instant{&v.RunningSince}.value(),
		metadata, v.AgentVersion, instant{&v.CreatedAt}.value(), instant{&v.UpdatedAt}.value(),
		span{&v.Timers.Idle}.value(), span{&v.Timers.AutoDelete}.value(), span{&v.Timers.TTL}.value(),
		span{&v.Timers.MaxRun}.value(), span{&v.Timers.MaxRunTotal}.value(),
		instant{&v.RestingSince}.value(), instant{&v.UsedAt}.value(), v.AutomaticRestart, v.Restarts, instant{&v.RestartAt}.value(), placement,
		searchText(v.ID, v.Slug, v.DisplayName, v.Image),
	}, nil
}
