/* The orders of the daemon. Whoever can connect is the daemon, yet every number
 * it sends is checked: a mistake there must not become a guest with wrong
 * memory. */
#include "control.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* plan is a map that is being received, from one client at a time. */
static struct {
	const struct client *from;
	uint32_t region, layers, count;
	int fds[MAX_LAYERS];
	struct wire_extent extents[MAX_EXTENTS];
} plan;

void close_all(const int *fds, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		close(fds[i]);
}

static void plan_drop(void)
{
	close_all(plan.fds, plan.layers);
	plan.layers = plan.count = 0;
	plan.from = NULL;
}

static int plan_begin(struct client *c, struct message *m, struct fault *f)
{
	const struct request *q = &m->head;
	char *address;
	size_t size;

	if (plan.from != NULL && plan.from != c)
		return fail(f, EBUSY, "another client is laying a map");
	plan_drop();
	if (region_find(q->region, &address, &size, f) != 0)
		return -1;
	if (q->size != size)
		return fail(f, ERANGE, "the map is for %llu bytes of RAM, there are %zu",
			(unsigned long long)q->size, size);
	if (q->count != m->descriptors)
		return fail(f, EINVAL, "%u layers announced, %u descriptors came", q->count, m->descriptors);
	memcpy(plan.fds, m->fds, m->descriptors * sizeof(int));
	plan.layers = m->descriptors;
	m->descriptors = 0;
	plan.region = q->region;
	plan.from = c;
	return 0;
}

static int plan_extend(const struct client *c, const struct message *m, struct fault *f)
{
	uint32_t n = m->head.count;

	if (plan.from != c)
		return fail(f, EPROTO, "extents came without the start of a map");
	if (m->length != sizeof(struct request) + (size_t)n * sizeof(struct wire_extent))
		return fail(f, EPROTO, "%u extents do not fit %zu bytes", n, m->length);
	if (n > MAX_EXTENTS - plan.count)
		return fail(f, E2BIG, "a map has at most %d extents", MAX_EXTENTS);
	memcpy(&plan.extents[plan.count], m->bytes + sizeof(struct request), n * sizeof(struct wire_extent));
	plan.count += n;
	return 0;
}

static int plan_commit(const struct client *c, const struct message *m, struct fault *f)
{
	int result;

	if (plan.from != c)
		return fail(f, EPROTO, "the end of a map came without its start");
	if (m->head.count != plan.count)
		result = fail(f, EPROTO, "%u extents announced, %u came", m->head.count, plan.count);
	else
		result = region_lay(plan.region, plan.extents, plan.count, plan.fds, plan.layers, f);
	plan_drop();
	return result;
}

static int freeze_for(struct client *c, const struct message *m, struct reply *p, struct fault *f)
{
	pid_t *slot = NULL;
	char *address;
	size_t size;

	if (region_find(m->head.region, &address, &size, f) != 0)
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

static int thaw_for(struct client *c, const struct message *m, struct fault *f)
{
	for (int i = 0; i < MAX_FROZEN; i++) {
		if (c->frozen[i] != 0 && (uint64_t)c->frozen[i] == m->head.pid) {
			thaw(c->frozen[i]);
			c->frozen[i] = 0;
			return 0;
		}
	}
	return fail(f, ESRCH, "%llu is no frozen child of this client", (unsigned long long)m->head.pid);
}

static int hello(const struct message *m, struct reply *p, struct fault *f)
{
	char *address;
	size_t size;

	if (region_find(m->head.region, &address, &size, f) != 0)
		return -1;
	p->pid = (uint64_t)getpid();
	p->address = (uintptr_t)address;
	p->size = size;
	return 0;
}

int obey(struct client *c, struct message *m, struct reply *p, struct fault *f)
{
	const struct request *q = &m->head;

	if (m->length < sizeof *q || q->magic != PROTOCOL_MAGIC || q->version != PROTOCOL_VERSION)
		return fail(f, EPROTO, "not a request of protocol version %d", PROTOCOL_VERSION);
	p->op = q->op;
	if (q->op != OP_LAY_EXTENTS && m->length != sizeof *q)
		return fail(f, EPROTO, "a request of %zu bytes is too long", m->length);
	switch (q->op) {
	case OP_HELLO:
		return hello(m, p, f);
	case OP_LAY_BEGIN:
		return plan_begin(c, m, f);
	case OP_LAY_EXTENTS:
		return plan_extend(c, m, f);
	case OP_LAY_COMMIT:
		return plan_commit(c, m, f);
	case OP_FREEZE:
		return freeze_for(c, m, p, f);
	case OP_THAW:
		return thaw_for(c, m, f);
	}
	return fail(f, ENOSYS, "there is no order %u", q->op);
}

void forget(struct client *c)
{
	if (plan.from == c)
		plan_drop();
	for (int i = 0; i < MAX_FROZEN; i++)
		if (c->frozen[i] != 0)
			thaw(c->frozen[i]);
}
