// What several ranks have beside their shards: all places of tensor parallelism norms, biases
// behind a sum and learned positions; both ends of a pipeline the embedding of a tied head.
//
// Each rank computes them for itself, from the same bits in the same way. A checkpoint takes the
// first one's, so when one is saved all ranks compare theirs: what differs would be lost in
// silence, and says that an exchange is missing, or that GPUs of two kinds round otherwise.
#include "zero/checkpoint/shared.h"

#include "kernels/hash.h"
#include "zero/report.h"
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

// Adds what is to be compared of a group's elements [begin, end), this rank's shard, to h.
typedef void HashShard(struct Zero *z, int g, size_t begin, size_t end, float *chunk,
                       struct Hash64 *h);

static void hash_whole_tensors(struct Zero *z, int g, size_t begin, size_t end, float *chunk,
                               struct Hash64 *h) {
    const struct Group *group = &z->params->group[g];
    for (int i = 0; i < group->nparam; i++) {
        const struct Param *p = &group->param[i];
        size_t last = size_min(end, p->offset + p->rows * p->cols);
        if (p->split == SPLIT_NONE)
            hash_range(z, g, size_max(begin, p->offset), last, chunk, h);
    }
}

static void hash_tied(struct Zero *z, int g, size_t begin, size_t end, float *chunk,
                      struct Hash64 *h) {
    if (z->params->group[g].shared)
        hash_range(z, g, begin, end, chunk, h);
}

// Gathers each rank's word of it; free() it.
static uint64_t *hash_shards(struct Zero *z, HashShard *each) {
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    uint64_t *all = base_alloc_zeroed((size_t)z->all->size * sizeof *all);
    struct Hash64 h;
    hash64_init(&h, 0);
    for (int g = 0; g < z->params->ngroup; g++) {
        size_t n = zero_shard_numel(z, g), begin = n * (size_t)z->shard_group->rank;
        each(z, g, begin, begin + n, chunk, &h);
    }
    device_free_host(z->device, chunk);
    zero_share(z, hash64_final(&h), all);
    return all;
}

// What of the job is neither of these is its pipeline.
struct Grid shared_grid(const struct Zero *z) {
    struct Grid g = {{(int)z->params->places, z->shard_group->size, 1,
                      z->parallel->replicas ? z->parallel->replicas->size : 1}};
    g.size[AXIS_PP] = z->all->size / (g.size[AXIS_TP] * g.size[AXIS_DP] * g.size[AXIS_REPLICA]);
    CHECK(grid_coord(&g, z->all->rank, AXIS_TP) == (int)z->params->place,
          "rank %d has part %zu of %zu", z->all->rank, z->params->place, z->params->places);
    return g;
}

static int check_places(struct Zero *z, struct Error *e) {
    struct Grid grid = shared_grid(z);
    int other = -1;
    if (grid.size[AXIS_TP] == 1)
        return 0;
    uint64_t *all = hash_shards(z, hash_whole_tensors);
    for (int r = z->all->size - 1; r >= 0; r--)
        other = all[r] != all[grid_member(&grid, r, AXIS_TP, 0)] ? r : other;
    free(all);
    if (other < 0)
        return 0;
    return error_set(e, -EIO, E_RANKS_DIFFER,
                     "rank %d holds different norms or biases than rank %d, but all "
                     "tensor-parallel ranks must hold the same; resume from an earlier checkpoint",
                     other, grid_member(&grid, other, AXIS_TP, 0));
}

static int check_ends(struct Zero *z, struct Error *e) {
    struct Grid grid = shared_grid(z);
    int last = grid.size[AXIS_PP] - 1, other = -1;
    if (last == 0 || z->params->config.untied)
        return 0;
    uint64_t *all = hash_shards(z, hash_tied);
    for (int r = z->all->size - 1; r >= 0; r--)
        if (grid_coord(&grid, r, AXIS_PP) == last)
            other = all[r] != all[grid_member(&grid, r, AXIS_PP, 0)] ? r : other;
    free(all);
    if (other < 0)
        return 0;
    return error_set(
        e, -EIO, E_RANKS_DIFFER,
        "rank %d holds a different embedding than rank %d, but with --tie on the first and the "
        "last stage must hold the same; resume from an earlier checkpoint",
        other, grid_member(&grid, other, AXIS_PP, 0));
}

int shared_check(struct Zero *z, struct Error *e) {
    struct Error found, ignored;
    int err = check_places(z, &found);
    int ends = check_ends(z, err ? &ignored : &found);
    if ((err || ends) && z->all->rank == 0)
        *e = found;
    return err ? err : ends;
}
