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

// Exports this rank's shard of every group, whatever it keeps of the others.
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
        return err; // `make` has removed its files
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
