// Token batches on their way to the device.
//
// Two buffers take turns: while the device computes on one micro-batch, the host fills the other
// and the in queue copies it over. See feed.c for the events that keep them apart.
#ifndef ZERO_RUN_FEED_H
#define ZERO_RUN_FEED_H
#include "kernels/batch.h"
#include "kernels/tier.h"

enum { FEED_SLOTS = 2 };

struct Feed {
    struct Device *device;
    size_t tokens; // of the largest micro-batch, B * T
    struct FeedSlot {
        int32_t *host;         // (2, B*T): inputs, then targets
        struct Block block;    // the same on the device
        struct Event *arrived; // in: the copy has arrived
        struct Event *drained; // compute: the last kernel that reads it has run
    } slot[FEED_SLOTS];
    uint64_t sent, taken; // micro-batches so far
};

// The host's part of a feed's batches, in bytes, which no tier counts.
size_t feed_host_bytes(size_t tokens);
int feed_open(struct Feed *f, struct Device *d, size_t tokens, struct Tier *tier, struct Error *e);
void feed_close(struct Feed *f);

// Where the host writes the next micro-batch: inputs at [0], targets at [tokens]. Waits until the
// copy that read this memory before has ended.
int32_t *feed_host(struct Feed *f);
void feed_send(struct Feed *f); // queues the copy of what feed_host returned

// Reads samples first .. first + n - 1 of some sequence to where `batch` says. Errors: -errno.
typedef int BatchReader(void *context, uint64_t first, size_t n, const struct Batch *batch,
                        struct Error *e);
// feed_host, read, feed_send. What the reader refuses is not sent.
int feed_read(struct Feed *f, BatchReader *read, void *context, uint64_t first, size_t n,
              struct Error *e);

// The oldest micro-batch that was sent and not taken: compute waits for its arrival. Inputs at [0],
// targets at [tokens]. feed_done says that all kernels that read it have been queued.
const int32_t *feed_take(struct Feed *f);
void feed_done(struct Feed *f);

#endif
