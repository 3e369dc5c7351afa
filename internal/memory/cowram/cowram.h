/*
 * cowram: the memory library that QEMU runs with (LD_PRELOAD).
 *
 * It owns how guest RAM is mapped inside QEMU. QEMU asks for a shared mapping
 * of its RAM file; it gets private memory instead, over which the daemon lays
 * extents of immutable layer files, and which a fork(2) of the process freezes.
 *
 * Invariants:
 *  - no byte of guest RAM ever reaches a file: every mapping is MAP_PRIVATE and
 *    every layer descriptor is read-only, or it is refused;
 *  - a frozen child makes system calls only. It takes no lock and allocates
 *    nothing, because other threads may have held locks when it was made;
 *  - nothing here needs /proc, root or a writable file system beyond the folder
 *    of the control socket.
 *
 * RAM is one or two regions: that of the boot, and behind it, from the moment on
 * that a VM is given more memory, the room for all that can be added.
 *
 * Environment: PANDO_RAM (path of the RAM file), PANDO_RAM_ADDED (path of the
 * file of added memory), PANDO_MEMORY_SOCKET (path of the control socket).
 * Without PANDO_RAM the library does nothing at all.
 */
#ifndef PANDO_COWRAM_H
#define PANDO_COWRAM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "protocol.h"

#define ENV_RAM "PANDO_RAM"
#define ENV_RAM_ADDED "PANDO_RAM_ADDED"
#define ENV_SOCKET "PANDO_MEMORY_SOCKET"

enum {
	PAGE_BYTES = 4096,
	/* The numbers of the regions. */
	REGION_BOOT = 0,
	REGION_ADDED = 1,
	MAX_REGIONS = 2,
};

/* fault is why an order was refused: an errno and a sentence for the log. */
struct fault {
	int code;
	char text[MAX_TEXT];
};

/* fail fills f and returns -1, so that refusals read as one line. */
int fail(struct fault *f, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* die ends QEMU with a message: going on would run a VM that cannot be saved. */
void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* raw.c: system calls that bypass the interposed functions below. */
void *raw_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
int raw_munmap(void *address, size_t length);
int raw_madvise(void *address, size_t length, int advice);

/* region.c: what guest RAM is mapped where. All calls take their own lock. */

/* region_map maps length bytes of private zero memory in place of the file of a
 * region, remembers them, and starts the control thread. */
void *region_map(uint32_t index, void *address, size_t length, int protection, int flags);

/* region_forget is called before [address, address+length) is unmapped. */
void region_forget(const void *address, size_t length);

/* region_advise handles madvise on guest RAM. It returns 0 if the range is not
 * guest RAM, and 1 if it was handled. */
int region_advise(void *address, size_t length, int advice);

/* region_find returns address and size of a live region. */
int region_find(uint32_t index, char **address, size_t *size, struct fault *f);

/* region_lay replaces the whole content of a region: zero memory, and over it
 * the extents, each a private mapping of fds[extent.layer]. Everything is
 * checked before anything is mapped; an error after that leaves the region
 * undefined, and QEMU has to be ended. */
int region_lay(uint32_t index, const struct wire_extent *extents, uint32_t count,
	const int *fds, uint32_t layers, struct fault *f);

/* frozen.c: copies of the process that stand still. */

/* freeze forks the process. The child is idle and has no descriptors; it dies
 * with the calling thread. Only reader (a pid) may read it under Yama. */
pid_t freeze(pid_t reader, struct fault *f);

/* thaw ends a child made by freeze and reaps it. */
void thaw(pid_t pid);

/* control.c: the socket and the thread that serves it. */
void control_start(void);

/* filter.c: the system calls QEMU shall never make. */
void filter_install(void);

#endif
