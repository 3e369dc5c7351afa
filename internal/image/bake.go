package image

import (
	"context"

	"github.com/pandovm/pando/api"
)

// BakeOrder asks for a base image made out of a root disk.
type BakeOrder struct {
	// Image is the image's name, for errors.
	Image     string
	Resources api.Resources
	// RawDisk, Kernel and Initrd are files, Append is the kernel's command line.
	RawDisk, Kernel, Initrd, Append string
	// Warm are shell commands that are run, as the default user, before the
	// capture, so that what they touch is in memory in every VM.
	Warm []string
	// Dir is the output folder: manifest.json and layers/.
	Dir string
	// Step is called with the name of each step that begins; it is not nil.
	Step func(name string)
}

// Baker makes base images: a cold boot, until the guest has settled, and a capture.
type Baker interface {
	Bake(ctx context.Context, o BakeOrder) error
}
