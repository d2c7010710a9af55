// ZeRO's stages as a table: one row is one stage, and an entry is what happens around unit u with
// group g.
//
// Reading a row from left to right is reading what the stage does during a step. The entries are
// functions of param.c, grad.c and opt.c.
#include "zero/zero.h"

static void nothing(struct Zero *z, int u, int g) {
    (void)z;
    (void)u;
    (void)g;
}

static void nothing_after_update(struct Zero *z, int g) {
    (void)z;
    (void)g;
}

static const struct ZeroStage stages[] = {
    {
        .name = "0",
        .before_forward = params_resident,
        .after_forward = nothing,
        .before_backward = grads_resident,
        .after_backward = grads_all_reduce_at_end,
        .update = update_whole,
        .after_update = nothing_after_update,
    },
};

const struct ZeroStage *zero_stage(int stage) {
    bool built = stage >= 0 && (size_t)stage < sizeof stages / sizeof stages[0];
    return built ? &stages[stage] : NULL;
}
