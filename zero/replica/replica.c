// The sum over replicas: see replica.h.
#include "zero/replica/replica.h"
#include "zero/shard.h"

static void all_reduce_replicas(struct Zero *z, const struct HopArgs *a) {
    struct Comm *c = a->context;
    size_t n = zero_shard_numel(z, a->group) / (size_t)c->size;
    c->ops->all_reduce(c, a->mem[BUFFER_SHARD], n, z->plan.grad.dtype);
}

static const struct Hop replica_all_reduce = {
    "replica_all_reduce",       POINT_AFTER,  WHEN_LAST, QUEUE_COMM, USES_SHARD,
    .run = all_reduce_replicas, .where = HERE};

void replica_join(struct Zero *z, struct Comm *replicas) {
    for (int g = 0; g < z->params->ngroup && replicas; g++)
        if (zero_trains(z, g))
            chain_add(&z->state[g].chain[REDUCE], &replica_all_reduce, replicas);
}
