// A micro-batch for half of the free memory: see half.h. Next: candidates.c.
#include "zero/plan/half.h"

#include <stdlib.h>

static size_t half_of(size_t bytes) {
    return bytes == SIZE_MAX ? bytes : bytes / 2;
}

int half_batch(const struct RankSettings *s, struct HalfRoom room, int ranks_here, size_t *batch,
               struct Error *e) {
    struct Trials t;
    struct Capacity half;
    size_t *list;
    for (enum Shortage of = SHORT_NOT; of < NSHORTAGE; of++)
        half.of[of] = SIZE_MAX;
    half.of[SHORT_PLACE] = half_of(room.place);
    half.of[SHORT_MEMORY] = half_of(room.host);
    int err = trials_open(&t, s, &half, ranks_here, false, e);
    if (!err) {
        size_t n = candidates_batches(s, s->batch, &list);
        size_t fitting = candidates_fitting(list, n, candidate_of(s), trials_fit, &t);
        *batch = n ? list[fitting ? fitting - 1 : 0] : s->batch;
        free(list);
    }
    trials_close(&t);
    return err;
}
