// A micro-batch for half of the free memory: see half.h. Next: candidates.c.
#include "zero/plan/half.h"

#include <stdlib.h>

struct Halving {
    struct Trials trials;
    struct Room half;
};

static size_t half_of(size_t bytes) {
    return bytes == SIZE_MAX ? bytes : bytes / 2;
}

static bool fits_half(void *halving, const struct Candidate *c) {
    struct Halving *h = halving;
    struct Forecast f;
    return trials_forecast(&h->trials, c, &f) && !room_excess(&f, &h->half);
}

int half_batch(const struct RankSettings *s, struct HalfRoom room, int ranks_here, size_t *batch,
               struct Error *e) {
    struct Halving h;
    size_t *list;
    for (enum Shortage of = SHORT_NOT; of < NSHORTAGE; of++)
        h.half.of[of] = SIZE_MAX;
    h.half.of[SHORT_PLACE] = half_of(room.place);
    h.half.of[SHORT_MEMORY] = half_of(room.host);
    int err = trials_open(&h.trials, s, ranks_here, false, e);
    if (!err) {
        size_t n = candidates_batches(s, s->batch, &list);
        size_t fitting = candidates_fitting(list, n, candidate_of(s), fits_half, &h);
        *batch = n ? list[fitting ? fitting - 1 : 0] : s->batch;
        free(list);
    }
    trials_close(&h.trials);
    return err;
}
