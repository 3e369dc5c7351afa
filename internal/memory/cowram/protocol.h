/*
 * The control protocol between the daemon and the memory library: one request
 * and one reply per SOCK_SEQPACKET message, in the byte order of the host.
 * The Go side is protocol.go; both change together, with PROTOCOL_VERSION.
 */
#ifndef PANDO_PROTOCOL_H
#define PANDO_PROTOCOL_H

#include <stdint.h>

#define PROTOCOL_MAGIC 0x4d444e50u /* "PNDM" */

enum {
	PROTOCOL_VERSION = 1,
	/* Extents of one map, and of one message. */
	MAX_EXTENTS = 8192,
	MAX_BATCH = 1024,
	/* Layer descriptors of one map; SCM_RIGHTS carries at most 253. */
	MAX_LAYERS = 200,
	/* Bytes of an error text, with its final zero. */
	MAX_TEXT = 200,
};

enum op {
	/* OP_HELLO asks for pid, address and size of a region. */
	OP_HELLO = 1,
	/* OP_LAY_BEGIN starts a map for a RAM of size bytes; the descriptors of its
	 * count layers come with it. */
	OP_LAY_BEGIN = 2,
	/* OP_LAY_EXTENTS adds count extents, which follow the header. */
	OP_LAY_EXTENTS = 3,
	/* OP_LAY_COMMIT maps everything; count is the number of extents sent. */
	OP_LAY_COMMIT = 4,
	/* OP_FREEZE forks QEMU and answers the child's pid. */
	OP_FREEZE = 5,
	/* OP_THAW ends the frozen child pid. */
	OP_THAW = 6,
};

struct request {
	uint32_t magic;
	uint16_t version;
	uint16_t op;
	uint32_t region;
	uint32_t count;
	uint64_t size;
	uint64_t pid;
};

struct wire_extent {
	uint64_t offset;
	uint64_t length;
	uint64_t layer_offset;
	uint32_t layer;
	uint32_t reserved;
};

struct reply {
	uint32_t magic;
	uint16_t version;
	uint16_t op;
	/* code is 0 or an errno; text says more. */
	int32_t code;
	uint32_t text_length;
	uint64_t pid;
	uint64_t address;
	uint64_t size;
};

_Static_assert(sizeof(struct request) == 32, "request layout");
_Static_assert(sizeof(struct wire_extent) == 32, "extent layout");
_Static_assert(sizeof(struct reply) == 40, "reply layout");

#endif
