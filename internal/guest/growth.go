package guest

import (
	"context"
	"fmt"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/link"
)

// Growth is the size that a guest shall have reached. Zero fields ask for nothing.
type Growth struct {
	CPUs int
	// MemoryBytes is all memory that shall be online, DiskBytes the size of the
	// root disk that its file system shall fill.
	MemoryBytes, DiskBytes int64
}

// Grow orders the guest to take into use what it was given, and returns when it
// has: CPUs and memory are online, and the file system has grown. It can be
// repeated. A guest that could not is fault VM_NON_RESPONSIVE, an agent that
// does not know how fault AGENT_UNSUPPORTED.
func (l *Link) Grow(ctx context.Context, g Growth) error {
	record, _ := link.Growth{CPUs: int64(g.CPUs), MemoryBytes: g.MemoryBytes, DiskBytes: g.DiskBytes}.MarshalBinary()
	r, err := l.request(ctx, link.PathGrow, link.AppendFrame(nil, link.FrameOrder, record))
	switch {
	case err == nil:
		return nil
	case r.Error == link.UnknownRequest:
		return (&fault.Error{
			Code: api.CodeAgentUnsupported, Message: "the agent in this guest is too old to take a new size into use",
			Remedy: "stop the vm and start it again: it boots with the new size",
		}).With(err)
	case r.Error != "":
		return (&fault.Error{
			Code: api.CodeVMNonResponsive, Message: fmt.Sprintf("the guest did not take the new size into use: %.300q", r.Error),
			Remedy: "resize it to the same size again, or restart it",
		}).With(err)
	}
	return err
}
