// Predicts the memory and traffic of a run: see footprint.h. Next: zero/open.c, which takes a
// rank's memory, and rehearse.c, which makes a step of it.
#include "zero/plan/footprint.h"

#include "kernels/cost.h"
#include "zero/comm/grid.h"
#include "zero/pipe/order.h"
#include "zero/state.h"
#include "zero/train/loop.h"

#include <stdlib.h>
#include <string.h>

size_t footprint_host_bytes(const struct Footprint *f) {
    return f->tier[TIER_CPU].peak + f->io_bytes;
}

int footprint_node_ranks(const struct RankSettings *s) {
    int node = settings_node_ranks(s);
    return node < s->ranks ? node : s->ranks;
}

// Returns the bytes of a rank in the memory that rank_device_memory counts: a GPU's, or the
// machine's.
static size_t place_bytes(const struct RankSettings *s, const struct Footprint *f) {
    return f->tier[TIER_DEVICE].peak + (s->device == DEVICE_CPU ? footprint_host_bytes(f) : 0);
}

// ---- the process itself ----
// What it takes beside the tiers is measured when a rank was opened dry, which loads the libraries
// and prepares the matrix products; oneDNN keeps their machine code for all ranks of the process.
// What comes with the ranks is counted here, each part from what causes it.

// Code that only training runs (the kernels, libm, the checkpoint's): pages of files that come into
// memory when they are first used; and what logs and reports keep.
enum { CODE_BYTES = 768 << 10 };

static size_t largest_shard(struct Rank *dry) {
    size_t most = 0;
    for (int g = 0; g < dry->params.ngroup; g++)
        most = size_max(most, zero_shard_numel(&dry->zero, g));
    return most;
}

// Returns the bytes of a chunk of state, as it goes to a checkpoint and the hash (zero/state.h).
static size_t chunk_bytes(struct Rank *dry) {
    return size_min(STATE_CHUNK, largest_shard(dry)) * sizeof(float);
}

// Returns the bytes of the NVMe buffers. Narrow values are read into the middle of a chunk,
// which need not be aligned.
static size_t io_bytes(struct Rank *dry, const struct RankSettings *s) {
    const struct Tier *nvme = &dry->tier[TIER_NVME];
    bool narrow = s->moments_dtype != F32 || s->master_format != MASTER_FP32;
    size_t unaligned = narrow ? chunk_bytes(dry) / 2 : 0;
    struct NvmeSettings settled = s->nvme;
    struct Error ignored;
    return nvme->peak && !nvme_resolve(&settled, &ignored)
               ? nvme_host_bytes(&settled, nvme->end, unaligned)
               : 0;
}

// Returns a rank's own bytes: its devices' queues and threads; the host's batches; and the chunk
// through which state leaves, beside the two halves of split master weights (zero/master/master.c).
static size_t own_bytes(struct Rank *dry, const struct RankSettings *s) {
    size_t chunks = s->master_format == MASTER_SPLIT ? 2 : 1;
    size_t whole = largest_shard(dry) * (size_t)settings_shard_ranks(s) * dtype_size(s->grad_dtype);
    size_t bytes = chunks * chunk_bytes(dry) + feed_host_bytes(s) + loop_bytes_ahead(s);
    // Pieces of a collective between processes that are sent, and such that arrive, which a rank's
    // staging on the device is not (zero/comm/mpi.c).
    if (s->processes && s->ranks > 1)
        bytes += 2 * size_min(s->comm_chunk, whole);
    if (s->device == DEVICE_CPU)
        bytes += device_own_bytes_cpu(dry->device);
    if (dry->host)
        bytes += device_own_bytes_cpu(dry->host);
    return bytes;
}

static struct StepWork work_of(struct Rank *dry, const struct RankSettings *s,
                               const struct Rehearsal *step) {
    struct StepUpdates n = rank_step_updates(dry);
    struct AdamW device = rank_device_update(s, n.device), host = rank_device_update(s, n.host);
    struct StepWork w = {.moves = step->moves,
                         .flops = rank_step_flops(dry, s),
                         .update = cost_adamw(&device).bytes,
                         .host_update = cost_adamw(&host).bytes,
                         .units = dry->params.nunit,
                         .together = s->device == DEVICE_CPU || s->one_queue,
                         .nmicro = s->nmicro,
                         .disk_ranks = s->processes ? s->node_ranks : s->ranks,
                         .delayed = s->delayed};
    memcpy(w.sent, step->sent, sizeof w.sent);
    memcpy(w.sums, step->sums, sizeof w.sums);
    return w;
}

