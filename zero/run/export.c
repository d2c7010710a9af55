// See export.h.
#include "zero/run/export.h"
#include "zero/state.h"

// Elements [begin, end) of parameter p, counted in its group.
static int export_range(struct Zero *z, int g, const struct Param *p, size_t begin, size_t end,
                        const struct ExportSink *to, float *chunk, struct Error *e) {
    int layer = params_layer(z->params, g), err = 0;
    for (size_t i = begin; i < end && !err; i += STATE_CHUNK) {
        size_t n = size_min(STATE_CHUNK, end - i);
        zero_read_state(z, g, STATE_MASTER, i - zero_owned_begin(z, g), n, chunk);
        err = to->write(to->context, layer, p->name, i - p->offset, n, chunk, e);
    }
    return err;
}

// This rank's shard of every group, whatever it keeps of the others.
static int export_shards(struct Zero *z, const struct ExportSink *to, struct Error *e) {
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    int err = 0;
    zero_finish(z);
    for (int g = 0; g < z->params->ngroup && zero_tells(z); g++) {
        const struct Group *group = &z->params->group[g];
        size_t shard = zero_shard_numel(z, g), begin = shard * (size_t)z->dp->rank;
        for (int i = 0; i < group->nparam && !err; i++) {
            const struct Param *p = &group->param[i];
            size_t first = size_max(begin, p->offset);
            size_t last = size_min(begin + shard, p->offset + p->real);
            if (first < last)
                err = export_range(z, g, p, first, last, to, chunk, e);
        }
    }
    device_free_host(z->device, chunk);
    return err;
}

int export_weights(struct Zero *z, const struct ExportSink *to, bool joins, struct Error *e) {
    bool first = z->all->rank == 0;
    int err = zero_agree(z, first ? to->make(to->context, e) : 0);
    if (err)
        return err; // what was made is gone
    err = zero_agree(z, joins ? to->join(to->context, e) : 0);
    if (!err)
        err = export_shards(z, to, e);
    if (!err)
        err = to->sync(to->context, e);
    err = zero_agree(z, err);
    if (!err)
        err = zero_agree(z, first ? to->commit(to->context, e) : 0);
    if (err && first)
        to->abandon(to->context);
    return err;
}
