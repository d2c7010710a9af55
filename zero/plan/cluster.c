// The forecast of a step on a cluster: see cluster.h. Next: cluster_table.c, which prints it.
#include "zero/plan/cluster.h"

#include "zero/comm/grid.h"
#include "zero/pipe/order.h"
#include "zero/tp/tp.h"

#include <errno.h>
#include <math.h>
#include <string.h>

// ---- kernels ----

// Bytes that attention moves for each score that it keeps, in 16 bits. Forward: the scores are
// written, the masked softmax reads and writes them, dropout does and reads its mask of a byte, the
// product with the values reads them. Backward: their gradient is written, dropout reads it and its
// mask and writes it, softmax reads it and its result and writes it, two products read that, and
// one reads the softmax's result.
static const double SCORE_FORWARD = 2 + 4 + 5 + 2, SCORE_BACKWARD = 2 + 5 + 6 + 4 + 2;

// Sets the rates of attention that keeps its scores, as if it were one kernel: per FLOP as cost.h
// counts them, half of each product. It makes whole products, two forward and four backward.
static void set_kept_score_rates(const struct Cluster *c, double head_size, struct KernelRates *r) {
    double forward = 2 * head_size, backward = 5 * head_size; // FLOP counted of a score
    double products_forward = 4 * head_size / c->matmul, products_backward = 2 * products_forward;
    r->of[KERNEL_attention_forward] = forward / (products_forward + SCORE_FORWARD / c->memory);
    r->of[KERNEL_attention_backward] = backward / (products_backward + SCORE_BACKWARD / c->memory);
}

struct KernelRates cluster_rates(const struct Cluster *c, size_t head_size) {
    struct KernelRates r = {.call = c->call};
    for (int k = 0; k < NKERNEL; k++)
        r.of[k] = c->memory;
    r.of[KERNEL_matmul] = c->matmul;
    r.of[KERNEL_attention_forward] = c->attention_forward;
    r.of[KERNEL_attention_backward] = c->attention_backward;
    if (c->scores_kept)
        set_kept_score_rates(c, (double)head_size, &r);
    return r;
}

// ---- collectives ----

// Returns how many of a job's ranks are on a full node.
static size_t ranks_of_node(const struct Cluster *c, size_t ranks) {
    return size_min(c->node_gpus, ranks);
}

double cluster_seconds(const struct Cluster *c, const struct ClusterGroup *g, enum Collective kind,
                       double bytes, bool direct) {
    size_t node = ranks_of_node(c, g->ranks);
    size_t here = size_min(g->size, size_max(1, node / g->stride)); // of the group, on a node
    size_t nodes = ceil_div(g->size, here);
    double others = (double)g->size - 1, far = (double)(g->size - here);
    bool sums = kind != COMM_ALL_GATHER, gathers = kind != COMM_REDUCE_SCATTER;
    double rings = (!direct && sums) + gathers, straight = direct && sums;
    if (g->size == 1)
        return 0;
    // A node's groups, each with a ring that leaves it once; or all its ranks, to all far ones.
    double far_bytes =
        rings * bytes * others * (double)(node / here) + straight * bytes * far * (double)node;
    double ring_latency = rings * ((others - (double)(nodes - 1)) * c->near.latency +
                                   (double)(nodes - 1) * c->far.latency);
    double direct_latency = straight * (nodes > 1 ? c->far.latency : c->near.latency);
    double near_seconds = here > 1 ? (rings + straight) * bytes * others / c->near.rate : 0;
    double far_seconds = nodes > 1 ? far_bytes / c->far.rate : 0;
    return fmax(near_seconds, far_seconds) + ring_latency + direct_latency;
}

// ---- the question, for one stage of the pipeline ----

struct Question {
    const struct Cluster *c;
    const struct RankSettings *whole;
    struct RankSettings stage; // of one that has most layers, with both ends
    struct KernelRates rates;
    const struct Rank *dry;         // the one that is at hand
    struct PassCount of[NUNITKIND]; // of one unit of each kind, in a micro-batch
    double seconds[NSENDPHASE];     // of collectives, by what they are made beside
};

