// Adds adapters to the weights that they are for: see merge.h.
#include "zero/weights/merge.h"

#include "zero/state.h"

#include <stdlib.h>
#include <string.h>

void merge_open(struct Merge *m, struct Zero *z) {
    size_t most = params_largest(z->params, GROUP_ADAPTER);
    *m = (struct Merge){.group = -1};
    if (!most)
        return;
    m->own = base_alloc(most / (size_t)z->shard_group->size * sizeof *m->own);
    m->whole = base_alloc(most * sizeof *m->whole);
}

void merge_close(struct Merge *m) {
    free(m->own);
    free(m->whole);
    *m = (struct Merge){0};
}

static void read_own(struct Merge *m, struct Zero *z, int adapter) {
    size_t shard = zero_shard_numel(z, adapter), begin = shard * (size_t)z->shard_group->rank;
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    for (size_t n, i = 0; i < shard; i += n) {
        n = size_min(STATE_CHUNK, shard - i);
        zero_read_state(z, adapter, STATE_MASTER, begin + i - zero_owned_begin(z, adapter), n,
                        chunk);
        memcpy(m->own + i, chunk, n * sizeof *chunk);
    }
    device_free_host(z->device, chunk);
}

void merge_gather(struct Merge *m, struct Zero *z, int g) {
    int unit = z->params->group[g].first_unit, adapter = z->params->unit[unit].adapter;
    m->group = -1;
    if (adapter < 0 || z->params->group[g].kind != GROUP_BLOCK)
        return;
    read_own(m, z, adapter);
    comm_gather_host(z->shard_group, m->whole, m->own,
                     zero_shard_numel(z, adapter) * sizeof *m->own);
    m->group = adapter;
}
