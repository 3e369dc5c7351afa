/* The control socket and the thread that serves it. Whoever can connect is the
 * daemon, yet every number it sends is checked: a mistake there must not become
 * a guest with wrong memory. */
#include "cowram.h"

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
	MAX_FROZEN = 4,
	MESSAGE_BYTES = sizeof(struct request) + MAX_BATCH * sizeof(struct wire_extent),
	/* A client that does not take its reply holds everyone up this long. */
	REPLY_SECONDS = 5,
};

/* plan is a map that is being received. */
struct plan {
	int active;
	uint32_t region, layers, count;
	int fds[MAX_LAYERS];
	struct wire_extent extents[MAX_EXTENTS];
};

struct client {
	int fd;
	pid_t pid;
	pid_t frozen[MAX_FROZEN];
};

struct message {
	union {
		struct request head;
		char bytes[MESSAGE_BYTES];
	};
	size_t length;
	int fds[MAX_LAYERS];
	uint32_t descriptors;
};

/* The control thread alone touches these. */
static struct client clients[MAX_CLIENTS];
static struct plan plan;
static struct client *planner;
static struct message message;
static int listener;

static void close_all(const int *fds, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		close(fds[i]);
}

static void plan_drop(void)
{
	if (plan.active)
		close_all(plan.fds, plan.layers);
	plan.active = 0;
	plan.layers = plan.count = 0;
	planner = NULL;
}

static int plan_begin(struct client *c, struct fault *f)
{
	const struct request *q = &message.head;
	char *address;
	size_t size;

	if (planner != NULL && planner != c)
		return fail(f, EBUSY, "another client is laying a map");
	plan_drop();
	if (region_find(q->region, &address, &size, f) != 0)
		return -1;
	if (q->size != size)
		return fail(f, ERANGE, "the map is for %llu bytes of RAM, there are %zu",
			(unsigned long long)q->size, size);
	if (q->count != message.descriptors)
		return fail(f, EINVAL, "%u layers announced, %u descriptors came", q->count, message.descriptors);
	memcpy(plan.fds, message.fds, message.descriptors * sizeof(int));
	plan.layers = message.descriptors;
	message.descriptors = 0;
	plan.region = q->region;
	plan.active = 1;
	planner = c;
	return 0;
}

static int plan_extend(struct client *c, struct fault *f)
{
	uint32_t n = message.head.count;

	if (planner != c)
		return fail(f, EPROTO, "extents came without the start of a map");
	if (message.length != sizeof(struct request) + (size_t)n * sizeof(struct wire_extent))
		return fail(f, EPROTO, "%u extents do not fit %zu bytes", n, message.length);
	if (n > MAX_EXTENTS - plan.count)
		return fail(f, E2BIG, "a map has at most %d extents", MAX_EXTENTS);
	memcpy(&plan.extents[plan.count], message.bytes + sizeof(struct request), n * sizeof(struct wire_extent));
	plan.count += n;
	return 0;
}

static int plan_commit(struct client *c, struct fault *f)
{
	int result;

	if (planner != c)
		return fail(f, EPROTO, "the end of a map came without its start");
	if (message.head.count != plan.count)
		result = fail(f, EPROTO, "%u extents announced, %u came", message.head.count, plan.count);
	else
		result = region_lay(plan.region, plan.extents, plan.count, plan.fds, plan.layers, f);
	plan_drop();
	return result;
}

static int freeze_for(struct client *c, struct reply *p, struct fault *f)
{
	pid_t *slot = NULL;
	char *address;
	size_t size;

	if (region_find(message.head.region, &address, &size, f) != 0)
		return -1;
	for (int i = 0; i < MAX_FROZEN && slot == NULL; i++)
		if (c->frozen[i] == 0)
			slot = &c->frozen[i];
	if (slot == NULL)
		return fail(f, EBUSY, "%d frozen children exist already", MAX_FROZEN);
	*slot = freeze(c->pid, f);
	if (*slot < 0) {
		*slot = 0;
		return -1;
	}
	p->pid = (uint64_t)*slot;
	p->address = (uintptr_t)address;
	p->size = size;
	return 0;
}

static int thaw_for(struct client *c, struct fault *f)
{
	for (int i = 0; i < MAX_FROZEN; i++) {
		if (c->frozen[i] != 0 && (uint64_t)c->frozen[i] == message.head.pid) {
			thaw(c->frozen[i]);
			c->frozen[i] = 0;
			return 0;
		}
	}
	return fail(f, ESRCH, "%llu is no frozen child of this client", (unsigned long long)message.head.pid);
}

static int hello(struct reply *p, struct fault *f)
{
	char *address;
	size_t size;

	if (region_find(message.head.region, &address, &size, f) != 0)
		return -1;
	p->pid = (uint64_t)getpid();
	p->address = (uintptr_t)address;
	p->size = size;
	return 0;
}

static int obey(struct client *c, struct reply *p, struct fault *f)
{
	const struct request *q = &message.head;

	if (message.length < sizeof *q || q->magic != PROTOCOL_MAGIC || q->version != PROTOCOL_VERSION)
		return fail(f, EPROTO, "not a request of protocol version %d", PROTOCOL_VERSION);
	p->op = q->op;
	if (q->op != OP_LAY_EXTENTS && message.length != sizeof *q)
		return fail(f, EPROTO, "a request of %zu bytes is too long", message.length);
	switch (q->op) {
	case OP_HELLO:
		return hello(p, f);
	case OP_LAY_BEGIN:
		return plan_begin(c, f);
	case OP_LAY_EXTENTS:
		return plan_extend(c, f);
	case OP_LAY_COMMIT:
		return plan_commit(c, f);
	case OP_FREEZE:
		return freeze_for(c, p, f);
	case OP_THAW:
		return thaw_for(c, f);
	}
	return fail(f, ENOSYS, "there is no order %u", q->op);
}

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
	if (planner == c)
		plan_drop();
	for (int i = 0; i < MAX_FROZEN; i++)
		if (c->frozen[i] != 0)
			thaw(c->frozen[i]);
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
	obey(c, &p, &f);
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
