/* The system calls QEMU shall never make. QEMU's own sandbox offers spawn=deny
 * for the same end, but that would forbid the fork of a capture as well. */
#include "cowram.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#define FIRST_FOREIGN 0x40000000 /* x32 calls have their own numbers for execve */
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#define FIRST_FOREIGN 0x7fffffff
#else
#error "no system call filter for this architecture"
#endif

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define DENY_IF(test, value) \
	BPF_JUMP(BPF_JMP | (test) | BPF_K, (value), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
#define DENY_CALL(number) DENY_IF(BPF_JEQ, number)

void filter_install(void)
{
	/* Beyond execve: the calls that reach into other processes, and
	 * userfaultfd, with which a VM could stall whoever reads its memory. */
	static struct sock_filter program[] = {
		LOAD(arch),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		LOAD(nr),
		DENY_IF(BPF_JGE, FIRST_FOREIGN),
		DENY_CALL(SYS_execve),
		DENY_CALL(SYS_execveat),
		DENY_CALL(SYS_ptrace),
		DENY_CALL(SYS_process_vm_readv),
		DENY_CALL(SYS_process_vm_writev),
		DENY_CALL(SYS_userfaultfd),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof program / sizeof program[0], program};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		die("set no_new_privs: %s", strerror(errno));
	/* SPEC_ALLOW: without it older kernels slow every thread down for good. */
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &filter) != 0)
		die("install the system call filter: %s", strerror(errno));
}
