package link

import "fmt"

// PathGrow asks the agent to take into use what the machine has been given. Its
// body is one FrameOrder with a Growth, its answer a FrameReply.
const PathGrow = "/grow"

// UnknownRequest is the Reply.Error of an agent that does not know a path.
const UnknownRequest = "unknown request"

// Growth is the size that a guest shall have reached. Zero fields ask for nothing.
type Growth struct {
	// CPUs is how many shall be online.
	CPUs int64
	// MemoryBytes is how much memory shall be online, that of the boot included.
	MemoryBytes int64
	// DiskBytes is the size of the root disk that its file system shall fill.
	DiskBytes int64
}

const (
	growthCPUs = iota + 1
	growthMemory
	growthDisk
)

// MarshalBinary encodes g as a record. It never fails.
func (g Growth) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.int(growthCPUs, g.CPUs)
	enc.int(growthMemory, g.MemoryBytes)
	enc.int(growthDisk, g.DiskBytes)
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (g *Growth) UnmarshalBinary(b []byte) error {
	*g = Growth{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case growthCPUs:
			g.CPUs = d.int()
		case growthMemory:
			g.MemoryBytes = d.int()
		case growthDisk:
			g.DiskBytes = d.int()
		}
	}
	if d.err != nil {
		return fmt.Errorf("decode growth: %w", d.err)
	}
	return nil
}
