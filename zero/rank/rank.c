// Opens and closes a rank, and writes its trace. See rank.h. Next: rank_step.c.
#include "zero/rank/rank.h"

#include "kernels/trace.h"
#include "zero/checkpoint/checkpoint.h"
#include "zero/comm/mpi.h"
#include "zero/comm/nccl.h"
#include "zero/offload/activations.h"
#include "zero/offload/offload.h"
#include "zero/rank/breakdown.h"
#include "zero/replica/replica.h"

#include <errno.h>
#include <stdlib.h>

// Sizes are counted in size_t; what could overflow it, or 2^60 bytes, is refused before it is
// counted. So are sizes that a GPU's kernels do not support.
static int check_sizes(const struct RankSettings *s, struct Error *e) {
    const struct ModelConfig *c = &s->model;
    double channels = (double)c->channels, layers = (double)c->layers;
    double rows = (double)s->batch * (double)c->seq_len;
    double widths = (double)(2 * model_qkv_width(c) + model_attention_width(c) + c->ffn +
                             model_fc_width(c) + c->heads);
    double kept = rows * layers * (5 * channels + widths) * sizeof(float);
    double weights = (widths * layers + 2 * (double)c->vocab_padded + (double)c->positions) *
                     channels * 5 * sizeof(float);
    if (s->device == DEVICE_CUDA && s->ranks > GPU_MAX_RANKS)
        return error_set(e, -EINVAL, E_GPU_RANKS,
                         "%d ranks: expected at most %d with --device cuda", s->ranks,
                         GPU_MAX_RANKS);
    if (s->device == DEVICE_CUDA && c->channels > GPU_MAX_CHANNELS)
        return error_set(e, -EINVAL, E_SHAPE_RANGE,
                         "--channels %zu: expected at most %d with --device cuda", c->channels,
                         GPU_MAX_CHANNELS);
    if (kept + weights < 0x1p60)
        return 0;
    return error_set(e, -EINVAL, E_SHAPE_RANGE,
                     "--batch %zu --seq-len %zu --channels %zu --layers %zu: the run would need "
                     "more than 2^60 bytes; lower one of them",
                     s->batch, c->seq_len, c->channels, c->layers);
}

// Opens the group of threads or processes, in which ranks find each other.
static struct Comm *open_job_group(struct Rank *r, const struct RankSettings *s) {
    struct MpiSettings mpi = {s->timeout_s, s->comm_chunk, s->check_comm};
    if (s->processes)
        return comm_open_mpi(r->device, &mpi, &r->staging);
    return s->group ? comm_open_thread(s->group, s->rank, r->device, s->timeout_s)
                    : comm_open_self(r->device);
}

// True if the ranks use NCCL: processes find out together whether each has a GPU of its own.
static bool may_use_nccl(struct Comm *group, const struct RankSettings *s,
                         const struct RankDeviceChoice *choice) {
    bool may = choice->kind == RANK_DEVICE_NCCL;
    if (s->device == DEVICE_CPU || !s->processes)
        return may;
    uint64_t *gpu = base_alloc_zeroed((size_t)group->size * sizeof *gpu);
    group->ops->share(group, may ? device_identity_cuda(choice->gpu) : 0, gpu);
    may = rank_device_gpus_apart(gpu, group->size);
    free(gpu);
    if (!may && group->rank == 0)
        log_line(LOG_NORMAL, "collectives use MPI, through the host's memory, as ranks share a GPU "
                             "or NCCL is missing; one GPU a rank and libnccl2 are faster");
    return may;
}

// Opens the groups along the axes of the grid.
static void open_axis_groups(struct Rank *r, const struct RankSettings *s, bool dry) {
    struct SplitPart *parts = base_alloc((size_t)settings_stages(s) * sizeof *parts);
    struct Error e;
    CHECK(!split_stages(&s->model, s->recompute, settings_stages(s), s->pp_split, parts, &e), "%s",
          e.text);
    int tp = settings_tp_size(s), hpz_size = s->hpz_size ? (int)s->hpz_size : 1;
    r->parallel = zero_parallel_none;
    r->parallel.grid = settings_grid(s);
    struct Grid hpz_grid = grid_of(s->ranks, tp, hpz_size, 1);
    r->shard_group = r->all;
    if (r->parallel.grid.size[AXIS_DP] < s->ranks) {
        r->all->axis = AXIS_ALL;
        r->shard_group = comm_split(r->all, &r->parallel.grid, AXIS_DP, dry);
    }
    if (r->parallel.grid.size[AXIS_REPLICA] > 1)
        r->parallel.replicas = comm_split(r->all, &r->parallel.grid, AXIS_REPLICA, dry);
    if (s->hpz_size)
        r->hpz_group = comm_split(r->all, &hpz_grid, AXIS_DP, dry);
    tp_join(&r->tp, r->all, &r->parallel.grid, s->sequence_parallel, dry);
    pipe_join(&r->pipe, &r->parallel, r->all, &r->parallel.grid, parts,
              model_first_trained(&s->model), !s->model.untied, dry);
    free(parts);
    if (s->quantized_gradients)
        wire_join(&r->wire, r->all, r->shard_group->size, settings_node_ranks(s), dry);
    struct Comm *groups[] = {r->all,     r->shard_group, r->parallel.replicas, r->hpz_group,
                             r->tp.comm, r->pipe.prev,   r->pipe.next,         r->pipe.tied};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (groups[i])
            comm_set_nodes(groups[i], settings_node_ranks(s));
}

