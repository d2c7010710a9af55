// The collectives between ranks of tensor parallelism during computation (Shoeybi et al. 2019,
// "Megatron-LM", section 3): the model calls them here, and knows nothing else of ranks.
//
// Each TP rank has a part of every matrix, and all work on the same tokens. A collective is queued
// on the compute queue, between the kernels that make its input and those that read its result. All
// TP ranks queue the same ones, in the same order. A sum has the same bits on all of them.
//
// With sequence parallelism (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
// Transformer Models", section 4.2) the tensors between the products, the residual stream and the
// norms, are split too: each TP rank has equally many consecutive rows. Then a sum leaves each rank
// only its rows, and a product that reads all rows gathers them first.
//
// Called by model/megatron.c and model/ends.c; made by zero/tp/tp.c.
#ifndef KERNELS_TP_COMM_H
#define KERNELS_TP_COMM_H
#include "kernels/base.h"
#include "kernels/dtype.h"

struct TpComm {
    size_t rank, size;
    bool sequence_parallel; // the rows between products are split
    // y[0 .. n) = its sum over the TP ranks, by all_reduce (comm.h). There is memory for
    // tp_comm_padded elements at y; those past n are undefined, before and after.
    void (*all_reduce)(const struct TpComm *, void *y, size_t n, enum Dtype dtype);
    // part (n) = this rank's of the n * size elements of y's sum over the TP ranks.
    void (*reduce_scatter)(const struct TpComm *, void *part, const void *y, size_t n, enum Dtype);
    // whole: (size) parts of `bytes` bytes each, this rank's being `part`, which may already be at
    // its index in `whole`.
    void (*all_gather)(const struct TpComm *, void *whole, const void *part, size_t bytes);
    void *context;
};

// The number of TP ranks; `a` is NULL if there is one.
static inline size_t tp_comm_size(const struct TpComm *a) {
    return a ? a->size : 1;
}
// The number of parts that the rows between products are split into.
static inline size_t tp_comm_row_parts(const struct TpComm *a) {
    return a && a->sequence_parallel ? a->size : 1;
}
// Returns the elements of memory that all_reduce needs for n.
static inline size_t tp_comm_padded(size_t tp_size, size_t n) {
    return round_up(n, tp_size);
}

#endif
