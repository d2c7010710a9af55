// Collectives between ranks on GPUs: threads that share one, and threads with one each over NCCL.
//
// What they compute is compared bit by bit with sums in rank order, in every schedule of the
// simulator, and no schedule may show a race. Then what goes wrong: ranks whose calls do not fit, a
// rank that does not come, a link that breaks. On real GPUs the schedules mean nothing, and what
// needs more GPUs than there are is left out.
#include "zero/state.h"
#include "tests/cusim/nccl_sim.h"
#include "tests/lib/cusim_help.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"

#include "zero/comm/nccl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 4, PIECE = 128 };

static bool over_nccl; // a GPU for each rank

struct End {
    struct Device *device;
    struct Tier tier;
    struct Block staging;
    struct Comm *comm;
};

static void end_open(struct End *end, struct ThreadGroup *group, int rank, int ranks,
                     const struct NcclSettings *settings, double timeout_s) {
    struct Error e;
    CHECK(!device_open_cuda(&end->device, over_nccl ? rank : 0, &e), "%s", e.text);
    tier_init(&end->tier, TIER_DEVICE, end->device, SIZE_MAX);
    end->comm = comm_open_thread(group, rank, end->device, timeout_s);
    size_t chunk = PIECE * (size_t)ranks; // several pieces in most shards
    CHECK(!tier_alloc(&end->tier, TAG_COMM, "pieces", chunk, &end->staging, &e), "%s", e.text);
    struct NcclSettings nccl = {chunk, settings->native, settings->check};
    if (over_nccl)
        end->comm = comm_open_nccl(end->comm, &nccl, &end->staging);
}

static void end_close(struct End *end) {
    device_sync_queue(end->device, QUEUE_COMM);
    end->comm->ops->close(end->comm);
    tier_free(&end->staging);
    device_close(end->device);
}

// ---- what is computed ----

// Far apart in size, so that the order of a sum shows.
static float value(int r, size_t i) {
    return ldexpf(rng_uniform(7, (uint64_t)r * 100003 + i) - 0.5f, (int)((r * 5 + i) % 13));
}

static float rounded(enum Dtype d, float x) {
    float stored;
    dtype_store(&stored, d, 0, x);
    return dtype_load(&stored, d, 0);
}

static float sum_of(enum Dtype d, int ranks, size_t i, const float *start) {
    float sum = rounded(d, value(0, i));
    if (start)
        sum = *start + sum;
    for (int r = 1; r < ranks; r++)
        sum += rounded(d, value(r, i));
    return rounded(d, sum);
}

struct Case {
    enum Dtype dtype;
    size_t n; // elements of a shard
    int ranks;
    struct NcclSettings settings;
    const char *wrong[MOST_RANKS]; // what was; NULL: nothing
};

struct Buffers {
    struct End *end;
    const struct Case *c;
    size_t all_bytes;
    char *host;   // of all elements, pinned
    char *mem[5]; // summed, whole, shard, gathered, turned; on the device
};
enum { SUMMED, WHOLE, SHARD, GATHERED, TURNED, NBUFFER };

static const float START = 3;

static void upload(struct Buffers *b, int which, int rank) {
    size_t n = b->all_bytes / dtype_size(b->c->dtype);
    for (size_t i = 0; i < n; i++)
        dtype_store(b->host, b->c->dtype, i, rank < 0 ? START : value(rank, i));
    device_copy(b->end->device, QUEUE_COMM, b->mem[which], b->host, b->all_bytes);
    device_sync_queue(b->end->device, QUEUE_COMM);
}

static void buffers_open(struct Buffers *b, struct End *end, const struct Case *c) {
    b->end = end;
    b->c = c;
    b->all_bytes = c->n * (size_t)c->ranks * dtype_size(c->dtype);
    b->host = device_alloc_host(end->device, b->all_bytes);
    for (int i = 0; i < NBUFFER; i++) {
        b->mem[i] = end->device->ops->alloc(end->device, b->all_bytes);
        if (i != GATHERED && i != TURNED)
            upload(b, i, i == SHARD ? -1 : end->comm->rank);
    }
}

static void buffers_close(struct Buffers *b) {
    for (int i = 0; i < NBUFFER; i++)
        b->end->device->ops->free(b->end->device, b->mem[i], b->all_bytes);
    device_free_host(b->end->device, b->host);
}

