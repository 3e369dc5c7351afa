// Package disk owns the qcow2 files of VMs: the overlay that a VM writes, the
// frozen layers below it, and the length of that chain.
//
// Invariants: qemu-img makes every image; this package writes none itself, but
// for the name of the backing file in a copy of an overlay that qemu-img made.
// Backing files are recorded relative to the overlay, so a data folder can be
// moved. Headers of overlays come from VMs that may be hostile: Info parses
// them without opening anything they point at.
//
// It imports layer, api and fault; node and image import it, the domain may not.
package disk
