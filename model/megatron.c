// Megatron-LM's exchanges between the places of tensor parallelism (Shoeybi et al. 2019, section 3;
// Korthikanti et al. 2022, section 4.2.2).
//
// A block's first product of each branch has some rows of its matrix on each place (heads of
// attention, columns of the MLP), its second some columns. So a branch begins with an input that
// all have and ends with one part of a sum on each: f stands at its beginning, g at its end, and
// between the two no place needs another. Norms and what is added to the residual stream are
// computed alike on all places, from the same bits.
//
// With sequence parallelism each place has some rows of these, and the same two spots gather and
// scatter rows: where f was nothing forward it gathers, and where it was a sum each place keeps its
// rows of it. A sum over all places is a scattered sum and a gathering, so as many bytes go round,
// but for one: what a product's weights are multiplied with was not kept whole, and is gathered
// again.
//
// Called by block.c and ends.c. Next: zero/tensor/tensor.c.
#include "model/megatron.h"

static const void *all_rows(struct Model *m, struct Acts *acts, const void *y) {
    size_t bytes = acts_own_rows(acts) * m->config.channels * dtype_size(m->config.dtype);
    if (acts->row_parts == 1)
        return y;
    if (!m->sizing)
        m->across->all_gather(m->across, acts->whole, y, bytes);
    return acts->whole;
}

static void sum_over_tp(struct Model *m, struct Acts *acts, void *y) {
    size_t n = acts_own_rows(acts) * m->config.channels;
    if (!m->across || m->sizing)
        return;
    if (acts->row_parts == 1)
        m->across->all_reduce(m->across, y, n, m->config.dtype);
    else
        m->across->reduce_scatter(m->across, y, acts->sums, n, m->config.dtype);
}

void *megatron_sum_of(struct Acts *acts, void *y) {
    return acts->row_parts == 1 ? y : acts->sums;
}

const void *megatron_f_forward(struct Model *m, struct Acts *acts, const void *y) {
    return all_rows(m, acts, y);
}

void megatron_f_backward(struct Model *m, struct Acts *acts, void *dx) {
    sum_over_tp(m, acts, dx);
}

void megatron_g_forward(struct Model *m, struct Acts *acts, void *y) {
    sum_over_tp(m, acts, y);
}

const void *megatron_g_backward(struct Model *m, struct Acts *acts, const void *dy) {
    return all_rows(m, acts, dy);
}
