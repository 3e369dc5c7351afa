package cli

import (
	"context"

	"github.com/pandovm/pando/api"
)

// removal is what the rm commands print with --json.
type removal struct {
	Deleted []string              `json:"deleted"`
	Failed  map[string]*api.Error `json:"failed,omitempty"`
}

// removeEach deletes every object that refs name, going on after failures.
func (a *app) removeEach(ctx context.Context, refs []string, remove func(context.Context, string) error) error {
	result := removal{Deleted: []string{}, Failed: map[string]*api.Error{}}
	for _, ref := range refs {
		err := remove(ctx, ref)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			result.Deleted = append(result.Deleted, ref)
		} else {
			result.Failed[ref] = a.describe(err)
		}
		if a.json {
			continue
		}
		if err != nil {
			a.reportFor(printable(ref), err)
		} else if err := a.print("%s deleted", printable(ref)); err != nil {
			return err
		}
	}
	if a.json {
		if err := a.printJSON(result); err != nil {
			return err
		}
	}
	if len(result.Failed) > 0 {
		return exitError(exitFailure)
	}
	return nil
}