// All collectives, one behind the other without a wait: the queue orders them.
static void queue_all(struct Buffers *b) {
    struct Comm *c = b->end->comm;
    size_t n = b->c->n, bytes = n * dtype_size(b->c->dtype), at = (size_t)c->rank * bytes;
    char *whole = b->mem[WHOLE];
    c->ops->all_reduce(c, b->mem[SUMMED], n, b->c->dtype);
    c->ops->reduce_scatter(c, b->mem[SHARD], whole, n, b->c->dtype, true);
    c->ops->all_gather(c, b->mem[GATHERED], whole + at, bytes);
    c->ops->all_to_all(c, b->mem[TURNED], whole, bytes);
    c->ops->reduce_scatter(c, whole + at, whole, n, b->c->dtype, false);
}

// How far a sum may be from the one in rank order: not at all, unless NCCL made it.
static float slack_of(const struct Case *c) {
    return !c->settings.native ? 0 : c->dtype == F32 ? 1e-3f : c->dtype == BF16 ? 256 : 32;
}

static bool sums_right(struct Buffers *b, int which, size_t at, size_t begin, size_t n,
                       const float *start) {
    const struct Case *c = b->c;
    size_t size = dtype_size(c->dtype);
    bool right = true;
    device_copy(b->end->device, QUEUE_COMM, b->host, b->mem[which] + at * size, n * size);
    device_sync_queue(b->end->device, QUEUE_COMM);
    for (size_t i = 0; i < n; i++) {
        float want = sum_of(c->dtype, c->ranks, begin + i, start);
        right &= fabsf(dtype_load(b->host, c->dtype, i) - want) <= slack_of(c);
    }
    return right;
}

static bool copies_right(struct Buffers *b, int which, size_t n, int rank) {
    const struct Case *c = b->c;
    bool right = true;
    device_copy(b->end->device, QUEUE_COMM, b->host, b->mem[which], n * dtype_size(c->dtype));
    device_sync_queue(b->end->device, QUEUE_COMM);
    for (size_t i = 0; i < n; i++) {
        float want = rounded(c->dtype, value(rank < 0 ? (int)(i / c->n) : rank, i));
        right &= dtype_load(b->host, c->dtype, i) == want;
    }
    return right;
}

// From each rank what it has for this one.
static bool turned_right(struct Buffers *b, size_t rank) {
    const struct Case *c = b->c;
    bool right = true;
    device_copy(b->end->device, QUEUE_COMM, b->host, b->mem[TURNED], b->all_bytes);
    device_sync_queue(b->end->device, QUEUE_COMM);
    for (size_t i = 0; i < c->n * (size_t)c->ranks; i++) {
        float want = rounded(c->dtype, value((int)(i / c->n), rank * c->n + i % c->n));
        right &= dtype_load(b->host, c->dtype, i) == want;
    }
    return right;
}

static bool counts_agree(const struct Comm *c, size_t shard_bytes) {
    uint64_t once = (uint64_t)(c->size - 1) * shard_bytes;
    return c->sent.bytes[COMM_ALL_REDUCE] == 2 * once && c->sent.bytes[COMM_ALL_GATHER] == once &&
           c->sent.bytes[COMM_REDUCE_SCATTER] == 2 * once && c->sent.bytes[COMM_ALL_TO_ALL] == once;
}

static const char *look_at_all(struct Buffers *b) {
    size_t n = b->c->n, rank = (size_t)b->end->comm->rank;
    return !sums_right(b, SUMMED, 0, 0, n * (size_t)b->c->ranks, NULL) ? "all_reduce"
           : !sums_right(b, SHARD, 0, rank * n, n, &START)             ? "reduce_scatter that adds"
           : !sums_right(b, WHOLE, rank * n, rank * n, n, NULL)        ? "reduce_scatter in place"
           : !copies_right(b, GATHERED, n * (size_t)b->c->ranks, -1)   ? "all_gather"
           : !turned_right(b, rank)                                    ? "all_to_all"
           : !counts_agree(b->end->comm, n * dtype_size(b->c->dtype))  ? "the count of bytes"
                                                                       : NULL;
}

