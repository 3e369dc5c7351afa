/* What guest RAM is mapped where. */
#include "cowram.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* span is a range of a region that a layer is mapped into. */
struct span {
	size_t offset, length;
};

struct region {
	char *address;
	size_t size;
	int protection;
	/* Ascending. Everywhere else the region is anonymous memory. */
	struct span spans[MAX_EXTENTS];
	uint32_t count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region regions[MAX_REGIONS];

void *region_map(uint32_t index, void *address, size_t length, int protection, int flags)
{
	struct region *r = &regions[index];
	char *ram = MAP_FAILED;

	pthread_mutex_lock(&lock);
	if (r->address != NULL || length == 0 || length % PAGE_BYTES != 0) {
		/* A second mapping of the same file would be a second, different RAM. */
		errno = EBUSY;
		goto out;
	}
	flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE));
	ram = raw_mmap(address, length, protection, flags, -1, 0);
	if (ram == MAP_FAILED)
		goto out;
	/* A huge page would turn one written byte into 2 MiB of own memory. */
	raw_madvise(ram, length, MADV_NOHUGEPAGE);
	r->address = ram;
	r->size = length;
	r->protection = protection;
	r->count = 0;
out:
	pthread_mutex_unlock(&lock);
	if (ram != MAP_FAILED)
		control_start();
	return ram;
}

/* find returns the live region that [address, address+length) touches. */
static struct region *find(const char *address, size_t length)
{
	for (uint32_t i = 0; i < MAX_REGIONS; i++) {
		struct region *r = &regions[i];
		if (r->address != NULL && address < r->address + r->size && address + length > r->address)
			return r;
	}
	return NULL;
}

void region_forget(const void *address, size_t length)
{
	struct region *r;

	pthread_mutex_lock(&lock);
	r = find(address, length);
	if (r != NULL)
		r->address = NULL;
	pthread_mutex_unlock(&lock);
}

/* discard makes [from, to) of a region read as zero. Anonymous pages are given
 * back. Pages over a layer are overwritten: dropping them would bring the
 * layer's content back, and a capture would take them for inherited. */
static void discard(struct region *r, size_t from, size_t to)
{
	size_t at = from;

	for (uint32_t i = 0; i < r->count && at < to; i++) {
		size_t start = r->spans[i].offset, end = start + r->spans[i].length;
		if (end <= at)
			continue;
		if (start >= to)
			break;
		if (start > at)
			raw_madvise(r->address + at, start - at, MADV_DONTNEED);
		else
			start = at;
		if (end > to)
			end = to;
		memset(r->address + start, 0, end - start);
		at = end;
	}
	if (at < to)
		raw_madvise(r->address + at, to - at, MADV_DONTNEED);
}

static int discards(int advice)
{
	return advice == MADV_DONTNEED || advice == MADV_REMOVE || advice == MADV_FREE || advice == 24 /* MADV_DONTNEED_LOCKED */;
}

