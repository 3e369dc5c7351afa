package doctor

import "context"

// ExamineIn is Examine on the files below root instead of the host's.
func ExamineIn(ctx context.Context, root string, o Options) Report {
	e := &examination{Options: o, root: root}
	return e.run(ctx)
}
