package store

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pandovm/pando/internal/vm"
)

// instant maps a time to integer nanoseconds and the zero time to NULL.
type instant struct{ t *time.Time }

func (i instant) value() any {
	if i.t.IsZero() {
		return nil
	}
	return i.t.UnixNano()
}

// Scan implements sql.Scanner.
func (i instant) Scan(src any) error {
	var n sql.NullInt64
	if err := n.Scan(src); err != nil {
		return fmt.Errorf("read time: %w", err)
	}
	*i.t = time.Time{}
	if n.Valid {
		*i.t = time.Unix(0, n.Int64).UTC()
	}
	return nil
}

// span maps a timer to whole seconds and one that does not exist to NULL.
type span struct{ t **time.Duration }

func (s span) value() any {
	if *s.t == nil {
		return nil
	}
	return int64(**s.t / time.Second)
}

// Scan implements sql.Scanner.
func (s span) Scan(src any) error {
	var n sql.NullInt64
	if err := n.Scan(src); err != nil {
		return fmt.Errorf("read timer: %w", err)
	}
	*s.t = nil
	if n.Valid {
		*s.t = new(time.Duration(n.Int64) * time.Second)
	}
	return nil
}

// document scans a list or map that is stored as JSON text.
type document struct{ v any }

// Scan implements sql.Scanner.
func (d document) Scan(src any) error {
	text, ok := src.(string)
	if !ok {
		return fmt.Errorf("decode column: got %T", src)
	}
	if err := json.Unmarshal([]byte(text), d.v); err != nil {
		return fmt.Errorf("decode column: %w", err)
	}
	return nil
}

// listText, mapText and rulesText store nil as an empty document: a column never holds
// the JSON null.
func listText(list []string) (string, error) {
	if list == nil {
		list = []string{}
	}
	return jsonText(list)
}

func mapText(m map[string]string) (string, error) {
	if m == nil {
		m = map[string]string{}
	}
	return jsonText(m)
}

func rulesText(rules []vm.AntiAffinity) (string, error) {
	if rules == nil {
		rules = []vm.AntiAffinity{}
	}
	return jsonText(rules)
}

func jsonText(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode column: %w", err)
	}
	return string(text), nil
}

// orNull stores an empty slug as NULL, which a UNIQUE column may hold often.
func orNull(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

// searchText is what a search looks into. Lower-casing happens here because
// SQLite's own knows ASCII only.
func searchText(fields ...string) string { return strings.ToLower(strings.Join(fields, "\n")) }

// insertion and assignments write the part of an INSERT or UPDATE that names
// the columns and marks their values.
func insertion(columns string) string {
	marks := strings.Repeat("?, ", strings.Count(columns, ",")) + "?"
	return "(" + columns + ") VALUES (" + marks + ")"
}

func assignments(columns string) string {
	return strings.ReplaceAll(columns, ",", " = ?,") + " = ?"
}

// where collects the conditions of a query.
type where struct {
	terms []string
	args  []any
}

func (w *where) add(term string, args ...any) {
	w.terms = append(w.terms, term)
	w.args = append(w.args, args...)
}

func (w *where) search(text string) {
	if text != "" {
		w.add("instr(search, ?) > 0", strings.ToLower(text))
	}
}

// sql returns the WHERE clause, or nothing.
func (w *where) sql() string {
	if len(w.terms) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.terms, " AND ")
}

// page returns the order and the page of a list and its arguments; newest
// first, and among equals the last inserted first.
func (w *where) page(limit, offset int) (string, []any) {
	if limit <= 0 {
		limit = -1
	}
	return w.sql() + " ORDER BY created_at DESC, seq DESC LIMIT ? OFFSET ?", append(slices.Clip(w.args), limit, max(offset, 0))
}
