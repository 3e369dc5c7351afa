package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/vm"
)

// freeSlug fails if another VM has the slug, or takes it from that VM if the
// record says so.
func freeSlug(ctx context.Context, tx *sql.Tx, v *vm.VM) error {
	if !v.TakeSlug {
		return slugFree(ctx, tx, "vms", "vm", v.Slug, v.ID)
	}
	v.TakeSlug = false
	holder, err := scanVM(tx.QueryRowContext(ctx, `SELECT `+vmColumns+` FROM vms WHERE slug = ? AND id <> ?`, v.Slug, v.ID))
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look slug up: %w", err)
	}
	holder.Slug, holder.UpdatedAt = "", v.UpdatedAt
	if _, err := rewriteVM(ctx, tx, &holder); err != nil {
		return fmt.Errorf("take slug: %w", err)
	}
	return nil
}

// apart fails if another VM is on the host that a rule of the record keeps this
// one away from. Writers are serialised, so none can come before the transaction
// ends.
func apart(ctx context.Context, tx *sql.Tx, v *vm.VM) error {
	for i, rule := range v.Placement {
		w := &where{}
		w.add("id <> ?", v.ID)
		w.labels(rule.MatchLabels)
		var near string
		err := tx.QueryRowContext(ctx, `SELECT id FROM vms`+w.sql()+` LIMIT 1`, w.args...).Scan(&near)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look for neighbours: %w", err)
		}
		f := fault.Conflict(api.ReasonPlacement, "placement.antiAffinity[%d]: the only host has the vm %s, whose metadata matches", i, near)
		f.Field = fmt.Sprintf("placement.antiAffinity[%d]", i)
		return f.Hint("delete %s, or leave the rule out", near)
	}
	return nil
}

// labels selects the records whose metadata has all of these.
func (w *where) labels(labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		w.add("EXISTS (SELECT 1 FROM json_each(metadata) AS m WHERE m.key = ? AND m.value = ?)", key, labels[key])
	}
}