static int open_comm(struct Rank *r, const struct RankSettings *s, bool dry, struct Error *e) {
    struct RankDeviceChoice choice;
    CHECK(!rank_device_choose(s, dry, &choice, e), "%s", e->text); // rank_device_open did already
    struct NcclSettings nccl = {s->comm_chunk, s->reduce_native, s->check_comm};
    r->all = dry ? comm_open_dry(r->device, s->rank, s->ranks) : open_job_group(r, s);
    if (!dry && may_use_nccl(r->all, s, &choice))
        r->all = comm_open_nccl(r->all, &nccl, &r->staging);
    open_axis_groups(r, s, dry);
    bool staged = choice.kind == RANK_DEVICE_MPI || choice.kind == RANK_DEVICE_NCCL;
    return staged ? tier_alloc(&r->tier[TIER_DEVICE], TAG_COMM, "pieces from other ranks",
                               s->comm_chunk, &r->staging, e)
                  : 0;
}

static void open_tiers(struct Rank *r, const struct RankSettings *s, bool dry) {
    struct Device *d = dry ? NULL : r->device;
    tier_init(&r->tier[TIER_DEVICE], TIER_DEVICE, d, s->device_bytes ? s->device_bytes : SIZE_MAX);
    size_t node = s->host_bytes ? s->host_bytes : SIZE_MAX; // one rank may use all of it
    size_t own = s->rank_host_bytes ? s->rank_host_bytes : SIZE_MAX;
    tier_init(&r->tier[TIER_CPU], TIER_CPU, d, size_min(node, own));
    tier_init(&r->tier[TIER_NVME], TIER_NVME, NULL, SIZE_MAX);
}

// Opens the core; it gets the operations for offloaded state from here.
static int open_zero(struct Rank *r, const struct RankSettings *s, struct Error *e) {
    struct ZeroOptions options = settings_zero(s);
    options.shard_group = r->shard_group;
    options.tier = r->tier;
    struct OffloadOptions offload = {.host = r->host,
                                     .param_tier = s->param_tier,
                                     .opt_tier = s->opt_tier,
                                     .ratio = s->offload_ratio > 0 ? s->offload_ratio : 1,
                                     .delayed = s->delayed,
                                     .delay_after = s->delay_after,
                                     .no_staging = s->inference && s->device == DEVICE_CPU};
    struct ZeroPlan plan = zero_plan(&options);
    int first_offloaded;
    int err = offload_plan(&plan, &options, &offload, &r->params, &first_offloaded, e);
    if (err)
        return err;
    r->zero = (struct Zero){.device = r->device,
                            .all = r->all,
                            .shard_group = r->shard_group,
                            .parallel = &r->parallel,
                            .model = &r->model,
                            .params = &r->params,
                            .backing = zero_on_device};
    if (settings_needs_offload(s))
        r->zero.backing = offload_backing(&r->zero, &options, &offload, first_offloaded);
    err = zero_open(&r->zero, &options, &plan, e);
    // Each adds its hops to the groups' chains: at one point, in the order of these calls.
    if (!err)
        err = wire_open(&r->wire, &r->zero, &r->tier[TIER_DEVICE], e);
    if (!err)
        err = tp_open(&r->tp, &r->zero, &r->tier[TIER_DEVICE], r->staging.bytes, e);
    if (!err)
        err = pipe_open(&r->pipe, &r->zero, &r->tier[TIER_DEVICE], r->staging.bytes, e);
    if (!err)
        replica_join(&r->zero, r->parallel.replicas);
    return err || !r->hpz_group
               ? err
               : hpz_open(&r->hpz, &r->zero, r->hpz_group, &r->tier[TIER_DEVICE], e);
}