static struct StageHas stage_of(const struct Params *p) {
    struct StageHas has = {.first_layer = p->first_layer, .layers = (int)params_layers(p)};
    for (int u = 0; u < p->nunit; u++) {
        has.embedding |= p->unit[u].kind == UNIT_EMBEDDING;
        has.head |= p->unit[u].kind == UNIT_HEAD;
    }
    for (int g = 0; g < p->ngroup; g++)
        for (int i = 0; i < p->group[g].nparam; i++)
            has.parameters += p->group[g].param[i].whole_rows * p->group[g].param[i].whole_cols;
    return has;
}

// Returns the demand of so many ranks like this one; own: bytes that each takes besides.
static struct Demand demand_of(const struct Forecast *f, size_t ranks, size_t own) {
    const struct Footprint *is = &f->is;
    size_t node = (size_t)footprint_node_ranks(&f->settings);
    struct Demand d = {.host_bytes = ranks * footprint_host_bytes(is),
                       .place_bytes = ranks * place_bytes(&f->settings, is),
                       .own_bytes = ranks * own,
                       .node_bytes = node * footprint_host_bytes(is)};
    for (int kind = 0; kind < NTIER; kind++)
        d.of[kind] = (struct TierDemand){f->settings.rank, *is, ranks * is->tier[kind].peak};
    return d;
}

// Returns the sum if both are in this process; else the larger, as it has one rank of either kind.
static size_t add_or_max(size_t a, size_t b, bool together) {
    return together ? a + b : size_max(a, b);
}

// Adds `more`, the demand of ranks behind those of `d`. together: both are in this process.
static void demand_add(struct Demand *d, const struct Demand *more, bool together) {
    d->host_bytes = add_or_max(d->host_bytes, more->host_bytes, together);
    d->place_bytes = add_or_max(d->place_bytes, more->place_bytes, together);
    d->own_bytes = add_or_max(d->own_bytes, more->own_bytes, together);
    for (int kind = 0; kind < NTIER; kind++) {
        struct TierDemand *of = &d->of[kind];
        size_t here = add_or_max(of->here, more->of[kind].here, together);
        if (more->of[kind].is.tier[kind].peak > of->is.tier[kind].peak)
            *of = more->of[kind];
        of->here = here;
    }
}

// Fills in what the process takes. process_bytes: before its ranks are opened.
static void count_process(struct Forecast *f, size_t process_bytes, int ranks_here) {
    bool counted = process_bytes && f->settings.device == DEVICE_CPU;
    f->ranks_here = ranks_here;
    f->is.own_bytes = CODE_BYTES + f->demand.own_bytes;
    f->is.process_bytes = process_bytes + (counted ? f->is.own_bytes : 0);
    f->is.all_bytes = f->is.process_bytes + f->demand.place_bytes;
}

int footprint_of_rank(const struct RankSettings *s, int rank, int ranks_here, struct Forecast *out,
                      struct Error *e) {
    struct RankSettings unbounded = settings_unbounded(s); // a table shows what is too much
    unbounded.rank = rank;
    struct Rank dry;
    struct Rehearsal step;
    int err = rank_open(&dry, &unbounded, true, e);
    if (!err) {
        rehearse(&dry, NULL, NULL, &step);
        *out = (struct Forecast){.settings = *s,
                                 .parameters = dry.params.real,
                                 .padded = dry.params.padded,
                                 .stage = stage_of(&dry.params)};
        out->settings.rank = rank;
        out->is = (struct Footprint){.traffic = step.traffic, .stepped = true};
        memcpy(out->is.tier, dry.tier, sizeof dry.tier);
        out->work = work_of(&dry, s, &step);
        out->is.moved = step.moves.forward;
        moved_add(&out->is.moved, step.moves.backward);
        moved_add(&out->is.moved, step.moves.update);
        out->is.moved_known = true;
        out->is.io_bytes = io_bytes(&dry, s);
        out->demand = demand_of(out, (size_t)ranks_here, own_bytes(&dry, s));
        count_process(out, 0, ranks_here);
    }
    rank_close(&dry);
    return err;
}

// Returns how many TP ranks of a stage are unlike, from its first on: those whose heads have
// patterns of their own have other layouts of them (model/units.c). Stages have other layers; what
// else differs between ranks is in no buffer.
static int unlike_tp_ranks(const struct RankSettings *s) {
    return s->model.sparse.mode == SPARSE_DENSE ? 1 : settings_tp_size(s);
}

// Returns the number of unlike stages. Those of a plan for a cluster are alike, and the caller has
// made one of them (cluster.c).
static int unlike_stages(const struct RankSettings *s) {
    return s->cluster ? 1 : settings_stages(s);
}