int region_advise(void *address, size_t length, int advice)
{
	struct region *r;
	char *start = address, *end;

	/* The kernel refuses the one and rounds the other up. */
	if ((uintptr_t)address % PAGE_BYTES != 0)
		return 0;
	length = (length + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	end = start + length;
	pthread_mutex_lock(&lock);
	r = find(start, length);
	if (r != NULL && discards(advice)) {
		if (start < r->address)
			start = r->address;
		if (end > r->address + r->size)
			end = r->address + r->size;
		discard(r, (size_t)(start - r->address), (size_t)(end - r->address));
	}
	pthread_mutex_unlock(&lock);
	/* All other advice is swallowed: DONTFORK would empty the captures, and
	 * HUGEPAGE and MERGEABLE would change what counts as an own page. */
	return r != NULL;
}

int region_find(uint32_t index, char **address, size_t *size, struct fault *f)
{
	int result = 0;

	pthread_mutex_lock(&lock);
	if (index >= MAX_REGIONS || regions[index].address == NULL) {
		result = fail(f, ENOENT, "there is no memory region %u", index);
	} else {
		*address = regions[index].address;
		*size = regions[index].size;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

/* check_layers refuses descriptors through which a layer could be changed. */
static int check_layers(const int *fds, uint32_t layers, off_t *sizes, struct fault *f)
{
	for (uint32_t i = 0; i < layers; i++) {
		struct stat s;
		int flags = fcntl(fds[i], F_GETFL);
		if (flags < 0 || fstat(fds[i], &s) != 0)
			return fail(f, errno, "layer %u: %s", i, strerror(errno));
		if (!S_ISREG(s.st_mode))
			return fail(f, EINVAL, "layer %u is not a regular file", i);
		if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_PATH))
			return fail(f, EINVAL, "layer %u is not open for reading only", i);
		sizes[i] = s.st_size;
	}
	return 0;
}

static int aligned(uint64_t n)
{
	return n % PAGE_BYTES == 0;
}

static int check_extents(const struct wire_extent *e, uint32_t count, size_t ram,
	const off_t *sizes, uint32_t layers, struct fault *f)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < count; i++, e++) {
		if (!aligned(e->offset) || !aligned(e->length) || !aligned(e->layer_offset) || e->length == 0)
			return fail(f, EINVAL, "extent %u is not made of whole pages", i);
		if (e->offset < end)
			return fail(f, EINVAL, "extent %u overlaps or is out of order", i);
		if (e->length > ram || e->offset > ram - e->length)
			return fail(f, ERANGE, "extent %u ends beyond the RAM of %zu bytes", i, ram);
		if (e->layer >= layers)
			return fail(f, EINVAL, "extent %u names layer %u of %u", i, e->layer, layers);
		/* Touching a page behind the end of a file is a SIGBUS later on. */
		if (e->length > (uint64_t)sizes[e->layer] || e->layer_offset > (uint64_t)sizes[e->layer] - e->length)
			return fail(f, ERANGE, "extent %u ends beyond layer %u of %lld bytes", i, e->layer,
				(long long)sizes[e->layer]);
		end = e->offset + e->length;
	}
	return 0;
}

static int lay(struct region *r, const struct wire_extent *e, uint32_t count, const int *fds, struct fault *f)
{
	const int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;

	r->count = 0;
	if (raw_mmap(r->address, r->size, r->protection, flags | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		return fail(f, errno, "map zero memory: %s", strerror(errno));
	raw_madvise(r->address, r->size, MADV_NOHUGEPAGE);
	for (uint32_t i = 0; i < count; i++, e++) {
		if (raw_mmap(r->address + e->offset, e->length, r->protection, flags, fds[e->layer],
			(off_t)e->layer_offset) == MAP_FAILED)
			return fail(f, errno, "map extent %u of %u: %s", i, count, strerror(errno));
		r->spans[i].offset = e->offset;
		r->spans[i].length = e->length;
		r->count = i + 1;
	}
	return 0;
}

int region_lay(uint32_t index, const struct wire_extent *extents, uint32_t count,
	const int *fds, uint32_t layers, struct fault *f)
{
	off_t sizes[MAX_LAYERS];
	int result;

	if (count > MAX_EXTENTS || layers > MAX_LAYERS)
		return fail(f, EINVAL, "%u extents over %u layers are too many", count, layers);
	if (check_layers(fds, layers, sizes, f) != 0)
		return -1;
	pthread_mutex_lock(&lock);
	if (index >= MAX_REGIONS || regions[index].address == NULL)
		result = fail(f, ENOENT, "there is no memory region %u", index);
	else if (check_extents(extents, count, regions[index].size, sizes, layers, f) != 0)
		result = -1;
	else
		result = lay(&regions[index], extents, count, fds, f);
	pthread_mutex_unlock(&lock);
	return result;
}
