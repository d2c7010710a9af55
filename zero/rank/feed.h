// Token batches on their way to the device.
//
// Buffers take turns: while the device computes on one micro-batch, the host fills the next one and
// the in queue copies it over. There are two, and more where the stages of a pipeline work on so
// many micro-batches at a time. See feed.c for the events that keep them apart.
#ifndef ZERO_RANK_FEED_H
#define ZERO_RANK_FEED_H
#include "kernels/batch.h"
#include "kernels/tier.h"

// The arrays of a batch, each (B, T). The last two are there where documents are packed, and the
// last where there is an attention window besides: without one a document's first key is its start.
enum FeedArray { FEED_INPUTS, FEED_TARGETS, FEED_STARTS, FEED_FIRST, FEED_ARRAYS };

struct Feed {
    struct Device *device;
    size_t tokens;    // of the largest micro-batch, B * T
    size_t t, window; // of attention; 0: none
    int arrays;       // that a batch has
    struct FeedSlot {
        int32_t *host;         // (arrays, B*T)
        struct Block block;    // the same on the device
        struct Event *arrived; // in: the copy has arrived
        struct Event *drained; // compute: the last kernel that reads it has run
    } * slot;
    size_t slots;
    uint64_t sent, taken, done; // micro-batches so far
};

struct RankSettings;

// The host's part of a feed's batches, in bytes, which no tier counts.
size_t feed_host_bytes(const struct RankSettings *s);
int feed_open(struct Feed *f, struct Device *d, const struct RankSettings *s, struct Tier *tier,
              struct Error *e);
void feed_close(struct Feed *f);

// Where the host writes the next micro-batch: inputs at [0], targets at [tokens], and starts, where
// documents are packed, at [2 * tokens]; the first keys are feed_send's. Waits until the copy that
// read this memory before has ended.
int32_t *feed_host(struct Feed *f);
void feed_send(struct Feed *f); // queues the copy of what feed_host returned

// Reads samples first .. first + n - 1 of some sequence to where `batch` says. Errors: -errno.
typedef int BatchReader(void *data, uint64_t first, size_t n, const struct Batch *batch,
                        struct Error *e);
// Counts of the same samples' targets those that are not UNCOUNTED. Every rank asks for all ranks'
// samples, and is told the same. Errors: -errno.
typedef int BatchCounter(void *data, uint64_t first, uint64_t n, uint64_t *counted,
                         struct Error *e);

// Where batches come from.
struct BatchSource {
    BatchReader *read;
    BatchCounter *count; // NULL: every target counts
    void *data;          // for both
};

// feed_host, read, feed_send. What the reader refuses is not sent.
int feed_read(struct Feed *f, const struct BatchSource *from, uint64_t first, size_t n,
              struct Error *e);

// The oldest micro-batch that was sent and not taken: compute waits for its arrival. Array i is at
// [i * tokens]. feed_done says that all kernels that read the oldest that was taken have been
// queued.
const int32_t *feed_next(struct Feed *f);
const int32_t *feed_oldest(const struct Feed *f);
void feed_done(struct Feed *f);

#endif