static int open_acts(struct Rank *r, const struct RankSettings *s, struct Error *e) {
    const struct TpComm *parts = s->partition_activations ? r->model.across : NULL;
    const struct Parallel *parallel = &r->parallel;
    size_t layers = r->model.config.layers;
    size_t sets = s->inference ? 1 : settings_acts_in_flight(s), kept = layers * sets;
    size_t generates = s->inference && s->cache_tokens ? s->batch : 0;
    struct ActsSpec spec = {
        .level = s->recompute,
        .sets = sets,
        .forgotten = s->inference ? 0 : params_forgotten(&r->params),
        .no_head = parallel->stage + 1 < parallel->stages,
        .inference = s->inference,
        .generated_rows = generates,
        .b = generates ? 1 : s->batch,
        .t = generates ? size_max(size_min(s->model.seq_len, PREFILL_TOKENS), generates)
                       : s->model.seq_len,
        .slots = s->inference
                     ? size_min(kept, 2)
                     : act_offload_slots(s->act_tier, s->partition_activations, kept, s->prefetch),
        .tp_size = tp_comm_size(r->model.across),
        .row_parts = tp_comm_row_parts(r->model.across),
        .slot_parts = tp_comm_size(parts),
        .piece_bytes = r->device->piece_bytes,
        .piece_rows = r->device->piece_rows};
    int err = acts_open(&r->acts, &r->model.config, &spec, &r->tier[TIER_DEVICE], e);
    if ((s->act_tier != TIER_DEVICE || parts) && spec.slots == kept &&
        !tier_is_dry(&r->tier[TIER_DEVICE]) && parallel->stages == 1 && s->rank == 0)
        log_line(LOG_NORMAL,
                 "%s moves nothing: all %zu layers fit into the slots that --prefetch %zu keeps on "
                 "the device; leave it out",
                 parts ? "--partition-activations" : "--offload-activations", layers, s->prefetch);
    struct ActOffloadSpec offload = {.store = &r->tier[s->act_tier],
                                     .cpu = &r->tier[TIER_CPU],
                                     .layers = layers,
                                     .sets = sets,
                                     .slots = spec.slots,
                                     .forgotten = spec.forgotten,
                                     .mem = r->acts.slot_mem,
                                     .bytes = r->acts.slot_bytes,
                                     .parts = parts,
                                     .dry = tier_is_dry(&r->tier[TIER_DEVICE])};
    bool offloads = offload_of(&r->zero) && !s->inference;
    return err || !offloads ? err : act_offload_open(&r->zero, &offload, e);
}

// Opens the cache of the texts that are continued: one, for the samples of a run that trains.
static int open_cache(struct Rank *r, const struct RankSettings *s, struct Error *e) {
    struct KvCacheSpec spec = {.sequences = size_max(1, r->acts.generated_rows),
                               .tokens = s->cache_tokens,
                               .at_once = size_min(r->acts.t_max, PREFILL_TOKENS),
                               .dtype = s->cache_dtype == NDTYPE ? s->model.dtype : s->cache_dtype};
    return s->cache_tokens
               ? kv_cache_open(&r->model.cache, &r->model.config, &spec, &r->tier[TIER_DEVICE], e)
               : 0;
}

// Opens the disk after everything that is stored there was counted.
static int open_nvme(struct Rank *r, const struct RankSettings *s, bool dry, struct Error *e) {
    if (dry || !r->tier[TIER_NVME].total)
        return 0;
    int err = nvme_open(&r->nvme, &s->nvme, s->rank, r->tier[TIER_NVME].end, e);
    if (!err)
        move_open_disk(&offload_of(&r->zero)->mover, r->nvme);
    return err;
}

_Static_assert((int)RANK_COMMS <= (int)ZERO_TRACE_COMMS, "groups of a trace");

static void watch_memory(struct Rank *r, const struct RankSettings *s) {
    const struct Comm *comms[RANK_COMMS];
    struct ZeroTraceParts parts = {.zero = &r->zero, .traces = {r->trace, r->host_trace}};
    rank_comms(r, comms);
    for (int i = 0; i < RANK_COMMS; i++)
        parts.comms[i] = (struct Comm *)comms[i];
    parts.mover = offload_of(&r->zero) ? &offload_of(&r->zero)->mover : NULL;
    zero_trace_watch(r->zero_trace, &parts);
    r->trace_head = (struct ZeroTraceRun){.device = r->device->name,
                                          .stage = s->stage,
                                          .param_tier = s->param_tier,
                                          .opt_tier = s->opt_tier,
                                          .act_tier = s->act_tier,
                                          .micro_batch = s->batch,
                                          .seq_len = s->model.seq_len,
                                          .layers = s->model.layers,
                                          .grid = r->parallel.grid,
                                          .rank = r->all->rank,
                                          .ranks = s->ranks};
}

