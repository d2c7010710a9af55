// Compares state that several ranks hold besides their shards: norms, biases after a sum and
// learned positions on all TP ranks; a tied head's embedding at both ends of a pipeline.
//
// Each rank computes it for itself, from the same bits in the same way. A checkpoint takes the
// first one's, so all ranks compare theirs when one is saved: a difference would be lost in
// silence, and means that an exchange is missing, or that GPUs of two kinds round differently.
#include "zero/checkpoint/checkpoint.h"

#include "kernels/hash.h"
#include "zero/report.h"
#include "zero/state.h"

#include <errno.h>

// Hashes elements [begin, end) of every array of group g, which this rank owns.
static void hash_range(struct Zero *z, int g, size_t begin, size_t end, float *chunk,
                       struct Hash64 *h) {
    for (enum State what = STATE_MASTER; what < zero_narray(z, g, NSTATE); what++)
        for (size_t at = begin; at < end; at += STATE_CHUNK) {
            size_t n = size_min(STATE_CHUNK, end - at);
            zero_read_state(z, g, what, at - zero_owned_begin(z, g), n, chunk);
            hash64_update(h, chunk, n * sizeof *chunk);
        }
}

// Adds the elements to compare of a group's [begin, end), this rank's shard, to h.
typedef void HashShard(struct Zero *z, int g, size_t begin, size_t end, float *chunk,
                       struct Hash64 *h);

static void hash_whole_tensors(struct Zero *z, int g, size_t begin, size_t end, float *chunk,
                               struct Hash64 *h) {
    const struct Group *group = &z->params->group[g];
    for (int i = 0; i < group->nparam; i++) {
        const struct Param *p = &group->param[i];
        size_t stop = size_min(end, p->offset + p->rows * p->cols);
        if (p->split == SPLIT_NONE)
            hash_range(z, g, size_max(begin, p->offset), stop, chunk, h);
    }
}

static void hash_tied(struct Zero *z, int g, size_t begin, size_t end, float *chunk,
                      struct Hash64 *h) {
    if (z->params->group[g].shared)
        hash_range(z, g, begin, end, chunk, h);
}

// Gathers each rank's hash of its shards.
static const uint64_t *hash_shards(struct Zero *z, HashShard *each) {
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    struct Hash64 h;
    hash64_init(&h, 0);
    for (int g = 0; g < z->params->ngroup; g++) {
        size_t n = zero_shard_numel(z, g), begin = n * (size_t)z->shard_group->rank;
        each(z, g, begin, begin + n, chunk, &h);
    }
    device_free_host(z->device, chunk);
    return zero_share(z, hash64_final(&h));
}

// Returns the lowest rank whose hash is not that of the first one along the axis; -1: none. ends:
// compares only the last one, as only the ends of a pipeline have the same.
static int find_other(struct Zero *z, enum Axis axis, bool ends, HashShard *each) {
    const struct Grid *grid = &z->parallel->grid;
    int other = -1;
    const uint64_t *all = hash_shards(z, each);
    for (int r = z->all->size - 1; r >= 0; r--)
        if (!ends || grid_coord(grid, r, axis) == grid->size[axis] - 1)
            other = all[r] != all[grid_member(grid, r, axis, 0)] ? r : other;
    return other;
}

static int check_tp_ranks(struct Zero *z, struct Error *e) {
    const struct Grid *grid = &z->parallel->grid;
    int other = grid->size[AXIS_TP] > 1 ? find_other(z, AXIS_TP, false, hash_whole_tensors) : -1;
    if (other < 0)
        return 0;
    return error_set(e, -EIO, E_RANKS_DIFFER,
                     "rank %d holds different norms or biases than rank %d, but all "
                     "tensor-parallel ranks must hold the same; resume from an earlier checkpoint",
                     other, grid_member(grid, other, AXIS_TP, 0));
}

static int check_ends(struct Zero *z, struct Error *e) {
    const struct Grid *grid = &z->parallel->grid;
    bool tied = grid->size[AXIS_PP] > 1 && !z->params->config.untied;
    int other = tied ? find_other(z, AXIS_PP, true, hash_tied) : -1;
    if (other < 0)
        return 0;
    return error_set(
        e, -EIO, E_RANKS_DIFFER,
        "rank %d holds a different embedding than rank %d, but with --tie on the first and the "
        "last stage must hold the same; resume from an earlier checkpoint",
        other, grid_member(grid, other, AXIS_PP, 0));
}

int shared_check(struct Zero *z, struct Error *e) {
    struct Error found, ignored;
    int err = check_tp_ranks(z, &found);
    int ends = check_ends(z, err ? &ignored : &found);
    if ((err || ends) && z->all->rank == 0)
        *e = found;
    return err ? err : ends;
}
