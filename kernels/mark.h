// A mark: a point in a queue that queues of either device may wait for.
//
// Where state is offloaded, a rank has two devices: the one that the model runs on, and the host,
// a CPU device that keeps and updates what is offloaded. An event belongs to one device. A mark has
// an event of each, and remembers where it was recorded last; who waits for it need not know.
//
// A queue of the CPU waits for the other device in its turn. A GPU's queue cannot wait for the CPU:
// there the thread that queues the work waits, and with it all that it would queue later, while the
// GPU goes on with what it has. What it waits for has been queued before, so it comes.
#ifndef KERNELS_MARK_H
#define KERNELS_MARK_H
#include "kernels/device.h"

struct Mark {
    struct Device *device[2]; // the model's, and the host; NULL: there is none
    struct Event *event[2];
    int last;         // which of them recorded it; -1: none yet, and a wait for it is none
    uint64_t records; // so far
};

// name: of its events (device_open_event); NULL: it has none, and nobody records it.
void mark_open(struct Mark *m, const char *name, struct Device *device, struct Device *host);
void mark_close(struct Mark *m); // of a zeroed one: nothing
void mark_record(struct Mark *m, struct Device *d, enum Queue q);
// A CPU's queue that waits for a GPU's mark waits until the newest record of it: it must not be
// recorded again before.
void mark_wait(const struct Mark *m, struct Device *d, enum Queue q);

#endif
