// Package files does what the host orders with the guest's files.
//
// It owns the operations of link.PathFiles: reading, writing, changing, listing,
// packing and unpacking trees, watching, and uploads in parts, whose state lives
// here.
//
// Invariants:
//   - Everything runs as root, and what is made belongs to the account that
//     commands run as, or to whom the order names.
//   - A file is replaced at once or not at all: content goes into a temporary file
//     beside it, which takes its place when the content is complete.
//   - FIFOs, sockets and devices are never opened for their content: whoever opens
//     one may wait for ever.
//   - Unpacking leaves the folder that it was told to fill by no way: neither by
//     names nor by symbolic links, of the archive or of the guest.
//   - Memory is bounded whatever the size of files and folders.
//
// cmd/pando-agent and internal/guest/guesttest use it through
// internal/agent/setup; nothing else may import it.
package files
