// ZeRO's stages as a table: one row is one stage, and an entry is what happens around unit u with
// group g.
//
// Reading a row from left to right is reading what the stage does during a step. The entries are
// functions of param.c, grad.c and opt.c. Resident weights are used where they lie; only where they
// were offloaded are they fetched before a unit and released behind it. The walk (step.c) calls the
// four functions at the end, which look after a unit's activations, too (offload/activations.h).
#include "zero/zero.h"

static void nothing_after_update(struct Zero *z, int g) {
    (void)z;
    (void)g;
}

static void fetch_and_bucket(struct Zero *z, int u, int g) {
    params_fetch_backward(z, u, g);
    grads_bucket(z, u, g);
}

static void resident_and_bucket(struct Zero *z, int u, int g) {
    params_resident_backward(z, u, g);
    grads_bucket(z, u, g);
}

// The next unit's weights go first: a gather that is queued behind the reduction would wait for
// this unit's backward pass, as that does.
static void reduce_each_and_release(struct Zero *z, int u, int g) {
    params_fetch_next(z, u);
    grads_reduce_each(z, u, g);
    params_release_backward(z, u, g);
}

static void all_reduce_and_release(struct Zero *z, int u, int g) {
    params_fetch_next(z, u);
    grads_all_reduce_at_end(z, u, g);
    params_release_backward(z, u, g);
}

static void reduce_and_release(struct Zero *z, int u, int g) {
    params_fetch_next(z, u);
    grads_reduce_at_end(z, u, g);
    params_release_backward(z, u, g);
}

static const struct ZeroStage stages[] = {
    // 0: every rank keeps everything
    {
        .before_forward = params_resident_forward,
        .after_forward = params_release_forward,
        .before_backward = grads_resident,
        .after_backward = all_reduce_and_release,
        .update = update_kept,
        .after_update = nothing_after_update,
    },
    // 1: optimizer state in shards
    {
        .shards_optimizer = true,
        .before_forward = params_resident_forward,
        .after_forward = params_release_forward,
        .before_backward = grads_resident,
        .after_backward = reduce_and_release,
        .update = update_kept,
        .after_update = params_gather,
    },
    // 2: gradients and optimizer state in shards
    {
        .shards_grad = true,
        .shards_optimizer = true,
        .before_forward = params_resident_forward,
        .after_forward = params_release_forward,
        .before_backward = resident_and_bucket,
        .after_backward = reduce_each_and_release,
        .update = update_kept,
        .after_update = params_gather,
    },
    // 3: everything in shards
    {
        .shards_param = true,
        .shards_grad = true,
        .shards_optimizer = true,
        .before_forward = params_fetch_forward,
        .after_forward = params_release_forward,
        .before_backward = fetch_and_bucket,
        .after_backward = reduce_each_and_release,
        .update = update_kept,
        .after_update = nothing_after_update,
    },
};

const struct ZeroStage *zero_stage(int stage) {
    bool built = stage >= 0 && (size_t)stage < sizeof stages / sizeof stages[0];
    return built ? &stages[stage] : NULL;
}

// ---- around a unit ----

static int group_of(const struct Zero *z, int u) {
    return params_unit_group(z->params, u);
}

void zero_before_forward(struct Zero *z, int u) {
    z->device->label.unit = u;
    z->stage->before_forward(z, u, group_of(z, u));
    keep_before_forward(z, u);
}

void zero_after_forward(struct Zero *z, int u) {
    z->stage->after_forward(z, u, group_of(z, u));
    keep_after_forward(z, u);
}

void zero_before_backward(struct Zero *z, int u) {
    z->device->label.unit = u;
    z->stage->before_backward(z, u, group_of(z, u));
    keep_before_backward(z, u);
}

void zero_after_backward(struct Zero *z, int u) {
    z->stage->after_backward(z, u, group_of(z, u));
    keep_after_backward(z, u);
}
