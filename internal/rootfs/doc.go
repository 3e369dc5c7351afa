// Package rootfs makes root disks from distribution packages: it runs
// mmdebstrap, turns the result into an ext4 image with mke2fs, puts the agent
// into it and packs the initramfs.
//
// It owns CACHE/rootfs. A bootstrapped system is kept there under the digest of
// its recipe, complete or not at all, and is made by one process at a time; the
// agent and the size are applied to a private copy afterwards, so neither makes
// the packages install again. No file system is ever mounted on the host.
//
// It implements image.RootBuilder. Only the wiring may import it.
package rootfs
