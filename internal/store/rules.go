package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/network"
)

const (
	ruleColumns = `id, source_vm, destination_vm, source, destination, description, created_at, updated_at`
	tlsColumns  = ruleColumns + `, domain, protocol, door, transform, match`
)

// InsertRules implements network.Repository.
func (s *Store) InsertRules(ctx context.Context, firewall []network.Rule, tls []network.TLSRule) error {
	err := inTx(ctx, s.write, func(tx *sql.Tx) error {
		if err := roomFor(ctx, tx, "firewall_rules", len(firewall), network.MaxFirewallRules); err != nil {
			return err
		}
		if err := roomFor(ctx, tx, "tls_rules", len(tls), network.MaxTLSRules); err != nil {
			return err
		}
		for i := range firewall {
			if err := insertRule(ctx, tx, s.dated(firewall[i])); err != nil {
				return err
			}
		}
		for i := range tls {
			if err := insertTLSRule(ctx, tx, s.datedTLS(tls[i])); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("insert rules: %w", ruleFault(err))
	}
	return nil
}

// roomFor fails if n more rows were too many. The table is a constant.
func roomFor(ctx context.Context, tx *sql.Tx, table string, n, limit int) error {
	if n == 0 {
		return nil
	}
	var have int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM `+table).Scan(&have); err != nil {
		return fmt.Errorf("count rules: %w", err)
	}
	if have+n > limit {
		f := fault.Conflict(api.ReasonRuleLimit, "there are %d rules, and with %d more there were more than %d", have, n, limit)
		return f.Hint("delete rules that nobody needs")
	}
	return nil
}

func (s *Store) dated(r network.Rule) network.Rule {
	if r.CreatedAt.IsZero() {
		r.CreatedAt = s.now()
	}
	if r.UpdatedAt.IsZero() {
		r.UpdatedAt = r.CreatedAt
	}
	return r
}

func (s *Store) datedTLS(r network.TLSRule) network.TLSRule {
	if r.CreatedAt.IsZero() {
		r.CreatedAt = s.now()
	}
	if r.UpdatedAt.IsZero() {
		r.UpdatedAt = r.CreatedAt
	}
	return r
}

func insertRule(ctx context.Context, tx *sql.Tx, r network.Rule) error {
	source, destination, err := endsText(r.Source, r.Destination)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO firewall_rules `+insertion(ruleColumns), //nolint:gosec // The text is made of constants.
		r.ID, r.Source.VMID, r.Destination.VMID, source, destination, r.Description,
		instant{&r.CreatedAt}.value(), instant{&r.UpdatedAt}.value())
	return err
}

func endsText(source, destination any) (string, string, error) {
	a, err := jsonText(source)
	if err != nil {
		return "", "", err
	}
	b, err := jsonText(destination)
	return a, b, err
}

func insertTLSRule(ctx context.Context, tx *sql.Tx, r network.TLSRule) error {
	values, err := tlsValues(&r)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO tls_rules `+insertion(tlsColumns), values...) //nolint:gosec // The text is made of constants.
	return err
}

// tlsValues is the rule in the order of tlsColumns.
func tlsValues(r *network.TLSRule) ([]any, error) {
	source, destination, err := endsText(r.Source, r.Destination)
	if err != nil {
		return nil, err
	}
	transform, match, err := endsText(r.Transform, r.Match)
	if err != nil {
		return nil, err
	}
	door := sql.NullInt64{Int64: int64(r.Door()), Valid: r.Door() != 0}
	return []any{
		r.ID, r.Source.VMID, r.Destination.VMID, source, destination, r.Description,
		instant{&r.CreatedAt}.value(), instant{&r.UpdatedAt}.value(), r.Domain, r.Protocol, door, transform, match,
	}, nil
}

// ruleFault gives the failures that follow from what else is kept their codes.
func ruleFault(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() {
	case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
		return &fault.Error{
			Code: api.CodeNotFound, Message: "a vm that the rule names is gone", Remedy: "name another vm", Err: err,
		}
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE:
		f := fault.Conflict(api.ReasonDomainTaken, "domain: another rule serves it")
		f.Field = "domain"
		return f.Hint("change that rule, or choose another domain").With(err)
	}
	return err
}

// FindRule implements network.Repository.
func (s *Store) FindRule(ctx context.Context, id string) (network.Rule, error) {
	r, err := scanRule(s.read.QueryRowContext(ctx, `SELECT `+ruleColumns+` FROM firewall_rules WHERE id = ?`, id))
	return r, found(err, "firewall rule", id)
}

// FindTLSRule implements network.Repository.
func (s *Store) FindTLSRule(ctx context.Context, id string) (network.TLSRule, error) {
	r, err := scanTLSRule(s.read.QueryRowContext(ctx, `SELECT `+tlsColumns+` FROM tls_rules WHERE id = ?`, id))
	return r, found(err, "tls rule", id)
}

func found(err error, kind, id string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return noRule(kind, id)
	}
	if err != nil {
		return fmt.Errorf("find %s: %w", kind, err)
	}
	return nil
}

func noRule(kind, id string) error {
	return &fault.Error{
		Code: api.CodeNotFound, Message: fmt.Sprintf("no %s has the id %.100q", kind, id),
		Remedy: "list what exists; a rule goes with any vm that it names",
	}
}

func scanRule(r row) (network.Rule, error) {
	var out network.Rule
	var source, destination sql.NullString
	err := r.Scan(&out.ID, &source, &destination, document{&out.Source}, document{&out.Destination}, &out.Description,
		instant{&out.CreatedAt}, instant{&out.UpdatedAt})
	return out, err
}

func scanTLSRule(r row) (network.TLSRule, error) {
	var out network.TLSRule
	var source, destination sql.NullString
	var door sql.NullInt64
	err := r.Scan(&out.ID, &source, &destination, document{&out.Source}, document{&out.Destination}, &out.Description,
		instant{&out.CreatedAt}, instant{&out.UpdatedAt}, &out.Domain, &out.Protocol, &door, document{&out.Transform}, document{&out.Match})
	return out, err
}

// ListRules implements network.Repository.
func (s *Store) ListRules(ctx context.Context, f network.RuleFilter) ([]network.Rule, int, error) {
	w := &where{}
	ofVM(w, f.VM)
	return listRules(ctx, s.read, "firewall_rules", ruleColumns, w, f.Limit, f.Offset, scanRule)
}

// ListTLSRules implements network.Repository.
func (s *Store) ListTLSRules(ctx context.Context, f network.TLSFilter) ([]network.TLSRule, int, error) {
	w := &where{}
	ofVM(w, f.VM)
	if f.Domain != "" {
		w.add("domain = ?", f.Domain)
	}
	return listRules(ctx, s.read, "tls_rules", tlsColumns, w, f.Limit, f.Offset, scanTLSRule)
}

func ofVM(w *where, id string) {
	if id != "" {
		w.add("(source_vm = ? OR destination_vm = ?)", id, id)
	}
}

// listRules reads a page and the number on all pages, of one moment. Table and
// columns are constants.
func listRules[T any](
	ctx context.Context, db *sql.DB, table, columns string, w *where, limit, offset int, scan func(row) (T, error),
) (list []T, total int, err error) {
	err = inTx(ctx, db, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, `SELECT count(*) FROM `+table+w.sql(), w.args...).Scan(&total)
		if err != nil {
			return err
		}
		tail, args := w.page(limit, offset)
		rows, err := tx.QueryContext(ctx, `SELECT `+columns+` FROM `+table+tail, args...) //nolint:gosec // The text is made of constants.
		if err != nil {
			return err
		}
		defer rows.Close() //nolint:errcheck // rows.Err says what went wrong.
		for rows.Next() {
			r, err := scan(rows)
			if err != nil {
				return err
			}
			list = append(list, r)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list %s: %w", table, err)
	}
	return list, total, nil
}

// DeleteRule implements network.Repository.
func (s *Store) DeleteRule(ctx context.Context, id string) error {
	return s.removeRule(ctx, "firewall_rules", "firewall rule", id)
}

// DeleteTLSRule implements network.Repository.
func (s *Store) DeleteTLSRule(ctx context.Context, id string) error {
	return s.removeRule(ctx, "tls_rules", "tls rule", id)
}

func (s *Store) removeRule(ctx context.Context, table, kind, id string) error {
	return inTx(ctx, s.write, func(tx *sql.Tx) error {
		var gone string
		err := tx.QueryRowContext(ctx, `DELETE FROM `+table+` WHERE id = ? RETURNING id`, id).Scan(&gone)
		return found(err, kind, id)
	})
}

// ReplaceTLSRule implements network.Repository.
func (s *Store) ReplaceTLSRule(ctx context.Context, r network.TLSRule) (network.TLSRule, error) {
	r = s.datedTLS(r)
	err := inTx(ctx, s.write, func(tx *sql.Tx) error {
		old, err := scanTLSRule(tx.QueryRowContext(ctx, `SELECT `+tlsColumns+` FROM tls_rules WHERE id = ?`, r.ID))
		if err != nil {
			return found(err, "tls rule", r.ID)
		}
		r.CreatedAt = old.CreatedAt
		values, err := tlsValues(&r)
		if err != nil {
			return err
		}
		query := `UPDATE tls_rules SET ` + assignments(tlsColumns) + ` WHERE id = ? RETURNING ` + tlsColumns
		r, err = scanTLSRule(tx.QueryRowContext(ctx, query, append(values, r.ID)...))
		return err
	})
	if err != nil {
		return network.TLSRule{}, fmt.Errorf("replace tls rule: %w", ruleFault(err))
	}
	return r, nil
}

// FindMachine implements network.Machines.
func (s *Store) FindMachine(ctx context.Context, ref string) (network.Machine, error) {
	v, err := s.FindVM(ctx, ref)
	return network.Machine{ID: v.ID, Slug: v.Slug, DisplayName: v.DisplayName}, err
}

// NameMachines implements network.Machines.
func (s *Store) NameMachines(ctx context.Context, ids []string) (map[string]network.Machine, error) {
	text, err := listText(ids)
	if err != nil {
		return nil, err
	}
	rows, err := s.read.QueryContext(ctx,
		`SELECT id, coalesce(slug, ''), display_name FROM vms WHERE id IN (SELECT value FROM json_each(?))`, text)
	if err != nil {
		return nil, fmt.Errorf("name vms: %w", err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err says what went wrong.
	names := map[string]network.Machine{}
	for rows.Next() {
		var m network.Machine
		if err := rows.Scan(&m.ID, &m.Slug, &m.DisplayName); err != nil {
			return nil, fmt.Errorf("name vms: %w", err)
		}
		names[m.ID] = m
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("name vms: %w", err)
	}
	return names, nil
}
