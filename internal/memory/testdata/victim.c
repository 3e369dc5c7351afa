/* A process with RAM like QEMU's: it maps the file of PANDO_RAM shared, then
 * obeys lines on stdin. Every order is answered by one line, dump by the RAM. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *ram;
static size_t size;

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
		memcpy(ram + offset + i, &unit[i / 8 % 8], 8);
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
		memset(ram + offset, 0, length);
	else if (sscanf(line, "touch %zu %zu", &offset, &length) == 2)
		for (volatile char *p = ram + offset; p < ram + offset + length; p += 4096)
			(void)*p;
	else if (sscanf(line, "advise %zu %zu %d", &offset, &length, &advice) == 3) {
		printf("%s\n", madvise(ram + offset, length, advice) == 0 ? "ok" : strerror(errno));
		return;
	} else if (!strcmp(line, "dump\n")) {
		fwrite(ram, 1, size, stdout);
		return;
	} else if (sscanf(line, "exec %31s", word) == 1) {
		execute(word);
		return;
	} else if (!strcmp(line, "again\n")) {
		int fd = open(getenv("PANDO_RAM"), O_RDWR);
		void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		printf("%s\n", p == MAP_FAILED ? strerror(errno) : "ok");
		return;
	} else if (!strcmp(line, "unmap\n"))
		munmap(ram, size);
	else {
		printf("what?\n");
		return;
	}
	printf("ok\n");
}

int main(int argc, char **argv)
{
	static char line[256];
	int fd = argc == 2 ? open(getenv("PANDO_RAM"), O_RDWR) : -1;

	if (fd < 0)
		die("open RAM file");
	size = strtoull(argv[1], NULL, 0);
	ram = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ram == MAP_FAILED)
		die("mmap");
	printf("ready\n");
	for (fflush(stdout); fgets(line, sizeof line, stdin); fflush(stdout))
		obey(line);
	return 0;
}
