/* The functions that QEMU calls and the library answers. */
#include "cowram.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* Private anonymous mappings from this size on stay out of frozen children.
 * The emulator's code buffer is the one that matters: it is 256 MiB, and a
 * child needs none of it, but copying its page tables would be paid for while
 * the guest stands still. */
#define LARGE_MAPPING (16u << 20)

static int is_shared(int flags)
{
	int type = flags & MAP_TYPE;
	return type == MAP_SHARED || type == MAP_SHARED_VALIDATE;
}

/* is_at tells whether a descriptor is of the file that an environment variable
 * names. It compares device and inode, since a jail has no /proc in which to look
 * a descriptor's path up. */
static int is_at(const struct stat *got, const char *variable)
{
	const char *path = getenv(variable);
	struct stat wanted;

	return path != NULL && stat(path, &wanted) == 0 &&
		wanted.st_dev == got->st_dev && wanted.st_ino == got->st_ino;
}

/* region_of returns the region whose file a descriptor is of, or -1. */
static int region_of(int fd)
{
	struct stat got;

	if (fstat(fd, &got) != 0)
		return -1;
	if (is_at(&got, ENV_RAM))
		return REGION_BOOT;
	return is_at(&got, ENV_RAM_ADDED) ? REGION_ADDED : -1;
}

static void *map(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	void *mapped;
	int region, saved;

	if (fd >= 0 && is_shared(flags) && (region = region_of(fd)) >= 0)
		return region_map((uint32_t)region, address, length, protection, flags);
	mapped = raw_mmap(address, length, protection, flags, fd, offset);
	if (mapped != MAP_FAILED && (flags & MAP_ANONYMOUS) && !is_shared(flags) &&
	    length >= LARGE_MAPPING && getenv(ENV_RAM) != NULL) {
		saved = errno;
		raw_madvise(mapped, length, MADV_DONTFORK);
		errno = saved;
	}
	return mapped;
}

EXPORT void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	return map(address, length, protection, flags, fd, offset);
}

EXPORT void *mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	return map(address, length, protection, flags, fd, offset);
}

EXPORT int munmap(void *address, size_t length)
{
	region_forget(address, length);
	return raw_munmap(address, length);
}

EXPORT int madvise(void *address, size_t length, int advice)
{
	if (region_advise(address, length, advice))
		return 0;
	return raw_madvise(address, length, advice);
}

EXPORT int posix_madvise(void *address, size_t length, int advice)
{
	/* POSIX_MADV_DONTNEED must not drop pages, unlike MADV_DONTNEED. */
	if (advice == POSIX_MADV_DONTNEED)
		return 0;
	return madvise(address, length, advice) == 0 ? 0 : errno;
}

__attribute__((constructor)) static void load(void)
{
	if (getenv(ENV_RAM) == NULL)
		return;
	if (sysconf(_SC_PAGESIZE) != PAGE_BYTES)
		die("pages of this host have %ld bytes, only %d is supported",
			sysconf(_SC_PAGESIZE), PAGE_BYTES);
	filter_install();
}
