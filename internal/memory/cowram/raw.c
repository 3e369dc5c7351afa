/* System calls that the library makes behind the functions it interposes. */
#include "cowram.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *raw_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}

int raw_munmap(void *address, size_t length)
{
	return (int)syscall(SYS_munmap, address, length);
}

int raw_madvise(void *address, size_t length, int advice)
{
	return (int)syscall(SYS_madvise, address, length, advice);
}

int fail(struct fault *f, int code, const char *format, ...)
{
	va_list arguments;

	f->code = code;
	va_start(arguments, format);
	vsnprintf(f->text, sizeof f->text, format, arguments);
	va_end(arguments);
	return -1;
}

void die(const char *format, ...)
{
	char text[512];
	int n = snprintf(text, sizeof text, "pando memory library: ");
	va_list arguments;

	va_start(arguments, format);
	n += vsnprintf(text + n, sizeof text - (size_t)n - 1, format, arguments);
	va_end(arguments);
	if (n > (int)sizeof text - 2)
		n = (int)sizeof text - 2;
	text[n++] = '\n';
	if (write(STDERR_FILENO, text, (size_t)n) < 0)
		_exit(2);
	_exit(1);
}
