// A micro-batch of token sequences, as whoever reads data hands it to whoever trains: data/text/
// fills it in, zero/rank/feed.c brings it to the device, model/ reads it there. And a sequence to
// be scored, on its way from data/eval/ to zero/rank/score.c.
#ifndef KERNELS_BATCH_H
#define KERNELS_BATCH_H
#include <stddef.h>
#include <stdint.h>

enum { UNCOUNTED = -1 }; // a target whose loss is 0, and has no gradient

// Each (n, T), of n sequences of T tokens.
struct Batch {
    int32_t *inputs;
    int32_t *targets; // the ids that follow, or UNCOUNTED
    // The place in its sequence where the token's document begins: 0 .. the token's own, and never
    // falling along T. What stands before is not attended to, and positions count from there. NULL:
    // nobody asks, as each sequence is one document.
    int32_t *starts;
};

// Tokens of which those from `from` on are to be judged by what stands before them.
struct Sequence {
    const int32_t *ids; // (count)
    size_t count, from; // 1 <= from < count
};

#endif
