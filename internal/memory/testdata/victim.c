/* A process with RAM like QEMU's: it maps the file of PANDO_RAM shared, and that
 * of PANDO_RAM_ADDED for what is behind it, then obeys lines on stdin. Every order is answered by one line, dump by the RAM. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *ram, *added;
static size_t size, boot;

/* at finds an offset in the one region or the other. */
static char *at(size_t offset)
{
	return offset < boot ? ram + offset : added + (offset - boot);
}

static void die(const char *what)
{
	perror(what);
	exit(3);
}

static uint64_t next(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* fill writes 64 random bytes over and over, others in every 4 KiB. */
static void fill(size_t offset, size_t length, uint64_t seed)
{
	uint64_t unit[8];

	for (size_t i = 0; i < length; i += 8) {
		if (i % 4096 == 0)
			for (int w = 0; w < 8; w++)
				unit[w] = next(&seed);
		memcpy(at(offset + i), &unit[i / 8 % 8], 8);
	}
}

static void execute(const char *how)
{
	char *none[] = {NULL};
	if (!strcmp(how, "execve"))
		execve("/bin/true", none, none);
	else
		fexecve(open("/bin/true", O_RDONLY), none, none);
	printf("%s\n", strerror(errno));
}

static void obey(const char *line)
{
	char word[32];
	size_t offset = 0, length = 0;
	uint64_t seed = 0;
	int advice;

	if (sscanf(line, "fill %zu %zu %" SCNu64, &offset, &length, &seed) == 3)
		fill(offset, length, seed);
	else if (sscanf(line, "zero %zu %zu", &offset, &length) == 2)
		for (size_t i = 0; i < length; i += 8)
			memset(at(offset + i), 0, 8);
	else if (sscanf(line, "touch %zu %zu", &offset, &length) == 2)
		for (size_t i = 0; i < length; i += 4096)
			(void)*(volatile char *)at(offset + i);
	else if (sscanf(line, "advise %zu %zu %d", &offset, &length, &advice) == 3) {
		printf("%s\n", madvise(ram + offset, length, advice) == 0 ? "ok" : strerror(errno));
		return;
	} else if (!strcmp(line, "dump\n")) {
		fwrite(ram, 1, boot, stdout);
		fwrite(added, 1, size - boot, stdout);
		return;
	} else if (sscanf(line, "exec %31s", word) == 1) {
		execute(word);
		return;
	} else if (!strcmp(line, "again\n")) {
		int fd = open(getenv("PANDO_RAM"), O_RDWR);
		void *p = mmap(NULL, boot, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		printf("%s\n", p == MAP_FAILED ? strerror(errno) : "ok");
		return;
	} else if (!strcmp(line, "unmap\n"))
		munmap(ram, boot);
	else {
		printf("what?\n");
		return;
	}
	printf("ok\n");
}

static char *map(const char *variable, size_t length)
{
	int fd = open(getenv(variable), O_RDWR);
	char *p;

	if (fd < 0)
		die("open RAM file");
	p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

/* The arguments are how much RAM is used, how much of it is that of the boot, and
 * how large the region behind that is. */
int main(int argc, char **argv)
{
	static char line[256];
	size_t room = argc == 4 ? strtoull(argv[3], NULL, 0) : 0;

	size = strtoull(argv[1], NULL, 0);
	boot = argc == 4 ? strtoull(argv[2], NULL, 0) : size;
	/* The added region first: which is which must not depend on the order. */
	if (room > 0)
		added = map("PANDO_RAM_ADDED", room);
	ram = map("PANDO_RAM", boot);
	printf("ready\n");
	for (fflush(stdout); fgets(line, sizeof line, stdin); fflush(stdout))
		obey(line);
	return 0;
}
