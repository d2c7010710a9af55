// The places of a batch sorted by token, for the embedding's backward pass (embed.cu).
#ifndef KERNELS_CUDA_EMBED_CUH
#define KERNELS_CUDA_EMBED_CUH
#include "kernels/cuda/cuda.h"

// Queues the sort of the places 0 .. rows-1 by tokens[place] (0 .. v-1); places of one token keep
// their ascending order. Returns where the sorted places will be: in `work`, on the device, which
// has embed_sort_bytes(rows) bytes (kernels/cuda/embed_sort.cu).
const int32_t *embed_sort(struct Stream *s, const int32_t *tokens, size_t rows, size_t v,
                          void *work);
size_t embed_sort_bytes(size_t rows);

#endif