static size_t node_ranks(const struct Question *q) {
    return ranks_of_node(q->c, (size_t)q->whole->ranks);
}

// Makes the settings of a stage independent of the machine that plans: kernels are the plainest,
// ranks processes of a launcher, formats those of 16 bits unless flags give others.
static void make_stage(struct Question *q) {
    struct RankSettings *s = &q->stage;
    size_t stages = (size_t)settings_stages(q->whole);
    *s = settings_unbounded(q->whole);
    s->device = DEVICE_CPU;
    s->threads = 1;
    s->ranks /= (int)stages;
    s->pp = 0;
    // The first stage has the most micro-batches under way.
    s->acts_in_flight = order_kept((int)stages, 0, s->nmicro);
    s->cluster = NULL;
    s->processes = s->ranks > 1;
    s->node_ranks = (int)size_min(node_ranks(q), (size_t)s->ranks);
    s->node_rank = 0;
    s->node_size = (size_t)s->node_ranks;
    s->shard_size = s->shard_size ? s->shard_size : (size_t)settings_data_ranks(s);
    s->model.layers = ceil_div(s->model.layers, stages);
    s->rank = 0;
}

static void add_collective_seconds(struct Question *q, size_t size, size_t stride,
                                   enum Collective kind, uint64_t bytes, enum SendPhase when) {
    struct ClusterGroup g = {(size_t)q->whole->ranks, size, stride};
    q->seconds[when] += cluster_seconds(q->c, &g, kind, (double)bytes, !q->whole->reduce_native);
}

// What TP ranks send is counted with the kernels that wait for it (count.h). Between replicas lie
// the other stages, too, which a stage alone knows nothing of.
static void add_collective(void *question, const struct Rehearsed *one) {
    struct Question *q = question;
    const struct Comm *over = one->over;
    int apart = over == q->dry->parallel.replicas ? settings_stages(q->whole) : 1;
    if (over && over != q->dry->tp.comm)
        add_collective_seconds(q, (size_t)over->size, (size_t)(over->stride * apart),
                               one->collective, one->bytes, one->when);
}

// Adds the sum between the ends: a tied head's matrix is on the first stage and on the last, which
// add up its gradient (a rehearsal of a real stage has the same).
static void add_ends(struct Question *q, const struct Zero *z) {
    struct Grid grid = settings_grid(q->whole);
    size_t apart = (size_t)(grid.size[AXIS_PP] - 1) * (size_t)grid_stride(&grid, AXIS_PP);
    uint64_t parts = z->plan.grad.shard_group ? (uint64_t)z->shard_group->size : 1;
    for (int i = 0; i < z->params->ngroup && apart; i++) {
        const struct Group *g = &z->params->group[i];
        uint64_t bytes = g->padded / parts * dtype_size(z->plan.grad.dtype);
        if (g->first_unit != g->last_unit)
            add_collective_seconds(q, 2, apart, COMM_ALL_REDUCE, bytes / 2, SEND_LAST);
    }
}

static int forecast_stage(struct Question *q, struct Error *e) {
    struct Rank dry;
    struct Rehearsal step;
    int err = rank_open(&dry, &q->stage, true, e);
    if (!err) {
        count_units(&dry, q->stage.nmicro > 1, q->of);
        q->dry = &dry;
        rehearse(&dry, add_collective, q, &step);
        add_ends(q, &dry.zero);
    }
    rank_close(&dry);
    return err;
}

// Counts the parameters and FLOP of the whole model, which a stage does not have.
static int count_whole(const struct Question *q, struct ClusterForecast *out, struct Error *e) {
    struct RankSettings s = q->stage;
    struct Rank dry;
    s.model.layers = q->whole->model.layers;
    s.nmicro = 1;
    s.acts_in_flight = 0;
    int err = rank_open(&dry, &s, true, e);
    if (!err) {
        out->parameters = (double)dry.params.real;
        out->flops_per_token = rank_flops_per_token(&dry);
    }
    rank_close(&dry);
    return err;
}

