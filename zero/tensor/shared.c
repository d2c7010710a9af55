// What all places of tensor parallelism have: norms, biases behind a sum, learned positions.
//
// Each place computes them for itself, from the same bits in the same way. A checkpoint takes the
// first place's, so when one is saved all places compare theirs: what differs would be lost in
// silence, and says that an exchange is missing, or that GPUs of two kinds round otherwise.
#include "zero/tensor/across.h"

#include "kernels/hash.h"
#include "zero/state.h"

#include <errno.h>
#include <stdlib.h>

// Of elements [begin, end) of group g, which this rank owns, every array.
static void hash_range(struct Zero *z, int g, size_t begin, size_t end, float *chunk,
                       struct Hash64 *h) {
    for (enum State what = STATE_MASTER; what < NSTATE; what++)
        for (size_t at = begin; at < end; at += STATE_CHUNK) {
            size_t n = size_min(STATE_CHUNK, end - at);
            zero_read_state(z, g, what, at - zero_owned_begin(z, g), n, chunk);
            hash64_update(h, chunk, n * sizeof *chunk);
        }
}

// Of this rank's shard of it.
static uint64_t hash_shared(struct Zero *z) {
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    struct Hash64 h;
    hash64_init(&h, 0);
    for (int g = 0; g < z->params->ngroup; g++) {
        const struct Group *group = &z->params->group[g];
        size_t n = zero_shard_numel(z, g), begin = n * (size_t)z->dp->rank;
        for (int i = 0; i < group->nparam; i++) {
            const struct Param *p = &group->param[i];
            size_t last = size_min(begin + n, p->offset + p->rows * p->cols);
            if (p->split == SPLIT_NONE)
                hash_range(z, g, size_max(begin, p->offset), last, chunk, &h);
        }
    }
    device_free_host(z->device, chunk);
    return hash64_final(&h);
}

int tensor_check_shared(struct Zero *z, struct Error *e) {
    int places = z->parts->places, other = -1;
    if (places == 1)
        return 0;
    uint64_t *all = base_alloc_zeroed((size_t)z->all->size * sizeof *all);
    zero_share(z, hash_shared(z), all);
    for (int r = z->all->size - 1; r >= 0; r--)
        other = all[r] != all[r - r % places] ? r : other;
    free(all);
    if (other >= 0 && z->all->rank == 0)
        error_set(e, -EIO,
                  "rank %d has other norms or biases than rank %d, whose model it has a part of",
                  other, other - other % places);
    return other < 0 ? 0 : -EIO;
}
