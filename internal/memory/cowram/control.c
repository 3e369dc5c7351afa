/* The control socket and the thread that serves it. */
#include "control.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	MAX_CLIENTS = 4,
	/* A client that does not take its reply holds everyone up this long. */
	REPLY_SECONDS = 5,
};

static struct client clients[MAX_CLIENTS];
static struct message message;
static int listener;

static int send_reply(int fd, struct reply *p, const struct fault *f)
{
	struct iovec parts[2] = {{p, sizeof *p}, {(void *)(uintptr_t)f->text, strnlen(f->text, MAX_TEXT - 1)}};
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};

	p->magic = PROTOCOL_MAGIC;
	p->version = PROTOCOL_VERSION;
	p->code = f->code;
	p->text_length = (uint32_t)parts[1].iov_len;
	return sendmsg(fd, &m, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

/* take_descriptors collects what came with a message, so that nothing leaks
 * whatever the message says. */
static void take_descriptors(struct msghdr *m)
{
	message.descriptors = 0;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h != NULL; h = CMSG_NXTHDR(m, h)) {
		uint32_t n;
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		n = (uint32_t)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		if (n > MAX_LAYERS - message.descriptors)
			n = MAX_LAYERS - message.descriptors;
		memcpy(&message.fds[message.descriptors], CMSG_DATA(h), n * sizeof(int));
		message.descriptors += n;
	}
}

/* receive returns 1 for a whole message, 0 if the client has to go. */
static int receive(int fd)
{
	/* The kernel truncates, and closes, descriptors beyond this room. */
	static union {
		struct cmsghdr align;
		char room[CMSG_SPACE(MAX_LAYERS * sizeof(int))];
	} control;
	struct iovec part = {message.bytes, sizeof message.bytes};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 1 : 0;
	take_descriptors(&m);
	message.length = (size_t)n;
	if (n == 0 || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		close_all(message.fds, message.descriptors);
		message.descriptors = 0;
		return 0;
	}
	return 1;
}

static void drop(struct client *c)
{
	forget(c);
	close(c->fd);
	memset(c, 0, sizeof *c);
	c->fd = -1;
}

static void serve(struct client *c)
{
	struct reply p = {0};
	struct fault f = {0};

	message.length = 0;
	if (!receive(c->fd)) {
		drop(c);
		return;
	}
	if (message.length == 0)
		return;
	obey(c, &message, &p, &f);
	close_all(message.fds, message.descriptors);
	message.descriptors = 0;
	if (send_reply(c->fd, &p, &f) != 0)
		drop(c);
}

static void welcome(void)
{
	struct ucred peer = {0};
	socklen_t size = sizeof peer;
	struct timeval patience = {.tv_sec = REPLY_SECONDS};
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == 0 || peer.uid == geteuid())) {
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
		for (int i = 0; i < MAX_CLIENTS; i++) {
			if (clients[i].fd < 0) {
				clients[i].fd = fd;
				clients[i].pid = peer.pid;
				return;
			}
		}
	}
	close(fd);
}

static void *serve_all(void *unused)
{
	struct pollfd waits[MAX_CLIENTS + 1];

	(void)unused;
	for (;;) {
		for (int i = 0; i < MAX_CLIENTS; i++)
			waits[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
		waits[MAX_CLIENTS] = (struct pollfd){.fd = listener, .events = POLLIN};
		if (poll(waits, MAX_CLIENTS + 1, -1) < 0)
			continue;
		for (int i = 0; i < MAX_CLIENTS; i++)
			if (waits[i].fd >= 0 && waits[i].revents != 0)
				serve(&clients[i]);
		if (waits[MAX_CLIENTS].revents != 0)
			welcome();
	}
	return NULL;
}

static int listen_at(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (path == NULL || strlen(path) >= sizeof address.sun_path)
		die("%s is unset or longer than %zu bytes", ENV_SOCKET, sizeof address.sun_path - 1);
	strcpy(address.sun_path, path);
	unlink(path);
	/* The mode is set before listen: nobody connects before it holds. */
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || chmod(path, 0600) != 0 ||
	    listen(fd, MAX_CLIENTS) != 0)
		die("listen at %s: %s", path, strerror(errno));
	return fd;
}

void control_start(void)
{
	static int started;
	pthread_t thread;
	sigset_t all, before;
	int code;

	if (started)
		return;
	started = 1;
	for (int i = 0; i < MAX_CLIENTS; i++)
		clients[i].fd = -1;
	listener = listen_at(getenv(ENV_SOCKET));
	/* QEMU's signals are for QEMU's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	code = pthread_create(&thread, NULL, serve_all, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (code != 0)
		die("start the control thread: %s", strerror(code));
	pthread_detach(thread);
}