// ---- times ----

// The seconds of a micro-batch through some units.
struct Seconds {
    double kernels[2], sums[2]; // of both passes
};

static double sums_seconds(const struct Question *q, const struct KernelCount *k) {
    size_t tp_size = (size_t)settings_tp_size(q->whole);
    struct ClusterGroup g = {(size_t)q->whole->ranks, tp_size, 1};
    if (tp_size == 1)
        return 0;
    // Taken as one collective of so many bytes to each other TP rank, and the latencies of the
    // rest: each is a reduce-scatter and an all-gather.
    double once = cluster_seconds(q->c, &g, COMM_ALL_REDUCE, 0, false);
    double bytes = k->sent / (double)(tp_size - 1);
    return cluster_seconds(q->c, &g, COMM_ALL_GATHER, bytes, false) -
           cluster_seconds(q->c, &g, COMM_ALL_GATHER, 0, false) + k->collectives * once;
}

static void add_units(const struct Question *q, enum UnitKind kind, double times,
                      struct Seconds *to) {
    const struct KernelCount *pass[] = {&q->of[kind].forward, &q->of[kind].backward};
    for (int i = 0; i < 2; i++) {
        to->kernels[i] += times * count_seconds(pass[i], &q->rates);
        to->sums[i] += times * sums_seconds(q, pass[i]);
    }
}

static struct Seconds stage_seconds(const struct Question *q, size_t i) {
    size_t stages = (size_t)settings_stages(q->whole), layers = q->whole->model.layers;
    struct Seconds t = {{0}, {0}};
    add_units(q, UNIT_BLOCK, (double)(layers / stages + (i < layers % stages)), &t);
    if (i == 0)
        add_units(q, UNIT_EMBEDDING, 1, &t);
    if (i + 1 == stages)
        add_units(q, UNIT_HEAD, 1, &t);
    return t;
}

// True if a rank hands on to a rank of its node. *leave: how many of a node, at most, hand on to
// other nodes.
static bool some_hand_near(const struct Question *q, size_t *leave) {
    struct Grid grid = settings_grid(q->whole);
    int stride = grid_stride(&grid, AXIS_PP), node = (int)q->c->node_gpus;
    size_t leaving = 0;
    bool near = false;
    *leave = 0;
    for (int r = 0; r < q->whole->ranks; r++) {
        bool hands = grid_coord(&grid, r, AXIS_PP) + 1 < grid.size[AXIS_PP];
        bool leaves = hands && (r + stride) / node != r / node;
        near |= hands && !leaves;
        leaving = (r % node ? leaving : 0) + leaves;
        *leave = size_max(*leave, leaving);
    }
    return near;
}

// Returns the seconds of a micro-batch's tensor to a rank of the next stage; every rank of a stage
// hands on its own rows. Stages wait for each other, so the slowest of a step's hops counts.
static double hand_seconds(const struct Question *q) {
    const struct RankSettings *s = q->whole;
    const struct ModelConfig *m = &s->model;
    size_t rows = s->batch * m->seq_len / (size_t)(s->sequence_parallel ? settings_tp_size(s) : 1);
    double bytes = (double)(rows * m->channels * dtype_size(m->dtype));
    size_t leave;
    if (settings_stages(s) == 1)
        return 0;
    bool near = some_hand_near(q, &leave);
    double near_seconds = bytes / q->c->near.rate + q->c->near.latency;
    double far_seconds = bytes * (double)leave / q->c->far.rate + q->c->far.latency;
    return fmax(near ? near_seconds : 0, leave ? far_seconds : 0);
}

static double total_seconds(const struct Seconds *t) {
    return t->kernels[0] + t->kernels[1] + t->sums[0] + t->sums[1];
}