// Returns what a node's ranks take of the host, the most of any node. part: as forecast_parts
// has it.
static size_t most_of_node(const struct RankSettings *s, const struct Forecast *part) {
    struct Grid grid = settings_grid(s);
    int node = footprint_node_ranks(s), tp_ranks = unlike_tp_ranks(s), stages = unlike_stages(s);
    size_t sum = 0, most = 0;
    for (int r = 0; r < s->ranks; r++) {
        int tp_rank = tp_ranks > 1 ? grid_coord(&grid, r, AXIS_TP) : 0;
        int stage = stages > 1 ? grid_coord(&grid, r, AXIS_PP) : 0;
        sum = (r % node ? sum : 0) + footprint_host_bytes(&part[stage * tp_ranks + tp_rank].is);
        most = size_max(most, sum);
    }
    return most;
}

static bool takes_more(const struct Footprint *a, const struct Footprint *b) {
    for (int kind = 0; kind < NTIER; kind++)
        if (a->tier[kind].peak != b->tier[kind].peak)
            return a->tier[kind].peak > b->tier[kind].peak;
    return false;
}

// Adds f, the forecast of ranks behind those that `all` is of. together: both are in this process.
static void add_ranks(const struct Forecast *f, bool together, struct Forecast *all) {
    struct Demand demand = all->demand;
    bool more = takes_more(&f->is, &all->is);
    bool unlike = all->unlike || more || takes_more(&all->is, &f->is);
    demand_add(&demand, &f->demand, together);
    if (more)
        *all = *f;
    all->demand = demand;
    all->unlike = unlike;
}

// Forecasts one rank of each unlike TP rank of each unlike stage; free() *part. The parts have
// equal numbers of ranks, and a process that has one rank may have any of them. Errors: those of
// footprint_of_rank.
static int forecast_parts(const struct RankSettings *s, int ranks_here, struct Forecast **part,
                          struct Error *e) {
    struct Grid grid = settings_grid(s);
    int tp_ranks = unlike_tp_ranks(s), n = unlike_stages(s) * tp_ranks, err = 0;
    int ranks = ranks_here > 1 ? ranks_here / n : 1;
    *part = base_alloc_zeroed((size_t)n * sizeof **part);
    for (int i = 0; i < n && !err; i++) {
        int first = i / tp_ranks * grid_stride(&grid, AXIS_PP); // of the stage
        err = footprint_of_rank(s, first + i % tp_ranks, ranks, &(*part)[i], e);
    }
    return err;
}

int footprint_predict(const struct RankSettings *s, size_t process_bytes, int ranks_here,
                      struct Forecast *out, struct Error *e) {
    struct Forecast *part;
    int n = unlike_stages(s) * unlike_tp_ranks(s);
    int err = forecast_parts(s, ranks_here, &part, e);
    if (!err) {
        *out = part[0];
        for (int i = 1; i < n; i++)
            add_ranks(&part[i], ranks_here > 1, out);
        out->demand.node_bytes = most_of_node(s, part);
        count_process(out, process_bytes, ranks_here);
    }
    free(part);
    return err;
}

// ---- the stages of a pipeline ----

static int first_trained_stage(const struct RankSettings *s, int stages) {
    struct SplitPart *parts = base_alloc((size_t)stages * sizeof *parts);
    struct Error e;
    CHECK(!split_stages(&s->model, s->recompute, stages, s->pp_split, parts, &e), "%s", e.text);
    int stage = split_first_trained(parts, model_first_trained(&s->model));
    free(parts);
    return stage;
}

// Returns the bubble's share of stages' time. FLOP stand for seconds: stages compute at one rate.
static double bubble_of(const struct PipelineForecast *f, const struct RankSettings *s) {
    struct OrderCost *cost = base_alloc((size_t)f->n * sizeof *cost);
    struct Order order;
    double nmicro = (double)s->nmicro;
    for (int i = 0; i < f->n; i++) {
        const struct StepFlops *flops = &f->stage[i].work.flops;
        cost[i] = (struct OrderCost){flops->forward / nmicro, flops->backward / nmicro};
    }
    order_make(&order, f->n, first_trained_stage(s, f->n), s->nmicro, cost, 0);
    double bubble = order_bubble(&order);
    order_free(&order);
    free(cost);
    return bubble;
}

int pipeline_predict(const struct RankSettings *s, struct PipelineForecast *out, struct Error *e) {
    struct Forecast *part;
    int n = unlike_stages(s), tp_ranks = unlike_tp_ranks(s);
    *out = (struct PipelineForecast){0};
    if (n == 1)
        return 0;
    int err = forecast_parts(s, 1, &part, e);
    if (!err) {
        *out = (struct PipelineForecast){n, base_alloc((size_t)n * sizeof *out->stage), 0};
        for (int i = 0; i < n * tp_ranks; i++)
            if (i % tp_ranks == 0 || takes_more(&part[i].is, &out->stage[i / tp_ranks].is))
                out->stage[i / tp_ranks] = part[i];
        out->bubble = bubble_of(out, s);
    }
    free(part);
    return err;
}

