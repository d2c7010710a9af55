// ZeRO's stages as a table: one row is one stage.
//
// Reading a row is reading what the stage does during a step: in what it keeps shards, and the hops
// of a group's chains (hop.h), in param.c, grad.c and opt.c. Whatever else a run is asked to do,
// such as offload, adds hops to these chains when a group is opened.
// The walk (step.c) calls the four functions at the end, alike for all stages. Next: hop.h.
#include "zero/engine.h"

const char *const zero_stage_words[] = {"0", "1", "2", "3", NULL};
static const struct ZeroStage stages[] = {
    // 0: every rank keeps everything
    {.hops = {[REDUCE] = {&hop_all_reduce, &hop_grad_norm}, [UPDATE] = {&hop_adamw}}},
    // 1: optimizer state in shards
    {.shards_optimizer = true,
     .hops = {[REDUCE] = {&hop_reduce_scatter, &hop_grad_norm},
              [UPDATE] = {&hop_adamw},
              [PUBLISH] = {&hop_all_gather}}},
    // 2: gradients and optimizer state in shards
    {.shards_grad = true,
     .shards_optimizer = true,
     .hops = {[REDUCE] = {&hop_reduce_scatter, &hop_grad_norm},
              [UPDATE] = {&hop_adamw},
              [PUBLISH] = {&hop_all_gather}}},
    // 3: everything in shards
    {.shards_param = true,
     .shards_grad = true,
     .shards_optimizer = true,
     .hops = {[FETCH] = {&hop_all_gather},
              [REDUCE] = {&hop_reduce_scatter, &hop_grad_norm},
              [UPDATE] = {&hop_adamw}}},
};

const struct ZeroStage *zero_stage(int stage) {
    bool built = stage >= 0 && (size_t)stage < sizeof stages / sizeof stages[0];
    return built ? &stages[stage] : NULL;
}

// ---- around a visit ----

// Weights of visits to come, behind this one, which has been queued; of the next pass, too, so that
// its first ones do not wait behind this one's last reductions.
static void prefetch_ahead(struct Zero *z, const struct Visit *v) {
    const struct Visit *next = v + 1;
    for (; next <= v + z->plan.prefetch && next->unit >= 0; next++)
        if (next->needs_weights)
            weights_ahead(z, next);
}

void zero_before_forward(struct Zero *z, const struct Visit *v) {
    z->device->label.unit = z->params->first_unit + v->unit;
    weights_ready(z, v);
    z->backing.ops->before_unit(z, v);
}

void zero_after_forward(struct Zero *z, const struct Visit *v) {
    prefetch_ahead(z, v);
    weights_released(z, v);
    z->backing.ops->after_unit(z, v);
}

void zero_before_backward(struct Zero *z, const struct Visit *v) {
    z->device->label.unit = z->params->first_unit + v->unit;
    if (v->needs_weights)
        weights_ready(z, v);
    gradient_ready(z, v);
    z->backing.ops->before_unit(z, v);
}

// The next visits' weights go first: a gather that is queued behind the reduction would wait for
// this unit's backward pass, as that does.
void zero_after_backward(struct Zero *z, const struct Visit *v) {
    prefetch_ahead(z, v);
    if (v->grad_complete && !v->reduced_late)
        gradient_reduce(z, v);
    if (v->needs_weights)
        weights_released(z, v);
    z->backing.ops->after_unit(z, v);
}
