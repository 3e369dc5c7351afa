// Package link is the wire protocol of the guest link: what the host and the
// agent in the guest say to each other over one virtio-serial port.
//
// It owns the byte formats and their parsers, and does no I/O of its own beyond
// the readers and writers that it is given.
//
//	host → guest   token[16] length[4] fnv1a[4] epoch record     the preamble
//	guest → host   nonce[16] length[4] fnv1a[4] confirmation record
//	then HTTP/2, the guest being the server
//
// Invariants:
//   - A preamble restarts the link from any state, in the middle of any frame. It
//     is recognised by its token alone, so a token never appears in the stream
//     except at the head of a preamble: records carry tokens complemented.
//   - The fresh token is public. It is good only while no session is established;
//     an established one ends by the secret token of the epoch that opened it.
//   - Numbers are big-endian. A record is a list of fields, tag[1] length[4]
//     payload; unknown tags are skipped, so that an agent frozen in an old
//     snapshot and a newer daemon understand each other.
//   - Every length is bounded before memory is taken for it: each side treats the
//     other's bytes as hostile.
//
// internal/guest, internal/agent and their tests import it; internal/node and
// internal/image may, for the types.
package link
