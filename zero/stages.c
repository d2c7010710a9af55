// ZeRO's stages as a table: one row per stage.
//
// A row says what the stage does in a step: which state it shards, and the hops of a group's chains
// (hop.h), which are in param.c, grad.c and opt.c. Other features of a run, such as offload, add
// hops to these chains when a group is opened. The walk (step.c) calls the four functions at the
// end, alike for all stages. Next: chain.c.
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

// Begins to fetch the weights of the next visits after this one is queued; also those of the next
// pass, so that its first visits do not wait for this pass's last reductions.
static void prefetch_ahead(struct Zero *z, const struct Visit *v) {
    const struct Visit *next = v + 1;
    for (; next <= v + z->plan.prefetch && next->unit >= 0; next++)
        for (int i = 0; i < next->ngroup && next->needs_weights; i++)
            weights_ahead(z, next, next->group[i]);
}

void zero_label_visit(struct Zero *z, const struct Visit *v) {
    struct Label *l = &z->device->label;
    l->unit = z->params->first_unit + v->unit;
    l->backward = v->backward;
    l->micro = v->micro;
}

static void all_ready(struct Zero *z, const struct Visit *v) {
    for (int i = 0; i < v->ngroup && v->needs_weights; i++)
        weights_ready(z, v, v->group[i]);
}

static void all_released(struct Zero *z, const struct Visit *v) {
    for (int i = 0; i < v->ngroup && v->needs_weights; i++)
        weights_released(z, v, v->group[i]);
}

void zero_before_forward(struct Zero *z, const struct Visit *v) {
    zero_label_visit(z, v);
    all_ready(z, v);
    z->backing.ops->before_unit(z, v);
}

void zero_after_forward(struct Zero *z, const struct Visit *v) {
    prefetch_ahead(z, v);
    all_released(z, v);
    z->backing.ops->after_unit(z, v);
}

void zero_before_backward(struct Zero *z, const struct Visit *v) {
    zero_label_visit(z, v);
    all_ready(z, v);
    gradient_ready(z, v);
    z->backing.ops->before_unit(z, v);
}

// Fetches the next visits' weights first: a gather queued after the reduction would wait, as that
// does, for this unit's backward pass.
void zero_after_backward(struct Zero *z, const struct Visit *v) {
    prefetch_ahead(z, v);
    if (v->grad_complete && !v->reduced_late)
        gradient_reduce(z, v);
    all_released(z, v);
    z->backing.ops->after_unit(z, v);
}
