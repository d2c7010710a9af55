// A micro-batch of token sequences, from the reader of data to the trainer: data/text/ fills it in,
// zero/rank/feed.c copies it to the device, model/ reads it there. And a sequence to be scored,
// from data/eval/ to zero/rank/score.c.
#ifndef KERNELS_BATCH_H
#define KERNELS_BATCH_H
#include <stddef.h>
#include <stdint.h>

enum { UNCOUNTED = -1 }; // a target without loss or gradient

// Arrays of (n, T): n sequences of T tokens.
struct Batch {
    int32_t *inputs;
    int32_t *targets; // the ids that follow, or UNCOUNTED
    // The position in its sequence at which the token's document begins: between 0 and the token's
    // own, and never decreasing along T. Attention ignores earlier tokens, and positions count from
    // there. NULL: each sequence is one document.
    int32_t *starts;
};

// A text whose tokens from `from` on are scored, given those before them.
struct Sequence {
    const int32_t *ids; // (count)
    size_t count, from; // 1 <= from < count
};

#endif
