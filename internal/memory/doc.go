// Package memory owns the RAM of VMs: maps of extents over immutable layers,
// the library that lays such a map inside QEMU (cowram/, embedded here), and
// the capture of a running VM's own pages into a new layer.
//
// Invariants: a Map that Validate accepts can be laid; gaps read as zero; what
// a guest writes never reaches a layer; a capture reads a frozen copy of QEMU,
// so that the VM runs on while it is written; a captured Map reads, page by
// page, as the RAM did at the moment of the fork.
//
// QEMU may be hostile: everything that comes from its control socket is bounded
// and checked, and the process that is read is proven to be QEMU's child. What
// a hostile QEMU can still do is lie about the content of its own memory.
//
// It imports layer, api and fault; node and image import it, the domain may not.
package memory

// The library is built from cowram/ by gcc (see Makefile) before go build.
//
//go:generate make --no-print-directory
