// ZeRO's stages as a table: one row per stage.
//
// A row says what the stage does in a step: which state it shards, and the hops of a group's chains
// (hop.h), which are in param.c, grad.c, opt.c and reports.c. Other features of a run, such as
// offload, add hops to these chains when a group is opened. Next: chain.c.
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
    bool exists = stage >= 0 && (size_t)stage < sizeof stages / sizeof stages[0];
    return exists ? &stages[stage] : NULL;
}
