// What the places of tensor parallelism exchange while they compute (Shoeybi et al. 2019,
// "Megatron-LM", section 3): the model asks for it by these names, and knows nothing else of ranks.
//
// Each place has a part of every matrix, and all work on the same tokens. An exchange is queued on
// the compute queue, between the kernels that make what it moves and those that read it. All places
// queue the same ones, in the same order. What a sum gives has the same bits on all of them.
//
// With sequence parallelism (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
// Transformer Models", section 4.2) what lies between the products, the residual stream and the
// norms, is in parts too: each place has as many consecutive rows of it. Then a sum leaves each
// place its rows alone, and a product that reads all rows gathers them first.
//
// Called by model/megatron.c and model/ends.c; made by zero/tensor/tensor.c.
#ifndef KERNELS_TP_COMM_H
#define KERNELS_TP_COMM_H
#include "kernels/base.h"
#include "kernels/dtype.h"

struct TpComm {
    size_t rank, size;
    bool sequence_parallel; // the rows between products are in parts
    // y[0 .. n) = its sum over the places, as all_reduce makes it (comm.h). There is memory
    // for tp_comm_padded elements at y; those past n are anything, before and after.
    void (*all_reduce)(const struct TpComm *, void *y, size_t n, enum Dtype dtype);
    // part (n) = this place's of the n * places elements of y's sum over the places.
    void (*reduce_scatter)(const struct TpComm *, void *part, const void *y, size_t n, enum Dtype);
    // whole: (places) parts of `bytes` bytes each, of which this place's is `part`. That may lie
    // there already.
    void (*all_gather)(const struct TpComm *, void *whole, const void *part, size_t bytes);
    void *context;
};

// NULL: there is one place.
static inline size_t tp_comm_size(const struct TpComm *a) {
    return a ? a->size : 1;
}
// Into how many parts the rows between products are cut.
static inline size_t tp_comm_row_parts(const struct TpComm *a) {
    return a && a->sequence_parallel ? a->size : 1;
}
static inline size_t tp_comm_padded(size_t tp_size, size_t n) {
    return round_up(n, tp_size);
}

#endif
