// What a unit of each kind does: the walk's three calls, handed to block.c and ends.c as the table
// of units (params.h) says. Also the size of the scratch.
#include "model/launch.h"

#include <stdlib.h>

static void nothing_to_restore(struct Model *m, const struct Unit *unit, const void *w,
                               struct Acts *acts) {
    (void)m;
    (void)unit;
    (void)w;
    (void)acts;
}

static const struct {
    void (*forward)(struct Model *, const struct Unit *, const void *w, struct Acts *);
    void (*restore)(struct Model *, const struct Unit *, const void *w, struct Acts *);
    void (*backward)(struct Model *, const struct Unit *, const void *w, struct Grad,
                     struct Acts *);
} kinds[] = {
    [UNIT_EMBEDDING] = {embedding_forward, nothing_to_restore, embedding_backward},
    [UNIT_BLOCK] = {block_forward, block_restore, block_backward},
    [UNIT_HEAD] = {head_forward, nothing_to_restore, head_backward},
};

void unit_forward(struct Model *m, int u, void *const w[], struct Acts *acts) {
    const struct Unit *unit = &m->params->unit[u];
    kinds[unit->kind].forward(m, unit, w[unit->group], acts);
}

void acts_restore(struct Model *m, int u, void *const w[], struct Acts *acts) {
    const struct Unit *unit = &m->params->unit[u];
    kinds[unit->kind].restore(m, unit, w[unit->group], acts);
}

void unit_backward(struct Model *m, int u, void *const w[], const struct Grad dw[],
                   struct Acts *acts) {
    const struct Unit *unit = &m->params->unit[u];
    kinds[unit->kind].backward(m, unit, w[unit->group], dw[unit->group], acts);
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
    for (int u = 0; u < m->params->nunit; u++) {
        if (m->params->unit[u].layer > 0)
            continue; // as layer 0
        unit_forward(m, u, w, acts);
        acts_restore(m, u, w, acts);
        if (backward)
            unit_backward(m, u, w, dw, acts);
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
