// Package images holds the recipes of the base images: package lists, scripts
// and files that go into guests, embedded in the binary.
//
// It owns data only. internal/rootfs reads it and nothing else should. Each
// recipe is one folder:
//
//	<name>/append      kernel command line, one or more parameters per line
//	<name>/packages    Debian packages (debian only)
//	<name>/customize   script run inside the new root (debian only)
//	<name>/files/      tree laid over the root; a file that starts with "#!" is executable
//	boot/              the initramfs that every recipe boots through
//
// A changed byte in a recipe is a new version of the image.
package images

import (
	"embed"
	"io/fs"
)

//go:embed all:boot all:busybox all:debian
var recipes embed.FS

// FS returns the folder of all recipes.
func FS() fs.FS { return recipes }