void pipeline_free(struct PipelineForecast *f) {
    free(f->stage);
    *f = (struct PipelineForecast){0};
}

static double flops_of(const struct Forecast *f) {
    return f->work.flops.forward + f->work.flops.backward;
}

double pipeline_share(const struct PipelineForecast *f, int stage) {
    double all = 0;
    for (int i = 0; i < f->n; i++)
        all += flops_of(&f->stage[i]);
    return flops_of(&f->stage[stage]) / all;
}

// ---- what was measured ----

struct Footprint footprint_measure(const struct Rank *r, const struct RankSettings *s,
                                   size_t host_bytes) {
    struct Footprint f = {.traffic = r->step_traffic,
                          .stepped = r->traffic_known,
                          .moved = r->step_moved,
                          .moved_known = r->moved_known,
                          .all_bytes = rank_device_peak_bytes(s, host_bytes),
                          .host_bytes = host_bytes};
    memcpy(f.tier, r->tier, sizeof f.tier);
    return f;
}

size_t footprint_model_states(const struct Footprint *f) {
    size_t bytes = 0;
    for (int kind = 0; kind < NTIER; kind++) {
        const size_t *most = f->tier[kind].most;
        bytes += most[TAG_PARAM] + most[TAG_GRAD] + most[TAG_OPTIMIZER];
    }
    return bytes;
}

// ---- a parameter count ----

// Returns the bytes of a parameter's master weight beside its weight: of split the weight is the
// upper half, of bf16 it is the master itself. Where the device updates weights that are kept in
// another tier it lacks them, and keeps whole masters: in bf16 if that is their format, else fp32.
static size_t master_bytes(const struct ZeroPlan *p) {
    static const size_t bytes[NMASTER] = {[MASTER_FP32] = 4, [MASTER_SPLIT] = 2, [MASTER_BF16] = 0};
    bool weights_elsewhere =
        p->optimizer.tier->kind == TIER_DEVICE && p->param.tier->kind != TIER_DEVICE;
    if (!p->has_master)
        return 0;
    if (weights_elsewhere)
        return p->masters->format == MASTER_BF16 ? 2 : 4;
    return bytes[p->masters->format];
}

// Returns the bytes of a rank, times ranks: of every parameter, or of a rank's share of them.
static uint64_t times_ranks(const struct Placement *p, size_t bytes, uint64_t parameters,
                            int ranks) {
    return parameters * bytes * (p->shard_group ? 1 : (uint64_t)ranks);
}

int footprint_of_parameters(uint64_t parameters, const struct ZeroOptions *options,
                            const struct OffloadOptions *offload, int ranks,
                            struct ModelStates *out, struct Error *e) {
    struct Tier tier[NTIER];
    struct Comm dp = {.size = ranks};
    struct ZeroOptions with_tiers = *options;
    for (int kind = 0; kind < NTIER; kind++)
        tier_init(&tier[kind], (enum TierKind)kind, NULL, SIZE_MAX);
    with_tiers.tier = tier;
    with_tiers.shard_group = &dp;
    struct ZeroPlan p = zero_plan(&with_tiers);
    int from, err = offload_plan(&p, &with_tiers, offload, NULL, &from, e);
    if (err)
        return err;
    size_t grads = (offload->delayed ? 2 : 1) * dtype_size(p.grad.dtype);
    struct Placement grad = p.grad; // in host memory that of the host's update alone
    if (offload->opt_tier != TIER_DEVICE && options->nmicro <= 1)
        grad.shard_group = p.optimizer.shard_group;
    size_t kept = master_bytes(&p) + 2 * dtype_size(p.moments_dtype);
    *out = (struct ModelStates){
        .parameters = parameters,
        .ranks = (uint64_t)ranks,
        .param = times_ranks(&p.param, dtype_size(p.param.dtype), parameters, ranks) +
                 (p.unquantized_shard ? parameters * dtype_size(p.param.dtype) : 0),
        .grad = times_ranks(&grad, grads, parameters, ranks),
        .optimizer = times_ranks(&p.optimizer, kept, parameters, ranks),
        .param_tier = p.param.tier->kind,
        .grad_tier = p.grad.tier->kind,
        .opt_tier = p.optimizer.tier->kind,
    };
    out->sum[out->param_tier] += out->param;
    out->sum[out->grad_tier] += out->grad;
    out->sum[out->opt_tier] += out->optimizer;
    return 0;
}
