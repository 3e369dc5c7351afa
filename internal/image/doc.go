// Package image owns the base images: the catalogue of names and sizes, the
// building of an image (root disk, cold boot, snapshot) and the cache of built
// images.
//
// An image version is built at most once at a time, also across processes, and
// appears in the cache complete or not at all. The package imports no driver:
// root disks come from a RootBuilder and snapshots from a Baker, both wired in
// by internal/daemon. Transports and the wiring may import it.
package image
