/* Copies of the process that stand still, for the daemon to read. */
#include "cowram.h"

#include <errno.h>
#include <linux/close_range.h>
#include <linux/prctl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Descriptors to close one by one where the kernel has no close_range. */
enum { MANY_DESCRIPTORS = 4096 };

/* stand_still is the whole life of a frozen child. An inherited descriptor
 * would keep sockets and disk locks of a dead QEMU alive, so all are closed. */
static void __attribute__((noreturn)) stand_still(pid_t parent, pid_t reader)
{
	syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	/* The parent may have died before its death was asked for. */
	if (syscall(SYS_getppid) != parent)
		syscall(SYS_exit_group, 0);
	if (syscall(SYS_close_range, 0u, ~0u, 0u) != 0)
		for (int fd = 0; fd < MANY_DESCRIPTORS; fd++)
			syscall(SYS_close, fd);
	syscall(SYS_prctl, PR_SET_NAME, "pando-frozen", 0, 0, 0);
	syscall(SYS_prctl, PR_SET_PTRACER, (unsigned long)reader, 0, 0, 0);
	for (;;)
		syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
}

pid_t freeze(pid_t reader, struct fault *f)
{
	pid_t self = getpid();
	/* No exit signal: QEMU must not see a SIGCHLD of a child it never made.
	 * The raw call also skips QEMU's pthread_atfork handlers, which take locks. */
	long pid = syscall(SYS_clone, 0, 0, 0, 0, 0);

	if (pid == 0)
		stand_still(self, reader);
	if (pid < 0)
		return fail(f, errno, "fork: %s", strerror(errno));
	return (pid_t)pid;
}

void thaw(pid_t pid)
{
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
		;
}
