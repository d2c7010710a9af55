// How ranks are laid out, and which layouts go together: places of tensor parallelism, shards,
// second partitions, and the batches that data-parallel ranks share. See settings.h and
// zero/comm/grid.h.
#include "zero/settings/settings.h"
#include "zero/pipe/order.h"
#include "zero/pipe/split.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_RANKS = 1024 }; // of a run

int settings_stage(const struct RankSettings *s) {
    struct Grid grid = settings_grid(s);
    return grid_coord(&grid, s->rank, AXIS_PP);
}

size_t settings_acts_in_flight(const struct RankSettings *s) {
    return s->acts_in_flight ? s->acts_in_flight
                             : order_kept(settings_stages(s), settings_stage(s), s->nmicro);
}

// "; --ranks 1, 3 or 6 would do": what divides the steps, as far as there is room for it.
static void describe_divisors(size_t whole, size_t most, const char *flag, char *text,
                              size_t bytes) {
    size_t found[12], n = 0;
    for (size_t i = 1; i <= size_min(whole, most) && n < 12; i++)
        if (whole % i == 0)
            found[n++] = i;
    int at = snprintf(text, bytes, "; %s", flag);
    for (size_t i = 0; i < n; i++)
        at += snprintf(text + at, bytes - (size_t)at, "%s%zu",
                       i == 0      ? " "
                       : i + 1 < n ? ", "
                                   : " or ",
                       found[i]);
    snprintf(text + at, bytes - (size_t)at, " would do");
}

// "--ranks 8 / --tp 2 / --pp 2": the data-parallel ranks, and what they come of.
static const char *name_data_ranks(const struct RankSettings *r, char *text, size_t bytes) {
    int at = snprintf(text, bytes, "--ranks %d", r->ranks);
    if (settings_tp_size(r) > 1)
        at += snprintf(text + at, bytes - (size_t)at, " / --tp %d", settings_tp_size(r));
    if (settings_stages(r) > 1)
        snprintf(text + at, bytes - (size_t)at, " / --pp %d", settings_stages(r));
    return text;
}

// Which global batches would do, and which counts of ranks share the step in batches of this size;
// or which batches do.
int settings_refuse_batch(const struct Settings *s, struct Error *e) {
    const struct RankSettings *r = &s->rank;
    size_t ranks = (size_t)settings_data_ranks(r), together = r->batch * ranks;
    size_t less = s->global_batch / together * together;
    char counts[160] = "", shared[64], steps[48] = "";
    if (less)
        snprintf(steps, sizeof steps, "%zu or ", less);
    if (s->global_batch % r->batch == 0 && ranks == (size_t)r->ranks)
        describe_divisors(s->global_batch / r->batch, MOST_RANKS, "--ranks", counts, sizeof counts);
    else if (s->global_batch % ranks == 0)
        describe_divisors(s->global_batch / ranks, r->batch, "--batch", counts, sizeof counts);
    return error_set(e, -EINVAL, E_GLOBAL_BATCH,
                     "--global-batch %zu: expected a multiple of %zu, --batch %zu on each of %s; "
                     "--global-batch %s%zu would do%s",
                     s->global_batch, together, r->batch, name_data_ranks(r, shared, sizeof shared),
                     steps, less + together, counts);
}

// Each place of tensor parallelism, in each stage, is a rank.
int settings_check_tp(const struct RankSettings *r, struct Error *e) {
    char would_do[160] = "";
    size_t ranks = (size_t)r->ranks, places = (size_t)settings_tp_size(r);
    if (ranks % (places * (size_t)settings_stages(r)) == 0)
        return 0;
    bool both = places > 1 && settings_stages(r) > 1;
    const char *flag = both ? "a product of" : places > 1 ? "--tp" : "--pp";
    describe_divisors(ranks, ranks, flag, would_do, sizeof would_do);
    if (both)
        return error_set(e, -EINVAL, E_GRID,
                         "--tp %zu --pp %d: expected a product that is a divisor of --ranks %zu%s",
                         places, settings_stages(r), ranks, would_do);
    return error_set(e, -EINVAL, E_GRID, "%s %zu: expected a divisor of --ranks %zu%s", flag,
                     places * (size_t)settings_stages(r), ranks, would_do);
}

int settings_check_split(const struct RankSettings *r, struct Error *e) {
    size_t stages = (size_t)settings_stages(r);
    if (r->cluster) // its stages are alike, and none is the embedding's alone
        return stages <= r->model.layers
                   ? 0
                   : error_set(e, -EINVAL, E_PP_STAGES,
                               "--pp %zu: expected at most one stage for each of --layers %zu",
                               stages, r->model.layers);
    struct SplitPart *parts = base_alloc(stages * sizeof *parts);
    int err = split_stages(&r->model, r->recompute, (int)stages, r->pp_split, parts, e);
    free(parts);
    return err;
}

int settings_check_rows(const struct RankSettings *r, struct Error *e) {
    size_t places = (size_t)settings_tp_size(r), t = r->model.seq_len;
    if (!r->sequence_parallel || t % places == 0)
        return 0;
    return error_set(e, -EINVAL, E_SEQUENCE_PARALLEL,
                     "--seq-len %zu: expected a multiple of --tp %zu, because --sequence-parallel "
                     "splits each sequence over the tensor-parallel ranks; %zu would do",
                     t, places, size_max(t / places, 1) * places);
}

// A count that does not divide the data-parallel ranks, with those that do.
static int refuse_divisor(const struct RankSettings *r, enum ErrorId id, const char *flag,
                          size_t value, struct Error *e) {
    char would_do[160] = "", shared[64];
    size_t ranks = (size_t)settings_data_ranks(r);
    describe_divisors(ranks, ranks, flag, would_do, sizeof would_do);
    return error_set(e, -EINVAL, id, "%s %zu: expected a divisor of %s%s", flag, value,
                     name_data_ranks(r, shared, sizeof shared), would_do);
}

// A second partition is cut over neighbours of those that the first one is cut over.
static int check_second(const struct RankSettings *r, struct Error *e) {
    const char *flag = "--zero-hpz-partition-size";
    char would_do[160] = "";
    size_t shards = (size_t)settings_shard_ranks(r);
    if (!r->hpz_size || shards % r->hpz_size == 0)
        return 0;
    if (shards == (size_t)settings_data_ranks(r))
        return refuse_divisor(r, E_HPZ_SIZE, flag, r->hpz_size, e);
    describe_divisors(shards, shards, flag, would_do, sizeof would_do);
    return error_set(e, -EINVAL, E_HPZ_SIZE,
                     "%s %zu: expected a divisor of --zero-shard-size %zu%s", flag, r->hpz_size,
                     shards, would_do);
}

int settings_check_shards(const struct RankSettings *r, struct Error *e) {
    size_t ranks = (size_t)settings_data_ranks(r);
    // The first hop of gradients is among the ranks of a node, or of a stage that lies in one.
    bool in_node = settings_stages(r) > 1 && r->node_size % ranks == 0;
    int err = settings_check_layout(r, e);
    if (err)
        return err;
    if (r->shard_size && ranks % r->shard_size)
        return refuse_divisor(r, E_SHARD_SIZE_RANKS, "--zero-shard-size", r->shard_size, e);
    if (r->quantized_gradients && r->node_size && ranks % r->node_size && !in_node)
        return refuse_divisor(r, E_QUANT_NODES, "--node-size", r->node_size, e);
    return check_second(r, e);
}
