/* What the control thread and the orders it obeys share. Only that thread
 * touches any of it. */
#ifndef PANDO_CONTROL_H
#define PANDO_CONTROL_H

#include "cowram.h"

enum {
	/* Frozen children per client: a capture each, and none forgotten. */
	MAX_FROZEN = 4,
	MESSAGE_BYTES = sizeof(struct request) + MAX_BATCH * sizeof(struct wire_extent),
};

struct client {
	int fd;
	pid_t pid;
	/* Children made for this client, 0 where there is none. */
	pid_t frozen[MAX_FROZEN];
};

/* message is a request and the descriptors that came with it. An order that
 * keeps descriptors sets their number to 0; the others are closed for it. */
struct message {
	union {
		struct request head;
		char bytes[MESSAGE_BYTES];
	};
	size_t length;
	int fds[MAX_LAYERS];
	uint32_t descriptors;
};

/* obey carries out one request and fills in the reply. */
int obey(struct client *c, struct message *m, struct reply *p, struct fault *f);

/* forget lets go of everything a client leaves behind: its frozen children and
 * a map it did not finish. */
void forget(struct client *c);

void close_all(const int *fds, uint32_t count);

#endif
