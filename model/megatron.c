// Megatron-LM's exchanges between the places of tensor parallelism (Shoeybi et al. 2019, section
// 3).
//
// A block's first product of each branch has some rows of its matrix on each place (heads of
// attention, columns of the MLP), its second some columns. So a branch begins with an input that
// all have and ends with one part of a sum on each: f stands at its beginning, g at its end, and
// between the two no place needs another. Norms and what is added to the residual stream are
// computed alike on all places, from the same bits.
//
// Called by block.c and ends.c. Next: zero/tensor/across.c.
#include "model/megatron.h"

static void sum_over_places(struct Model *m, void *y, size_t rows) {
    if (m->across && !m->sizing)
        m->across->sum(m->across, y, rows * m->config.channels, m->config.dtype);
}

void megatron_f_backward(struct Model *m, void *dx, size_t rows) {
    sum_over_places(m, dx, rows);
}

void megatron_g_forward(struct Model *m, void *y, size_t rows) {
    sum_over_places(m, y, rows);
}
