// See seats.h.
#include "tests/lib/seats.h"

#include "zero/report.h"
#include "zero/comm/world.h"
#include "zero/master/master.h"
#include "zero/replica/replica.h"
#include "zero/weights/weights.h"
#include "tests/lib/test.h"

#include <stdlib.h>

struct RankInfo {
    struct Device *device;
    struct Tier tier[NTIER];
    struct Comm *all, *dp;
    struct Parallel parallel;
    struct Params params;
    struct Zero zero;
};

static void open_groups(struct RankInfo *s, const struct SeatsJob *job, int rank,
                        struct ThreadGroup *g) {
    struct Grid grid = {{job->tp, job->dp, 1, job->replicas}};
    s->all = g ? comm_open_thread(g, rank, s->device, 60) : comm_open_self(s->device);
    s->dp = job->dp == s->all->size ? s->all : comm_split(s->all, &grid, AXIS_DP, false);
    s->parallel = zero_parallel_none;
    s->parallel.grid = grid;
    s->parallel.replicas =
        job->replicas > 1 ? comm_split(s->all, &grid, AXIS_REPLICA, false) : NULL;
    params_layout(&job->c, (size_t)s->all->size, (size_t)grid_coord(&grid, rank, AXIS_TP),
                  (size_t)job->tp, &s->params);
}

static void open_seat(struct RankInfo *s, const struct SeatsJob *job, int rank,
                      struct ThreadGroup *g) {
    struct Error e = {0};
    CHECK(!device_open_cpu(&s->device, 1, NULL, &e), "%s", e.text);
    open_groups(s, job, rank, g);
    for (int t = 0; t < NTIER; t++)
        tier_init(&s->tier[t], (enum TierKind)t, s->device, SIZE_MAX);
    struct ZeroOptions options = {.stage = job->stage,
                                  .shard_group = s->dp,
                                  .nmicro = 1,
                                  .prefetch = 1,
                                  .dtype = job->dtype,
                                  .masters = master_ops(MASTER_FP32),
                                  .tier = s->tier};
    struct ZeroPlan plan = zero_plan(&options);
    s->zero = (struct Zero){.device = s->device,
                            .all = s->all,
                            .shard_group = s->dp,
                            .parallel = &s->parallel,
                            .params = &s->params,
                            .backing = zero_on_device};
    CHECK(!zero_open(&s->zero, &options, &plan, &e), "%s", e.text);
    replica_join(&s->zero, s->parallel.replicas);
    zero_init_weights(&s->zero, 1);
}

static void close_seat(struct RankInfo *s) {
    zero_sync(&s->zero);
    zero_close(&s->zero);
    params_free(&s->params);
    struct Comm *groups[] = {s->parallel.replicas, s->dp == s->all ? NULL : s->dp, s->all};
    for (int i = 0; i < 3; i++)
        if (groups[i])
            groups[i]->ops->close(groups[i]);
    device_close(s->device);
}

static void sit(void *context, int rank, struct ThreadGroup *group) {
    struct SeatsJob *job = context;
    struct RankInfo s = {0};
    open_seat(&s, job, rank, group);
    job->work(job, &s.zero);
    uint64_t hash = zero_weights_hash(&s.zero);
    if (rank == 0)
        job->hash = hash;
    close_seat(&s);
}

void seats_try(struct SeatsJob *job, SeatsWork *work) {
    struct World w = world_of_threads(job->tp * job->dp * job->replicas);
    job->work = work;
    job->wrong = job->seen = 0;
    world_run(&w, sit, job);
}

void seats_run(struct SeatsJob *job, SeatsWork *work) {
    seats_try(job, work);
    if (job->err)
        fail_msg("%d x %d: %s", job->tp, job->dp, job->e.text);
    if (job->wrong)
        fail_msg("%d x %d: %llu elements are wrong", job->tp, job->dp,
                 (unsigned long long)job->wrong);
}

static struct ModelConfig model_of(enum FamilyKind kind, bool untied, size_t vocab) {
    struct Error e;
    struct ModelConfig c = {.layers = 2,
                            .heads = 24,
                            .kv_heads = kind == FAMILY_GPT2 ? 24 : 12,
                            .channels = 36,
                            .head_size = 2,
                            .ffn = 60,
                            .seq_len = 7,
                            .vocab = vocab,
                            .kind = kind,
                            .untied = untied};
    assert_int_equal(model_config_finish(&c, &e), 0);
    return c;
}

struct SeatsJob seats_job(enum FamilyKind kind, bool untied, size_t vocab, int tp, int dp) {
    return (struct SeatsJob){
        .c = model_of(kind, untied, vocab), .tp = tp, .dp = dp, .replicas = 1, .stage = 3};
}

// ---- state that is a function of array and index ----

float seats_value(enum State what, uint64_t index) {
    return (float)(rng_bits(what, index) % 1000003) / 1000003;
}

// The values of what this rank keeps of a group's array, 0 where it is padding.
static float *values_here(const struct Zero *z, int g, enum State what, size_t *n) {
    struct Piece piece[MAX_PIECES];
    size_t begin = zero_owned_begin(z, g);
    *n = zero_owned_numel(z, g);
    float *x = base_alloc_zeroed((*n + 1) * sizeof *x);
    for (int i = params_pieces(&z->params->group[g], begin, begin + *n, piece); i-- > 0;)
        for (size_t j = 0; j < piece[i].range.n; j++)
            x[piece[i].begin - begin + j] =
                seats_value(what, piece[i].param->index + weights_at(&piece[i].range, j));
    return x;
}

void seats_fill(struct Zero *z, enum State arrays) {
    size_t n;
    for (int g = 0; g < z->params->ngroup; g++)
        for (enum State what = 0; what < arrays; what++) {
            float *x = values_here(z, g, what, &n);
            for (size_t i = 0; i < n; i += STATE_CHUNK)
                zero_write_state(z, g, what, i, size_min(STATE_CHUNK, n - i), x + i);
            free(x);
        }
    zero_store_params(z, false);
}

void seats_expect(struct SeatsJob *job, struct Zero *z, enum State arrays) {
    float *got = device_alloc_host(z->device, STATE_CHUNK * sizeof *got);
    size_t n, wrong = 0;
    for (int g = 0; g < z->params->ngroup; g++)
        for (enum State what = 0; what < arrays; what++) {
            float *want = values_here(z, g, what, &n);
            for (size_t i = 0; i < n; i++) {
                if (i % STATE_CHUNK == 0)
                    zero_read_state(z, g, what, i, size_min(STATE_CHUNK, n - i), got);
                wrong += f32_bits(got[i % STATE_CHUNK]) != f32_bits(want[i]);
            }
            job->seen += n;
            free(want);
        }
    job->wrong += wrong;
    device_free_host(z->device, got);
}

void seats_note(struct SeatsJob *job, struct Zero *z, int err, const struct Error *e) {
    if (err && z->all->rank == 0) {
        job->err = err;
        job->e = *e;
    }
}
