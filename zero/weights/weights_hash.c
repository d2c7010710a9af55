// See weights_hash.h. Next: export.c, which takes the weights the same way.
#include "zero/weights/weights_hash.h"

#include "zero/state.h"

// Each rank hashes its own shard, whatever it keeps; the shards' hashes add up, each shard's once.
uint64_t zero_weights_hash(struct Zero *z) {
    uint64_t hash = 0, sum = 0;
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    zero_finish(z);
    for (int g = 0; g < z->params->ngroup; g++) {
        size_t shard = zero_shard_numel(z, g), end = shard * ((size_t)z->shard_group->rank + 1);
        for (size_t begin = end - shard; begin < end && zero_reports_group(z, g);
             begin += STATE_CHUNK) {
            size_t stop = size_min(begin + STATE_CHUNK, end);
            zero_read_state(z, g, STATE_MASTER, begin - zero_owned_begin(z, g), stop - begin,
                            chunk);
            hash += params_hash(z->params, g, begin, stop, chunk);
        }
    }
    device_free_host(z->device, chunk);
    const uint64_t *all = zero_share(z, hash);
    for (int r = 0; r < z->all->size; r++)
        sum += all[r];
    return sum;
}
