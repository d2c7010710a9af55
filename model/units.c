// Which unit is which: the walk's three calls, handed to block.c and ends.c. Also the size of the
// scratch.
#include "model/launch.h"

#include <stdlib.h>

static bool is_head(const struct Model *m, int u) {
    return u == model_units(m) - 1;
}

void unit_forward(struct Model *m, int u, void *const w[], struct Acts *acts) {
    const void *weights = w[model_unit_group(m, u)];
    if (u == 0)
        embed_unit_forward(m, weights, acts);
    else if (is_head(m, u))
        head_unit_forward(m, weights, acts);
    else
        block_unit_forward(m, u, weights, acts);
}

void acts_restore(struct Model *m, int u, void *const w[], struct Acts *acts) {
    if (u > 0 && !is_head(m, u))
        block_unit_restore(m, u, w[model_unit_group(m, u)], acts);
}

void unit_backward(struct Model *m, int u, void *const w[], const struct Grad dw[],
                   struct Acts *acts) {
    int g = model_unit_group(m, u);
    if (u == 0)
        embed_unit_backward(m, dw[g], acts);
    else if (is_head(m, u))
        head_unit_backward(m, w[g], dw[g], acts);
    else
        block_unit_backward(m, u, w[g], dw[g], acts);
}

// Walks one block and both ends with every launch turned into a question. No pointer is followed;
// those that a question looks at (is there a bias? a GELU?) must only not be NULL.
static void measure_scratch(struct Model *m, struct Acts *acts, bool backward, bool accumulate) {
    static char somewhere[1];
    void **w = base_alloc_zeroed((size_t)m->params->ngroup * sizeof *w);
    struct Grad *dw = base_alloc_zeroed((size_t)m->params->ngroup * sizeof *dw);
    for (int g = 0; g < m->params->ngroup; g++) {
        w[g] = somewhere;
        dw[g] = (struct Grad){somewhere, accumulate};
    }
    int units[] = {0, 1, model_units(m) - 1};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        unit_forward(m, units[i], w, acts);
        acts_restore(m, units[i], w, acts);
        if (backward)
            unit_backward(m, units[i], w, dw, acts);
    }
    free(w);
    free(dw);
}

int model_open(struct Model *m, struct Acts *acts, struct Tier *tier, struct Error *e) {
    m->sizing = true;
    m->work = (struct Work){0};
    acts->mode = HEAD_TRAIN;
    measure_scratch(m, acts, true, false);
    measure_scratch(m, acts, true, true);
    acts->mode = HEAD_LOSS; // validation: whole micro-batches, and single sequences at the end
    measure_scratch(m, acts, false, false);
    acts->b = 1;
    measure_scratch(m, acts, false, false);
    acts->mode = HEAD_LOGITS; // sampling: one sequence of growing length
    for (acts->t = acts_sample_length(acts, 1); acts->t < acts->t_max;
         acts->t = acts_sample_length(acts, acts->t + 1))
        measure_scratch(m, acts, false, false);
    acts->t = acts->t_max;
    measure_scratch(m, acts, false, false);
    acts->b = acts->b_max;
    acts->mode = HEAD_TRAIN;
    m->sizing = false;
    int err = tier_alloc(tier, TAG_WORKSPACE, "kernels' scratch", m->work.bytes, &m->work_block, e);
    m->work.mem = m->work_block.mem;
    return err;
}

void model_close(struct Model *m) {
    tier_free(&m->work_block);
    m->work = (struct Work){0};
}
