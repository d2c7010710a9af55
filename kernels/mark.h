// A mark: a point in a queue for which queues of either device may wait.
//
// With offload a rank has two devices: the one that the model runs on, and the host, a CPU device
// that keeps and updates the offloaded state. An event belongs to one device. A mark has an event
// of each, and remembers which recorded it last; code that waits for it need not know.
//
// A CPU's queue waits for the other device in its turn. A GPU's queue cannot wait for the CPU:
// there the thread that queues the work waits, and with it all that it would queue later, while the
// GPU goes on with its queued work. The awaited work was queued earlier, so the wait ends.
#ifndef KERNELS_MARK_H
#define KERNELS_MARK_H
#include "kernels/device.h"

struct Mark {
    struct Device *device[2]; // the model's, and the host; NULL: there is none
    struct Event *event[2];
    int last;         // index of the one that recorded it; -1: none yet, and waits return at once
    uint64_t records; // so far
};

// name: of its events (device_open_event); NULL: none, and the mark is never recorded.
void mark_open(struct Mark *m, const char *name, struct Device *device, struct Device *host);
void mark_close(struct Mark *m); // of a zeroed one: does nothing
void mark_record(struct Mark *m, struct Device *d, enum Queue q);
// A CPU's queue that waits for a GPU's mark waits for the newest record: the mark must not be
// recorded again before that wait is over.
void mark_wait(const struct Mark *m, struct Device *d, enum Queue q);

#endif
