// ZeRO's stages as a table: one row is one stage, and a column is what happens to a group at one
// place of a step.
//
// Reading a row from top to bottom is reading what the stage does during a step. The entries are
// functions of param.c, grad.c and opt.c, and hops (hop.h). Every group gets a copy of its stage's
// row; what lies elsewhere than on the device has other entries put in its place (backing.h, struct
// BackingOps), and hops of its own. The walk (step.c) calls the four functions at the end, alike
// for all stages. Next: hop.h.
#include "zero/backing.h"

static const struct ZeroStage stages[] = {
    // 0: every rank keeps everything
    {
        .ops = {.weights_ahead = weights_nothing,
                .weights_ready = weights_here,
                .weights_released = weights_nothing,
                .update = update_here,
                .after_update = update_nothing},
        .reduce = {&hop_all_reduce, &hop_grad_norm},
    },
    // 1: optimizer state in shards
    {
        .shards_optimizer = true,
        .ops = {.weights_ahead = weights_nothing,
                .weights_ready = weights_here,
                .weights_released = weights_nothing,
                .update = update_here,
                .after_update = weights_gather},
        .reduce = {&hop_reduce_scatter, &hop_grad_norm},
    },
    // 2: gradients and optimizer state in shards
    {
        .shards_grad = true,
        .shards_optimizer = true,
        .ops = {.weights_ahead = weights_nothing,
                .weights_ready = weights_here,
                .weights_released = weights_nothing,
                .update = update_here,
                .after_update = weights_gather},
        .reduce = {&hop_reduce_scatter, &hop_grad_norm},
    },
    // 3: everything in shards
    {
        .shards_param = true,
        .shards_grad = true,
        .shards_optimizer = true,
        .ops = {.weights_ahead = weights_fetch,
                .weights_ready = weights_arrive,
                .weights_released = weights_give_up,
                .update = update_here,
                .after_update = update_nothing},
        .reduce = {&hop_reduce_scatter, &hop_grad_norm},
    },
};

const struct ZeroStage *zero_stage(int stage) {
    bool built = stage >= 0 && (size_t)stage < sizeof stages / sizeof stages[0];
    return built ? &stages[stage] : NULL;
}

// ---- around a visit ----

static const struct GroupOps *ops_of(const struct Zero *z, const struct Visit *v) {
    return &z->state[v->group].ops;
}

// Weights of visits to come, behind this one, which has been queued; of the next pass, too, so that
// its first ones do not wait behind this one's last reductions.
static void look_ahead(struct Zero *z, const struct Visit *v) {
    const struct Visit *next = v + 1;
    for (; next <= v + z->plan.prefetch && next->unit >= 0; next++)
        if (next->reads)
            ops_of(z, next)->weights_ahead(z, next);
}

void zero_before_forward(struct Zero *z, const struct Visit *v) {
    z->device->label.unit = z->params->first_unit + v->unit;
    ops_of(z, v)->weights_ready(z, v);
    z->backing.ops->before_unit(z, v);
}

void zero_after_forward(struct Zero *z, const struct Visit *v) {
    look_ahead(z, v);
    ops_of(z, v)->weights_released(z, v);
    z->backing.ops->after_unit(z, v);
}

void zero_before_backward(struct Zero *z, const struct Visit *v) {
    z->device->label.unit = z->params->first_unit + v->unit;
    if (v->reads)
        ops_of(z, v)->weights_ready(z, v);
    gradient_place(z, v);
    z->backing.ops->before_unit(z, v);
}

// The next visits' weights go first: a gather that is queued behind the reduction would wait for
// this unit's backward pass, as that does.
void zero_after_backward(struct Zero *z, const struct Visit *v) {
    look_ahead(z, v);
    if (v->gradient_ends && !v->reduced_late)
        gradient_reduce(z, v);
    if (v->reads)
        ops_of(z, v)->weights_released(z, v);
    z->backing.ops->after_unit(z, v);
}
