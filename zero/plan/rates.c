// Measures how fast this machine's ranks run each kernel and each collective, in real steps of a
// small model.
//
// A kernel's best rate alone says little of a step: the other ranks use the memory, too, and a
// product that has an epilogue is another one. So as many ranks as the run has in this process
// train a model of two blocks like the run's (but no wider than some hundred channels, so that it
// takes a second) for some steps, traced, one queue each, and of each call the quickest counts.
// What was measured is kept, kernel by kernel.
//
// Next: count.h, which says how much there is to do.
#include "zero/plan/bound.h"

#include "kernels/trace.h"
#include "zero/state.h"
#include "zero/settings/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define X(op, Args) #op,
static const char *const kernel_names[] = {KERNEL_LIST(X)};
#undef X

enum { LAYERS = 2, CHANNELS = 768, VOCAB = 4096, TOKENS = 1024, STEPS = 6, CALLS = 512 };

// ---- the small model ----

// Returns how many key heads so many heads have, in the model's proportion as far as they divide.
static size_t fewer_kv_heads(const struct ModelConfig *c, size_t heads) {
    size_t kv = size_max(1, c->kv_heads * heads / c->heads);
    while (heads % kv)
        kv--;
    return kv;
}

// Returns the settings of one rank of the small model. Only those on which a kernel's speed depends
// are the run's.
static struct RankSettings rates_settings(const struct RankSettings *s) {
    struct RankSettings r = {.model = s->model,
                             .recompute = RECOMPUTE_GELU, // so that what is restored is timed, too
                             .nmicro = 1,
                             .stage = 2,
                             .prefetch = s->prefetch,
                             .device = s->device,
                             .threads = s->threads,
                             .kernels = s->kernels,
                             .one_queue = 1,
                             .autotune = s->autotune,
                             .loss_scale = s->loss_scale,
                             .offload_ratio = 1,
                             .moments_dtype = s->moments_dtype,
                             .timeout_s = fmax(s->timeout_s, 60),
                             .check_comm = s->check_comm,
                             .reduce_native = s->reduce_native,
                             .traced = true,
                             .ranks = 1};
    struct ModelConfig *m = &r.model;
    struct Error ignored;
    size_t heads = size_max(1, size_min(m->heads, CHANNELS / m->head_size));
    m->layers = size_min(m->layers, LAYERS);
    m->ffn = size_max(1, m->ffn * heads / m->heads);
    m->channels = heads == m->heads ? m->channels : heads * m->head_size;
    m->kv_heads = fewer_kv_heads(m, heads);
    m->heads = heads;
    m->vocab = size_min(m->vocab, VOCAB);
    m->seq_len = size_min(m->seq_len, TOKENS);
    model_config_finish(m, &ignored); // as its parts were
    r.batch = size_max(1, TOKENS / m->seq_len);
    r.grad_dtype = s->grad_auto ? m->dtype : s->grad_dtype;
    return r;
}

static int read_random(void *config, uint64_t first, size_t n, const struct Batch *batch,
                       struct Error *e) {
    const struct ModelConfig *c = config;
    (void)e;
    for (size_t i = 0; i < n * c->seq_len; i++) {
        batch->inputs[i] = (int32_t)(rng_bits(1, first * c->seq_len + i) % c->vocab);
        batch->targets[i] = (int32_t)(rng_bits(2, first * c->seq_len + i) % c->vocab);
    }
    return 0;
}

// ---- the measurement ----

// The calls of a step in their order, which is that of every step; each as quick as it ever was,
// since what disturbs a call only makes it slower.
struct Calls {
    int kernel[CALLS];
    double amount[CALLS], seconds[CALLS];
    int n;
    double sent; // bytes per second
};

struct Timing {
    const struct RankSettings *settings;
    int ranks;
    bool done;
    struct Rates rates; // of rank 0
};

static void add_call(struct Calls *c, int *at, const struct TraceRecord *t) {
    int k = 0;
    double seconds = t->end - t->begin;
    while (k < NKERNEL && strcmp(kernel_names[k], t->name) != 0)
        k++;
    if (k == NKERNEL || *at == CALLS)
        return;
    bool again = *at < c->n && c->kernel[*at] == k;
    c->kernel[*at] = k;
    c->amount[*at] = t->cost.flops > 0 ? t->cost.flops : t->cost.bytes;
    c->seconds[*at] = again ? fmin(c->seconds[*at], seconds) : seconds;
    ++*at;
}

// Adds a step: its records from number `from` on, and `sent` bytes, which took so many seconds.
static void add_step(const struct Rank *r, const uint64_t from[NQUEUE], uint64_t sent,
                     double seconds, struct Calls *best) {
    const struct TraceRing *ring = &r->trace->ring[QUEUE_COMPUTE];
    int at = 0;
    for (uint64_t i = from[QUEUE_COMPUTE]; i < ring->count; i++)
        add_call(best, &at, &ring->record[i % TRACE_RING]);
    best->n = at;
    if (seconds > 0)
        best->sent = fmax(best->sent, (double)sent / seconds);
}

static struct Rates rates_of(const struct Calls *c) {
    struct Rates r = {.sent = c->sent};
    double amount[NKERNEL] = {0}, seconds[NKERNEL] = {0};
    for (int i = 0; i < c->n; i++) {
        amount[c->kernel[i]] += c->amount[i];
        seconds[c->kernel[i]] += c->seconds[i];
    }
    for (int k = 0; k < NKERNEL; k++)
        r.kernels.of[k] = seconds[k] > 0 ? amount[k] / seconds[k] : 0;
    return r;
}

