// Grids of ranks, as what they change in settings: tests run them, and end ranks inside of them.
#ifndef TESTS_LIB_GRIDS_H
#define TESTS_LIB_GRIDS_H
#include "zero/rank/rank.h"

static inline void grid_parts(struct RankSettings *s) {
    s->tp = 2;
}
static inline void grid_rows_in_parts(struct RankSettings *s) {
    s->tp = 2;
    s->sequence_parallel = true;
}
static inline void grid_kept_in_parts(struct RankSettings *s) {
    s->tp = 2;
    s->recompute = RECOMPUTE_BLOCK;
    s->partition_activations = true;
}
static inline void grid_stages(struct RankSettings *s) {
    s->pp = 2;
    s->model.untied = true;
}
static inline void grid_replicas(struct RankSettings *s) {
    s->shard_size = 2;
}
static inline void grid_second_partition(struct RankSettings *s) {
    s->hpz_size = 2;
}

#endif