// A stage has m micro-batches to do, one after another; it begins when the first has come through
// those before it, and ends when the last has come back through them. So a step takes m of the
// slowest stage's and one of each other's. Each hands a tensor on forward and one back.
static void add_times(const struct Question *q, struct ClusterForecast *out) {
    double m = (double)q->whole->nmicro, hand = hand_seconds(q), all = 0;
    struct Seconds slow = {{0}, {0}};
    for (size_t i = 0; i < out->stages; i++) {
        struct Seconds t = stage_seconds(q, i);
        all += total_seconds(&t) + 2 * hand;
        slow = total_seconds(&t) > total_seconds(&slow) ? t : slow;
    }
    out->kernels = m * (slow.kernels[0] + slow.kernels[1]);
    out->sums = m * (slow.sums[0] + slow.sums[1]);
    out->handed = m * 2 * hand;
    out->bubble = all - total_seconds(&slow) - 2 * hand;
    struct StepWork *w = &out->rank.work;
    w->forward = m * (slow.kernels[0] + slow.sums[0] + hand);
    w->backward = m * (slow.kernels[1] + slow.sums[1] + hand);
}

// The collectives' bytes are seconds here, as each has a link of its own.
static void add_step(const struct Question *q, struct ClusterForecast *out) {
    const struct Cluster *c = q->c;
    struct StepWork *w = &out->rank.work;
    struct Speeds *s = &out->rank.speeds;
    *s = (struct Speeds){.in = c->in,
                         .out = c->out,
                         .read = c->read,
                         .written = c->written,
                         .update = c->memory,
                         .host_update = c->host_update / (double)node_ranks(q),
                         .sent = 1};
    w->together = q->whole->one_queue;
    w->disk_ranks = (int)node_ranks(q);
    w->sums[0] = w->sums[1] = 0; // they are in the passes
    memcpy(w->sent, q->seconds, sizeof w->sent);
    memcpy(out->sent, q->seconds, sizeof out->sent);
    out->bound = bound_of(w, s);
    out->update = w->update / s->update;
    out->step = out->bound.step + out->bubble;
    out->waits = out->bound.step - out->kernels - out->sums - out->handed - out->update;
}

// ---- what is refused ----

int cluster_check(const struct Cluster *c, const struct RankSettings *s, struct Error *e) {
    if ((size_t)s->ranks > c->nodes * c->node_gpus)
        return error_set(
            e, -EINVAL, E_CLUSTER_RANKS,
            "--ranks %d: expected at most %zu, because --cluster %s has %zu nodes of %zu GPUs",
            s->ranks, c->nodes * c->node_gpus, s->cluster, c->nodes, c->node_gpus);
    if (s->node_size && s->node_size != c->node_gpus)
        return error_set(e, -EINVAL, E_CLUSTER_NODE_SIZE,
                         "--node-size %zu: the nodes of --cluster %s have %zu GPUs; expected %zu, "
                         "or leave out --node-size",
                         s->node_size, s->cluster, c->node_gpus, c->node_gpus);
    return 0;
}

// Returns the settings with the formats of GPUs, where nobody said one.
static struct RankSettings resolve_dtypes(const struct RankSettings *s) {
    struct RankSettings r = *s;
    if (r.dtype_from)
        r.model.dtype = BF16;
    if (r.grad_auto)
        r.grad_dtype = r.nmicro > 1 ? F32 : r.model.dtype;
    return r;
}

// Sets the forecast of a rank, the bytes of a GPU and of a node, and the time and the tokens of a
// step. out->rank.settings: those of the whole run, not of the stage that was asked about.
static int forecast_step(struct Question *q, struct ClusterForecast *out, struct Error *e) {
    int err = footprint_predict(&q->stage, 0, 1, &out->rank, e);
    if (!err)
        err = forecast_stage(q, e);
    if (!err)
        err = count_whole(q, out, e);
    if (err)
        return err;
    add_times(q, out);
    add_step(q, out);
    const struct Footprint *is = &out->rank.is;
    out->device = is->tier[TIER_DEVICE].peak;
    out->host = node_ranks(q) * footprint_host_bytes(is);
    out->disk = node_ranks(q) * is->tier[TIER_NVME].peak;
    out->tokens =
        (double)(q->whole->batch * q->whole->nmicro * out->data) * (double)q->whole->model.seq_len;
    out->rank.settings = *q->whole;
    return 0;
}

