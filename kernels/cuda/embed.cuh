// The indices of a batch sorted by token, for the embedding's backward pass (embed.cu).
#ifndef KERNELS_CUDA_EMBED_CUH
#define KERNELS_CUDA_EMBED_CUH
#include "kernels/cuda/cuda.h"

// The tokens of a batch, and the v of them that have a row, from `first` on.
struct Tokens {
    const int32_t *at;
    int32_t first, v;
};

// Returns the row of the token at a batch index; -1: before all that have one, v: after them.
HOST_DEVICE static inline int32_t row_of(const struct Tokens &t, int32_t index) {
    int32_t token = t.at[index];
    if (token < t.first)
        return -1;
    return token - t.first < t.v ? token - t.first : t.v;
}

// Queues the sort of the indices 0 .. rows-1 by row_of; indices of one row stay in ascending order.
// Returns where the sorted indices will be: in `work`, on the device, which has
// cuda_embed_scratch's bytes for it (kernels/cuda/embed_sort.cu).
const int32_t *embed_sort(struct Stream *s, struct Tokens tokens, size_t rows, void *work);

#endif