static void run_case(void *context, int rank, struct ThreadGroup *group) {
    struct Case *c = context;
    struct End end;
    struct Buffers b;
    end_open(&end, group, rank, c->ranks, &c->settings, 60);
    buffers_open(&b, &end, c);
    queue_all(&b);
    device_sync_queue(end.device, QUEUE_COMM);
    c->wrong[rank] = look_at_all(&b);
    // All have looked when this is over.
    end.comm->ops->all_gather(end.comm, b.mem[GATHERED], b.mem[TURNED], dtype_size(c->dtype));
    device_sync_queue(end.device, QUEUE_COMM);
    buffers_close(&b);
    end_close(&end);
}

static bool gpus_suffice(int ranks) {
    if (!over_nccl || !sim_is_real()) {
        sim_set_gpus(over_nccl ? ranks : 1);
        return true;
    }
    return device_count_cuda() >= ranks;
}

static void check_case(struct Case c, const char *schedule) {
    if (!gpus_suffice(c.ranks))
        return;
    struct World w = world_of_threads(c.ranks);
    world_run(&w, run_case, &c);
    for (int r = 0; r < c.ranks; r++)
        if (c.wrong[r])
            fail_msg("%s: %s, %zu elements%s, %s: wrong on rank %d of %d", c.wrong[r],
                     dtype_name(c.dtype), c.n, c.settings.native ? ", native" : "", schedule, r,
                     c.ranks);
    assert_int_equal(sim_races(), 0);
}

TEST(collectives_are_right_and_counted) {
    // Even: the simulator looks at 4 bytes together, and a shard of an odd number of 2 bytes would
    // share them with its neighbour.
    static const size_t sizes[] = {2, 32, 34, 1000};
    for (enum Dtype d = F32; d < NDTYPE; d++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (int ranks = 2; ranks <= MOST_RANKS; ranks++)
                check_case((struct Case){.dtype = d, .n = sizes[i], .ranks = ranks}, "eager");
    if (over_nccl)
        for (enum Dtype d = F32; d < NDTYPE; d++)
            check_case((struct Case){.dtype = d, .n = 100, .ranks = 3, .settings = {0, true, true}},
                       "eager");
}

TEST(no_schedule_shows_a_race) {
    struct Case c = {.dtype = BF16, .n = 200, .ranks = 3};
    sim_set_schedule(SIM_LAZY, 0);
    check_case(c, "lazy");
    for (int q = 0; q < NQUEUE; q++) {
        sim_set_schedule(SIM_STARVE, (uint64_t)q);
        check_case(c, "starved");
    }
    for (uint64_t seed = 0; seed < 10; seed++) {
        sim_set_schedule(SIM_RANDOM, seed);
        check_case(c, "random");
    }
    sim_set_schedule(SIM_EAGER, 0);
}

// ---- whole steps ----

static void train_steps(void *hash, struct Rank *r) {
    for (int i = 0; i < 2; i++)
        tiny_step(r);
    uint64_t mine = zero_weights_hash(&r->zero);
    if (tiny_is_first(r))
        *(uint64_t *)hash = mine;
}

// Every stage over NCCL has the bits of ranks that share a GPU.
TEST(stages_agree_bitwise) {
    for (int ranks = 2; over_nccl && ranks <= MOST_RANKS; ranks += 2) {
        struct RankSettings s = tiny_settings(BF16);
        uint64_t want = 0, hash = 0;
        s.device = DEVICE_CUDA;
        s.ranks = ranks;
        s.nmicro = 1;
        if (!gpus_suffice(ranks))
            continue;
        for (s.stage = 0; s.stage < 4; s.stage++) {
            tiny_ranks(&s, train_steps, &hash);
            want = s.stage ? want : hash;
            if (hash != want)
                fail_msg("stage %d on %d GPUs: %016llx, not %016llx", s.stage, ranks,
                         (unsigned long long)hash, (unsigned long long)want);
        }
        s.stage = 3;
        sim_set_gpus(1);
        if (!sim_is_real())
            tiny_ranks(&s, train_steps, &hash);
        assert_true(hash == want);
        assert_int_equal(sim_races(), 0);
    }
}

// ---- what goes wrong ----

enum Astray { OTHER_SIZE, OTHER_KIND, ABSENT, BROKEN_LINK };

struct Way {
    enum Astray how;
    struct NcclSettings settings;
};

// A wait for nothing, where other ranks of the simulator get their turn.
static void stay_away(double seconds) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += (time_t)seconds;
    pthread_mutex_lock(&lock);
    pthread_cond_timedwait(&never, &lock, &t);
}