int rank_open(struct Rank *r, const struct RankSettings *s, bool dry, struct Error *e) {
    *r = (struct Rank){0};
    int err = check_sizes(s, e);
    bool borrows = dry && s->borrowed;
    if (!err && !borrows)
        err = rank_device_open(&r->device, s, dry, e);
    if (err)
        return err;
    if (borrows)
        r->device = s->borrowed;
    r->borrowed = borrows;
    bool traced = s->traced && !dry;
    r->trace = traced ? trace_open(r->device, "") : NULL;
    open_tiers(r, s, dry);
    r->zero_trace = traced && s->traced_zero ? zero_trace_open(r->tier) : NULL;
    if (settings_needs_offload(s) && borrows)
        r->host = s->borrowed_host;
    else if (settings_needs_offload(s))
        err = device_open_cpu(&r->host, s->threads, s->kernels, e);
    if (r->host && !borrows)
        r->host->yields = s->device == DEVICE_CPU; // before any work is queued
    if (r->host && s->one_queue && !borrows)
        device_join_queues(r->host);
    r->host_trace = traced && r->host ? trace_open(r->host, "host ") : NULL;
    bool tallies = s->breakdown && s->rank == 0 && !dry; // on the rank that logs
    if (tallies)
        r->trace = trace_open_tally(r->device, breakdown_reason);
    if (tallies && r->host)
        r->host_trace = trace_open_tally(r->host, breakdown_reason);
    if (!err)
        err = open_comm(r, s, dry, e);
    if (err)
        return err;
    const struct TpComm *across = tp_group_comm(&r->tp);
    size_t tp_rank = r->tp.across.rank, tp_size = tp_comm_size(across);
    params_layout(&s->model, settings_layout_shards(s), tp_rank, tp_size, &r->params);
    if (r->parallel.stages > 1)
        params_keep_stage(&r->params, r->pipe.part.first, r->pipe.part.count);
    r->wire.weights = s->quantized_weights;
    r->model = (struct Model){.config = model_config_part(&s->model, tp_rank, tp_size),
                              .device = r->device,
                              .params = &r->params,
                              .across = across,
                              .grad_dtype = s->grad_dtype,
                              .packed = s->packed};
    r->model.config.layers = params_layers(&r->params);
    struct Tier *tier = &r->tier[TIER_DEVICE];
    err = open_zero(r, s, e);
    if (!err)
        err = open_acts(r, s, e);
    if (!err)
        err = open_cache(r, s, e);
    if (!err)
        err = model_open(&r->model, &r->acts, tier, e);
    if (!err)
        err = feed_open(&r->feed, r->device, s, tier, e);
    if (!err && s->save_async)
        err = tier_alloc(&r->tier[TIER_CPU], TAG_WORKSPACE, "a snapshot for --save-async",
                         checkpoint_snapshot_bytes(&r->zero, s->delayed), &r->snapshot, e);
    if (!err)
        err = open_nvme(r, s, dry, e);
    if (!err && r->zero_trace)
        watch_memory(r, s);
    return err;
}

void rank_close(struct Rank *r) {
    if (!r->device)
        return;
    if (r->zero.state)
        zero_sync(&r->zero);
    tier_free(&r->snapshot);
    feed_close(&r->feed);
    model_close(&r->model);
    acts_close(&r->acts);
    hpz_close(r->hpz);
    wire_close(&r->wire);
    zero_close(&r->zero);
    params_free(&r->params);
    tier_free(&r->staging);
    nvme_close(r->nvme);
    tp_close(&r->tp);
    pipe_close(&r->pipe);
    struct Comm *groups[] = {r->hpz_group, r->parallel.replicas,
                             r->shard_group == r->all ? NULL : r->shard_group, r->all};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (groups[i])
            groups[i]->ops->close(groups[i]);
    if (r->host && !r->borrowed)
        device_close(r->host);
    if (!r->borrowed)
        device_close(r->device);
    trace_close(r->trace);
    trace_close(r->host_trace);
    zero_trace_close(r->zero_trace);
    *r = (struct Rank){0};
}

int rank_write_trace(struct Rank *r, const char *path, struct Error *e) {
    const struct Trace *traces[] = {r->trace, r->host_trace};
    zero_sync(&r->zero);
    if (r->device->ops->collect)
        r->device->ops->collect(r->device);
    char *file = r->all->rank ? base_format("%s.%d", path, r->all->rank) : base_format("%s", path);
    int err = trace_write(traces, 2, file, r->zero.step, r->all->rank, e);
    free(file);
    return err;
}

int rank_write_trace_zero(struct Rank *r, const char *model, const char *path, struct Error *e) {
    zero_sync(&r->zero);
    if (r->device->ops->collect)
        r->device->ops->collect(r->device);
    r->trace_head.model = model;
    char *file = r->all->rank ? base_format("%s.%d", path, r->all->rank) : base_format("%s", path);
    int err = zero_trace_write(r->zero_trace, &r->trace_head, file, e);
    free(file);
    return err;
}

void rank_print_fallbacks(const struct Rank *r, FILE *out) {
    char *line = device_describe_fallbacks(r->device);
    if (*line)
        fprintf(out, "%s\n", line);
    free(line);
}
