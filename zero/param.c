// Parameters: where a unit finds its weights, and the fp32 master weights behind them.
#include "zero/zero.h"

#include <stdlib.h>

// The weights lie whole on the device all the time: nothing to fetch.
void params_resident(struct Zero *z, int u, int g) {
    (void)u;
    z->w[g] = z->state[g].param.mem;
}

size_t zero_master_numel(const struct Zero *z, int g) {
    size_t n = z->params->group[g].padded;
    return z->plan.optimizer.sharded ? n / (size_t)z->dp->size : n;
}

size_t zero_master_begin(const struct Zero *z, int g) {
    return z->plan.optimizer.sharded ? zero_master_numel(z, g) * (size_t)z->dp->rank : 0;
}

float *zero_master(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    return z->plan.own_master ? s->master.mem : s->param.mem;
}

void zero_store_params(struct Zero *z) {
    struct Device *d = z->device;
    for (int g = 0; z->plan.own_master && g < z->params->ngroup; g++)
        d->kernels->cast(d->queue[QUEUE_COMPUTE], &(struct Cast){
                                                      .n = zero_master_numel(z, g),
                                                      .dst_dtype = z->plan.param.dtype,
                                                      .src_dtype = F32,
                                                      .dst = z->state[g].param.mem,
                                                      .src = zero_master(z, g),
                                                  });
}

void zero_init_weights(struct Zero *z, uint64_t seed) {
    struct Device *d = z->device;
    for (int g = 0; g < z->params->ngroup; g++) {
        struct GroupState *s = &z->state[g];
        size_t begin = zero_master_begin(z, g), end = begin + zero_master_numel(z, g);
        params_init(z->params, g, begin, end, seed, d, zero_master(z, g));
        device_zero(d, QUEUE_COMPUTE, s->m.mem, s->m.bytes);
        device_zero(d, QUEUE_COMPUTE, s->v.mem, s->v.bytes);
        device_zero(d, QUEUE_COMPUTE, s->grad.mem, s->grad.bytes); // its padding stays 0 for ever
    }
    zero_store_params(z);
    z->step = 0;
}

uint64_t zero_weights_hash(struct Zero *z) {
    struct Device *d = z->device;
    uint64_t hash = 0;
    for (int g = 0; g < z->params->ngroup; g++) {
        size_t begin = zero_master_begin(z, g), n = zero_master_numel(z, g);
        float *host = base_alloc(n * sizeof *host);
        device_sync_queue(d, QUEUE_COMPUTE);
        device_copy(d, QUEUE_OUT, host, zero_master(z, g), n * sizeof *host);
        device_sync_queue(d, QUEUE_OUT);
        hash += params_hash(z->params, g, begin, begin + n, host);
        free(host);
    }
    return hash;
}
