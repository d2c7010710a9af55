// Brings token batches to the device.
//
// Buffers take turns: while the device computes on one micro-batch, the host fills the next one and
// the in queue copies it over. There are two, and more if pipeline stages work on more
// micro-batches at a time. See feed.c for the events that order them.
#ifndef ZERO_RANK_FEED_H
#define ZERO_RANK_FEED_H
#include "kernels/batch.h"
#include "kernels/tier.h"

// The arrays of a batch, each (B, T). FEED_STARTS: if documents are packed, or there is a cache;
// FEED_FIRST: if they are packed and there is a window, without which it would be a copy of starts.
enum FeedArray { FEED_INPUTS, FEED_TARGETS, FEED_STARTS, FEED_FIRST, FEED_ARRAYS };

struct Feed {
    struct Device *device;
    size_t tokens;    // of the largest micro-batch, B * T
    size_t t, window; // of attention; 0: none
    int arrays;       // number of arrays of a batch
    bool packed;      // documents are packed; else starts are for generation alone
    struct FeedSlot {
        int32_t *host;         // (arrays, B*T)
        struct Block block;    // the same on the device
        struct Event *arrived; // in queue: the copy has arrived
        struct Event *drained; // compute queue: the last kernel that reads it has run
    } * slot;
    size_t slots;
    uint64_t sent, taken, done; // micro-batches so far
};

struct RankSettings;

// Returns the bytes of a feed's batches in host memory, which no tier counts.
size_t feed_host_bytes(const struct RankSettings *s);
int feed_open(struct Feed *f, struct Device *d, const struct RankSettings *s, struct Tier *tier,
              struct Error *e);
void feed_close(struct Feed *f);

// Returns where the host writes the next micro-batch: inputs at [0], targets at [tokens], and
// starts, if there are any, at [2 * tokens]; feed_send fills in the first keys. Waits until the
// copy that read this memory before has ended.
int32_t *feed_host(struct Feed *f);
void feed_send(struct Feed *f); // queues the copy of what feed_host returned

// Reads samples first .. first + n - 1 of some sequence into `batch`. Errors: -errno.
typedef int BatchReader(void *data, uint64_t first, size_t n, const struct Batch *batch,
                        struct Error *e);
// Counts the same samples' targets that are not UNCOUNTED. Every rank asks for all ranks' samples,
// and gets the same answer. Errors: -errno.
typedef int BatchCounter(void *data, uint64_t first, uint64_t n, uint64_t *counted,
                         struct Error *e);

// A source of batches.
struct BatchSource {
    BatchReader *read;
    BatchCounter *count; // NULL: every target counts
    void *data;          // for both
};

// Calls feed_host, read, feed_send. A batch that the reader refuses is not sent.
int feed_read(struct Feed *f, const struct BatchSource *from, uint64_t first, size_t n,
              struct Error *e);

// feed_next takes the oldest micro-batch that was sent: compute waits for its arrival. feed_oldest
// returns the oldest that was taken and not done. Array i is at [i * tokens]. feed_done: all
// kernels that read the oldest one that was taken have been queued.
const int32_t *feed_next(struct Feed *f);
const int32_t *feed_oldest(const struct Feed *f);
void feed_done(struct Feed *f);

#endif
