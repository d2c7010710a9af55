// See export.h.
#include "zero/state.h"
#include "zero/weights/export.h"

static int export_piece(struct Zero *z, int g, const struct Piece *p, const struct ExportSink *to,
                        float *chunk, struct Error *e) {
    int layer = params_layer(z->params, g), err = 0;
    for (size_t n, i = 0; i < p->range.n && !err; i += n) {
        n = size_min(STATE_CHUNK, p->range.n - i);
        struct WeightsRange range = weights_cut(&p->range, i, n);
        zero_read_state(z, g, STATE_MASTER, p->begin + i - zero_owned_begin(z, g), n, chunk);
        err = to->write(to->context, layer, p->param->name, &range, chunk, e);
    }
    return err;
}

// This rank's shard of every group, whatever it keeps of the others.
static int export_shards(struct Zero *z, const struct ExportSink *to, struct Error *e) {
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    int err = 0;
    zero_finish(z);
    for (int g = 0; g < z->params->ngroup && !err; g++) {
        struct Piece piece[MAX_PIECES];
        size_t shard = zero_shard_numel(z, g), begin = shard * (size_t)z->shard_group->rank;
        int n = params_pieces(&z->params->group[g], begin, begin + shard, piece);
        n = zero_reports_group(z, g) ? n : 0;
        for (int i = 0; i < n && !err; i++)
            if (params_counts(z->params, piece[i].param))
                err = export_piece(z, g, &piece[i], to, chunk, e);
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