int cluster_open(struct RankSettings *s, struct Error *e) {
    int err = device_open_cpu(&s->borrowed, 1, "oracle", e);
    if (err)
        return err;
    s->borrowed->piece_bytes = (size_t)1 << 30; // as a GPU's (kernels/cuda/device.c)
    s->borrowed->piece_rows = 256;
    err = device_open_cpu(&s->borrowed_host, 1, "oracle", e);
    if (err)
        cluster_close(s);
    return err;
}

void cluster_close(struct RankSettings *s) {
    if (s->borrowed_host)
        device_close(s->borrowed_host);
    if (s->borrowed)
        device_close(s->borrowed);
    s->borrowed = s->borrowed_host = NULL;
}

// Sums take two hops, first among the ranks of a node, of which each node of a stage has as many.
static int check_hops(const struct Question *q, struct Error *e) {
    const struct RankSettings *s = &q->stage;
    size_t data = (size_t)settings_data_ranks(s);
    if (!s->quantized_gradients || data % s->node_size == 0)
        return 0;
    return error_set(e, -EINVAL, E_QUANT_NODES,
                     "--zero-quantized-gradients: %zu data-parallel ranks do not fill whole nodes: "
                     "those of --cluster %s have %zu GPUs; expected a multiple of %zu ranks",
                     data, q->whole->cluster, q->c->node_gpus, s->node_size);
}

int cluster_forecast(const struct Cluster *c, const struct RankSettings *asked,
                     struct ClusterForecast *out, struct Error *e) {
    struct RankSettings s = resolve_dtypes(asked);
    struct Question q = {.c = c, .whole = &s};
    bool lent = s.borrowed != NULL;
    *out = (struct ClusterForecast){.tp_size = (size_t)settings_tp_size(&s),
                                    .stages = (size_t)settings_stages(&s),
                                    .data = (size_t)settings_data_ranks(&s)};
    int err = cluster_check(c, &s, e);
    if (!err && !lent)
        err = cluster_open(&s, e);
    if (!err) {
        make_stage(&q);
        err = check_hops(&q, e);
    }
    if (!err) {
        q.rates = cluster_rates(c, s.model.head_size);
        err = forecast_step(&q, out, e);
    }
    if (!lent)
        cluster_close(&s);
    out->rank.settings.borrowed = out->rank.settings.borrowed_host = NULL; // no longer than that
    return err;
}

size_t cluster_limit(size_t there, size_t said) {
    return said ? size_min(there, said) : there;
}

int cluster_check_room(const struct Cluster *c, const struct ClusterForecast *f, struct Error *e) {
    const struct RankSettings *s = &f->rank.settings;
    size_t offloaded = f->rank.is.tier[TIER_CPU].peak;
    const struct {
        size_t needed, there;
        const char *what, *limit;
    } place[] = {
        {f->device, c->device_bytes, "a GPU's memory", "each GPU has"},
        {f->host, c->host_bytes, "a node's memory", "each node has"},
        {f->host, cluster_limit(SIZE_MAX, s->host_bytes), "a node's memory", "--host-mem allows"},
        {f->disk, c->disk_bytes, "a node's disks", "each node has"},
        {f->device, cluster_limit(SIZE_MAX, s->device_bytes), "a GPU's memory",
         "--device-mem allows"},
        {offloaded, cluster_limit(SIZE_MAX, s->rank_host_bytes), "the host's memory for each GPU",
         "--host-mem-per-rank allows"},
    };
    for (size_t i = 0; i < sizeof place / sizeof place[0]; i++)
        if (place[i].needed > place[i].there)
            return error_set(e, -ENOMEM, E_CLUSTER_MEMORY,
                             "--cluster %s: the run needs %.2f GB of %s, but %s %.2f GB; add --fit "
                             "auto to search for settings that fit",
                             s->cluster, (double)place[i].needed / 1e9, place[i].what,
                             place[i].limit, (double)place[i].there / 1e9);
    return 0;
}
