package image

import "context"

// Progress tells a person how far a long step is. total is 0 while it is not
// known; done and total are in the step's own units. It may be called from
// several goroutines.
type Progress func(step string, done, total int64)

// RootOrder asks for the root disk of one image.
type RootOrder struct {
	// Recipe is the folder of the recipe: "debian" or "busybox".
	Recipe string
	// DiskMiB is the size of the root disk.
	DiskMiB int
}

// Root is what a machine needs for a cold boot. The files live until Release.
type Root struct {
	// RawDisk is a sparse raw file with an ext4 file system in it.
	RawDisk string
	// Kernel and Initrd are booted directly, without a boot loader.
	Kernel, Initrd string
	// Append is the kernel command line.
	Append string
	// Release removes the files; it may be called more than once.
	Release func() error
}

// RootBuilder makes root disks.
type RootBuilder interface {
	// Digest identifies everything that goes into the recipe's root: files,
	// packages asked for, agent. Equal digests give interchangeable roots.
	Digest(recipe string) (string, error)
	// Build makes the root disk. What takes long is kept in the cache, and
	// processes that ask for the same thing at once wait for one build.
	Build(ctx context.Context, order RootOrder, progress Progress) (Root, error)
}