// Returns the seconds of the collectives in the records from number `from` of each queue on.
static double sending_seconds(const struct Rank *r, const uint64_t from[NQUEUE]) {
    double seconds = 0;
    for (int q = 0; q < NQUEUE; q++) {
        const struct TraceRing *ring = &r->trace->ring[q];
        for (uint64_t i = from[q]; i < ring->count; i++) {
            const struct TraceRecord *t = &ring->record[i % TRACE_RING];
            seconds += t->label.what && t->label.group ? t->end - t->begin : 0;
        }
    }
    return seconds;
}

static int time_step(struct Rank *r, struct Calls *best, struct Error *e) {
    struct LrSchedule schedule = {.kind = SCHEDULE_CONSTANT, .lr = 1e-4, .steps = STEPS};
    struct AdamSettings adam = {0.9, 0.95, 1e-8, 0.1, 1};
    struct StepState settings = schedule_step(&schedule, &adam, r->zero.step, r->zero.updates);
    uint64_t from[NQUEUE];
    zero_sync(&r->zero); // the queues write what is read here, of the first weights, too
    for (int q = 0; q < NQUEUE; q++)
        from[q] = r->trace->ring[q].count;
    struct BatchSource random = {.read = read_random, .data = &r->model.config};
    int err = rank_queue_step(r, &random, &settings, e);
    if (err)
        return err;
    zero_step_wait(&r->zero);
    zero_sync(&r->zero);
    if (r->device->ops->collect)
        r->device->ops->collect(r->device);
    uint64_t sent = 0;
    for (int c = 0; c < NCOLLECTIVE; c++)
        sent += r->step_traffic.bytes[c];
    add_step(r, from, sent, sending_seconds(r, from), best);
    return 0;
}

static void time_rank(void *context, int rank, struct ThreadGroup *group) {
    struct Timing *t = context;
    struct RankSettings s = rates_settings(t->settings);
    struct Calls *best = base_alloc_zeroed(sizeof *best);
    struct Rank r;
    struct Error ignored;
    s.rank = rank;
    s.ranks = t->ranks;
    s.group = group;
    int err = rank_open(&r, &s, false, &ignored);
    if (!err)
        zero_init_weights(&r.zero, 1);
    for (int i = 0; i < STEPS && !err; i++)
        err = time_step(&r, best, &ignored);
    rank_close(&r);
    if (rank == 0 && !err)
        t->rates = rates_of(best);
    free(best);
}

// ---- what is kept of it ----

struct RateQuestion {
    struct Timing *timing;
    int kernel; // NKERNEL: what is sent
};

static double measure_rate(void *asked) {
    struct RateQuestion *a = asked;
    struct Timing *t = a->timing;
    struct World w = world_of_threads(t->ranks);
    if (!t->done)
        world_run(&w, time_rank, t);
    t->done = true;
    return a->kernel == NKERNEL ? t->rates.sent : t->rates.kernels.of[a->kernel];
}

// Returns the key under which a rate is cached: all that it depends on. free() it.
static char *rate_key(const struct RankSettings *s, int ranks, const char *what) {
    struct RankSettings small = rates_settings(s);
    const struct ModelConfig *m = &small.model;
    char *place = rank_device_speed_name(s);
    char *name =
        base_format("%s of %d ranks with %s, %s, %zu x %zu x %zu, heads %zu of %zu over "
                    "%zu, ffn %zu, window %zu, vocabulary %zu%s%s",
                    what, ranks, place, m->family->name, small.batch, m->seq_len, m->channels,
                    m->heads, m->head_size, m->kv_heads, m->ffn, m->window, m->vocab,
                    m->sparse.mode ? ", " : "", m->sparse.mode ? m->sparse.text : "");
    free(place);
    return name;
}

// Counts the kernels of a step of the small model: only their rates are asked for.
static struct KernelCount count_small_step(const struct RankSettings *s, int ranks) {
    struct RankSettings small = rates_settings(s);
    struct Rehearsal step = {.sums = {0}};
    struct Rank dry;
    struct Error ignored;
    small.ranks = ranks;
    if (rank_open(&dry, &small, true, &ignored) == 0)
        rehearse(&dry, NULL, NULL, &step);
    rank_close(&dry);
    return step.kernels;
}

static const double CALL_SECONDS = 5e-6; // of a queue, to begin with the next

void rates_find(const struct RankSettings *s, int ranks_here, KeepMeasured *keep,
                const char *folder, struct Rates *out) {
    struct Timing timing = {.settings = s, .ranks = ranks_here};
    struct KernelCount step = count_small_step(s, ranks_here);
    *out = (struct Rates){.kernels.call = CALL_SECONDS};
    for (int k = 0; k <= NKERNEL; k++) {
        struct RateQuestion asked = {&timing, k};
        if (k == NKERNEL ? ranks_here == 1 : !(step.calls[k] > 0))
            continue;
        char *key = rate_key(s, ranks_here, k == NKERNEL ? "sent" : kernel_names[k]);
        *(k == NKERNEL ? &out->sent : &out->kernels.of[k]) =
            keep(folder, key, measure_rate, &asked);
        free(key);
    }
    // The two halves of a classifier read and write as much as the whole.
    out->kernels.of[KERNEL_classifier_part] = out->kernels.of[KERNEL_classifier_merge] =
        out->kernels.of[KERNEL_classifier];
}