static void go_astray(void *context, int rank, struct ThreadGroup *group) {
    const struct Way *way = context;
    struct End end;
    end_open(&end, group, rank, 3, &way->settings, 0.5);
    char *mem = end.device->ops->alloc(end.device, 3 * 64);
    struct Comm *c = end.comm;
    device_zero(end.device, QUEUE_COMM, mem, 3 * 64);
    c->ops->all_gather(c, mem, mem + rank * 32, 32); // so far they agree
    device_sync_queue(end.device, QUEUE_COMM);
    if (way->how == BROKEN_LINK ? rank != 1 : rank == 1 && way->how == ABSENT)
        stay_away(1000);
    if (rank == 1 && way->how == OTHER_KIND)
        c->ops->reduce_scatter(c, mem, mem, 8, F32, false);
    else
        c->ops->all_gather(c, mem, mem + rank * 32, rank == 1 && way->how == OTHER_SIZE ? 16 : 32);
    if (way->how == BROKEN_LINK) // after it was queued: only who watches will know
        sim_nccl_break(1);
    device_sync_queue(end.device, QUEUE_COMM);
    end_close(&end);
}

static void run_astray(const void *way) {
    struct World w = world_of_threads(3);
    world_run(&w, go_astray, (void *)way);
}

static void expect_said_once(struct Way way, int schedule, int wanted_status, const char *wanted) {
    int status;
    gpus_suffice(3);
    use_schedule(schedule);
    char *said = child_said(run_astray, &way, &status);
    use_schedule(0);
    int lines = 0;
    for (const char *p = said; *p; p++)
        lines += *p == '\n';
    bool is_wanted = wanted_status == 2 ? line_is(said, wanted) : strstr(said, wanted) != NULL;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != wanted_status || !is_wanted || lines != 1)
        fail_msg("way %d, schedule %d: status %#x, %d lines: \"%s\", wanted \"%s\"", way.how,
                 schedule, status, lines, said, wanted);
    free(said);
}

// Whatever queue is behind.
static void expect_said(struct Way way, int wanted_status, const char *wanted) {
    for (int i = 0; i < NSCHEDULES && !sim_is_real(); i++) // who has used a GPU must not fork
        expect_said_once(way, i, wanted_status, wanted);
}

TEST(fault_10_ranks_out_of_step_are_named) {
    struct Way way = {OTHER_SIZE, {.check = true}};
    expect_said(way, 2, "E_COLLECTIVES_DIFFER rank 1 at 1, all_gather of 16 bytes");
    way.how = OTHER_KIND;
    expect_said(way, 2, "E_COLLECTIVES_DIFFER rank 1 at 1, reduce_scatter of 32 bytes");
    way.settings.check = false;
    if (over_nccl) // then the simulator says what the real one would hang in
        expect_said(way, 99, "NCCL: calls that do not fit");
}

TEST(fault_20_a_rank_that_does_not_come_is_named) {
    struct Way way = {ABSENT, {.check = true}};
    expect_said(way, 2, "E_RANK_SILENT rank 1 for 0.5 s");
    way.settings.check = false;
    if (over_nccl)
        expect_said(way, 2, "E_RANK_SILENT by rank 1");
}

TEST(a_link_that_breaks_ends_the_job) {
    struct Way way = {BROKEN_LINK, {0}};
    if (over_nccl)
        expect_said(way, 2, "E_NCCL rank 1: collective 1, all_gather of 32 bytes");
}

static int share_one(void **state) {
    (void)state;
    over_nccl = false;
    return 0;
}

static int use_nccl(void **state) {
    (void)state;
    over_nccl = true;
    return 0;
}

int main(void) {
    device_load_eagerly_cuda();
    around_all.before = share_one;
    int failed = run_all_tests();
    around_all.before = use_nccl;
    return failed + run_all_tests();
}
