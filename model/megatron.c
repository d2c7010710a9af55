// Megatron-LM's exchanges between the ranks of tensor parallelism (Shoeybi et al. 2019, section 3;
// Korthikanti et al. 2022, section 4.2.2).
//
// Each TP rank has some rows of the matrix of a branch's first product (heads of attention, columns
// of the MLP), and some columns of the second's. So a branch begins with an input that all ranks
// have and ends with one term of a sum on each: f stands at its beginning, g at its end, and
// between the two no rank needs another. All ranks compute norms and additions to the residual
// stream alike, from the same bits.
//
// With sequence parallelism each rank has some rows of the residual stream and the norms: f and g
// gather rows where they did nothing, and reduce-scatter them where they all-reduced. An all_reduce
// is a reduce_scatter and an all_gather, so the volume is the same, with one exception: the input
// of a product's weight gradient was not kept whole, and is gathered again.
//
// Called by block.c and ends.c. Next: zero/tp/tp.c.
#include "model/megatron.h"

const void *megatron_all_rows(struct Model *m, struct Acts *acts, const void *y) {
    size_t bytes = acts_own_rows(acts) * m->config.channels * dtype_size(m->config.dtype);
    if (acts->row_parts == 1)
        return y;
    if (!m->sizing)
        m->across->all_gather(m->across, acts->whole, y, bytes);
    return acts->whole;
}

void *megatron_sum_of(struct Acts *acts, void *y) {
    return acts->row_parts == 1 ? y : acts->sums;
}

void megatron_sum(struct Model *m, struct Acts *acts, void *y) {
    size_t n = acts_own_rows(acts) * m->config.channels;
    if (!m->across || m->sizing)
        return;
    if (acts->row_parts == 1)
        m->across->all_reduce(m->across, y, n, m->config.dtype);
    else
        m->across->reduce_scatter(m->across, y, acts->sums, n, m->config.dtype);
}
