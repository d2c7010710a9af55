// Reads weights from files, writes and hashes them: see weights.h. Next: import_run.c.
#include "zero/weights/weights.h"

#include "zero/state.h"

#include <stdlib.h>
#include <string.h>

// ---- adapters, added to the weights that they are for ----

// One adapter's master weights, where a model is exported: W + (alpha / rank) B A, in fp32. (Hu et
// al. 2021, section 4.1; PEFT's merge_and_unload.)
struct Merge {
    int group;          // whose adapter is in `whole`; -1: none
    float *own, *whole; // this rank's shard, and all of it
};

static void open_merge(struct Merge *m, struct Zero *z) {
    size_t most = params_largest(z->params, GROUP_ADAPTER);
    *m = (struct Merge){.group = -1};
    if (!most)
        return;
    m->own = base_alloc(most / (size_t)z->shard_group->size * sizeof *m->own);
    m->whole = base_alloc(most * sizeof *m->whole);
}

static void read_own_shard(struct Merge *m, struct Zero *z, int adapter) {
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

// Gathers the adapter of a block's group, if it has one. All ranks that share state call it for the
// same groups, in order.
static void gather_adapter(struct Merge *m, struct Zero *z, int g) {
    int unit = z->params->group[g].first_unit, adapter = z->params->unit[unit].adapter;
    m->group = -1;
    if (adapter < 0 || z->params->group[g].kind != GROUP_BLOCK)
        return;
    read_own_shard(m, z, adapter);
    comm_gather_host(z->shard_group, m->whole, m->own,
                     zero_shard_numel(z, adapter) * sizeof *m->own);
    m->group = adapter;
}

// ---- a group's elements, piece by piece ----

// The elements that move at once: [begin, end) of a group, and its pieces of parameters.
struct Chunk {
    int group, layer, npiece;
    size_t begin, end;
    struct Piece piece[MAX_PIECES];
    float *values;
};

// Reads all elements of a chunk, with zeros between pieces, into the group's master weights.
static int read_chunk(struct Zero *z, struct Chunk *c, const struct ImportSource *from,
                      struct Error *e) {
    size_t n = c->end - c->begin;
    int err = 0;
    memset(c->values, 0, n * sizeof *c->values);
    for (int i = 0; i < c->npiece && !err; i++) {
        const struct Piece *p = &c->piece[i];
        err = from->read(from->context, c->layer, p->param->name, &p->range,
                         c->values + (p->begin - c->begin), e);
    }
    if (!err)
        zero_write_state(z, c->group, STATE_MASTER, c->begin - zero_owned_begin(z, c->group), n,
                         c->values);
    return err;
}

// Writes the elements of a chunk that this rank counts, with its adapter's product.
static int write_chunk(struct Zero *z, struct Chunk *c, const struct ExportSink *to,
                       const struct Merge *merge, struct Error *e) {
    int g = c->group, err = 0;
    for (int i = 0; i < c->npiece && !err; i++) {
        const struct Piece *p = &c->piece[i];
        if (!params_counts(z->params, p->param))
            continue;
        zero_read_state(z, g, STATE_MASTER, p->begin - zero_owned_begin(z, g), p->range.n,
                        c->values);
        if (merge->group >= 0)
            params_add_adapter(z->params, g, p->param, p->begin, p->range.n, merge->whole,
                               c->values);
        err = to->write(to->context, c->layer, p->param->name, &p->range, c->values, e);
    }
    return err;
}

// Reads all that this rank owns of every group (`from`), or exports its shard, whatever it keeps of
// the others (`to`); one of the two is NULL. For an export the ranks gather every group's adapter,
// also after an error of their own.
static int import_or_export_groups(struct Zero *z, const struct ImportSource *from,
                                   const struct ExportSink *to, struct Error *e) {
    struct Chunk c = {.values = device_alloc_host(z->device, STATE_CHUNK * sizeof *c.values)};
    bool adapters = from ? from->adapters : to->adapters;
    struct Merge merge;
    int err = 0;
    open_merge(&merge, z);
    for (int g = 0; g < z->params->ngroup; g++) {
        size_t shard = zero_shard_numel(z, g);
        size_t begin = from ? zero_owned_begin(z, g) : shard * (size_t)z->shard_group->rank;
        size_t end = begin + (from ? zero_owned_numel(z, g) : shard);
        if ((z->params->group[g].kind == GROUP_ADAPTER) != adapters)
            continue;
        if (to)
            gather_adapter(&merge, z, g);
        if (to && !zero_reports_group(z, g))
            continue;
        c.group = g;
        c.layer = params_layer(z->params, g);
        for (c.begin = begin; c.begin < end && !err; c.begin = c.end) {
            c.end = size_min(c.begin + STATE_CHUNK, end);
            c.npiece = params_pieces(&z->params->group[g], c.begin, c.end, c.piece);
            err = from ? read_chunk(z, &c, from, e) : write_chunk(z, &c, to, &merge, e);
        }
    }
    free(merge.own);
    free(merge.whole);
    device_free_host(z->device, c.values);
    return err;
}

// ---- from files ----

int import_check(const struct ModelConfig *c, const struct ImportSource *from, struct Error *e) {
    if (!from->ask)
        return 0;
    int err = params_visit(c, from->adapters, from->ask, from->context, e);
    return err ? err : from->check_all_asked(from->context, e);
}

void import_log(const struct ModelConfig *c, const struct ImportSource *from) {
    for (const char *at = from->remarks; at && *at; at += strcspn(at, "\n") + 1)
        log_line(LOG_NORMAL, "%.*s", (int)strcspn(at, "\n"), at);
    if (from->seq_len && c->seq_len > from->seq_len)
        log_line(LOG_NORMAL,
                 "--seq-len %zu: the model of --init knows only %zu positions "
                 "(max_position_embeddings); lower --seq-len, or train long enough to learn more",
                 c->seq_len, from->seq_len);
}

int import_weights(struct Zero *z, const struct ImportSource *from, struct Error *e) {
    if (from->load)
        return from->load(from->context, z, e);
    zero_sync(z);
    int err = zero_agree(z, import_or_export_groups(z, from, NULL, e));
    if (!err)
        zero_store_params(z, false);
    return err;
}

// ---- into files ----

int export_weights(struct Zero *z, const struct ExportSink *to, bool joins, struct Error *e) {
    bool first = z->all->rank == 0;
    int err = zero_agree(z, first ? to->make(to->context, e) : 0);
    if (err)
        return err; // `make` has removed its files
    err = zero_agree(z, joins ? to->join(to->context, e) : 0);
    if (!err) {
        zero_finish(z);
        err = import_or_export_groups(z, NULL, to, e);
    }
    if (!err)
        err = to->sync(to->context, e);
    err = zero_agree(z, err);
    if (!err)
        err = zero_agree(z, first ? to->commit(to->context, e) : 0);
    if (err && first)
        to->abandon(to->context);
    return err;
}

// ---- the hash ----

// Each rank hashes its own shard, whatever it keeps; the shards' hashes add up, each counted once.
static uint64_t hash_groups(struct Zero *z, bool with_adapters) {
    uint64_t hash = 0, sum = 0;
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    zero_finish(z);
    for (int g = 0; g < z->params->ngroup; g++) {
        size_t shard = zero_shard_numel(z, g), end = shard * ((size_t)z->shard_group->rank + 1);
        for (size_t begin = end - shard; begin < end && zero_reports_group(z, g);
             begin += STATE_CHUNK) {
            if (z->params->group[g].kind == GROUP_ADAPTER && !with_adapters)
                break;
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

uint64_t zero_weights_hash(struct Zero *z) {
    return hash_groups(z, true);
}

uint64_t zero_base_hash(struct Zero *z) {
    uint64_t hash = z->params->config.lora.rank ? hash_groups(z, false) : 0;
    return z->params->config.lora.rank && !hash ? 1 : hash;
}
