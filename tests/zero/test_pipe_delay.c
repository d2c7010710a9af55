// Stages of a pipeline with queues that are slow at random: every run ends, with the same bits.
//
// Swaps ride in the compute queues, where they hold up all that is queued behind them, and several
// micro-batches are under way at a time, whose tokens, weights and gradients come and go in other
// queues. So in each run every queue of every rank, and of the host that keeps what is offloaded,
// is drawn a delay of its own, none to some hundred times what an operation takes: losses, norms
// and weights must be those of the same grid with quick queues, and those without a pipeline (where
// both ends have the embedding, those of two stages: docs/ranks.md). Whoever waits for ever is
// ended, by the time-out of collectives or else by an alarm, and named.
//
// The time goes into sleeping queues, so each grid has processes of its own beside the others.
#include "zero/state.h"
#include "tests/lib/outcome.h"
#include "tests/lib/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STEPS = 3,
    VALIDATED = 5,
    SEEDS = 4,
    PARTS = 2,
    TIMEOUT_S = 30,
    LIMIT_S = 120,
    OUT_IS_SLOW = 100
};

struct Case {
    int pp, dp, tp;
    size_t micros;
    int stage; // of ZeRO
    enum TierKind param, opt, act;
    size_t prefetch;
    enum Recompute recompute;
    enum Dtype dtype;
    bool late;  // updates come one step late
    bool tied;  // both ends have the embedding
    bool parts; // of activations, on the places
};

static const struct Case cases[] = {
    {2, 1, 1, 5, 0, TIER_DEVICE, TIER_DEVICE, TIER_DEVICE, 1, RECOMPUTE_NONE, F32, false, false,
     false},
    {4, 1, 1, 6, 3, TIER_DEVICE, TIER_DEVICE, TIER_DEVICE, 1, RECOMPUTE_BLOCK, F32, false, false,
     false},
    {3, 1, 1, 2, 2, TIER_CPU, TIER_CPU, TIER_DEVICE, 2, RECOMPUTE_NONE, BF16, false, false, false},
    {3, 1, 1, 7, 1, TIER_DEVICE, TIER_CPU, TIER_DEVICE, 1, RECOMPUTE_MLP, F32, true, false, false},
    {2, 2, 1, 4, 3, TIER_CPU, TIER_CPU, TIER_DEVICE, 2, RECOMPUTE_BLOCK, F32, false, false, false},
    {3, 2, 1, 3, 2, TIER_DEVICE, TIER_DEVICE, TIER_DEVICE, 1, RECOMPUTE_GELU, BF16, false, false,
     false},
    {2, 1, 3, 3, 3, TIER_DEVICE, TIER_CPU, TIER_DEVICE, 0, RECOMPUTE_NONE, F32, false, false,
     false},
    {2, 2, 1, 5, 3, TIER_NVME, TIER_NVME, TIER_DEVICE, 1, RECOMPUTE_NONE, F32, false, false, false},
    {4, 2, 1, 4, 1, TIER_DEVICE, TIER_DEVICE, TIER_DEVICE, 1, RECOMPUTE_ATTENTION, F16, false,
     false, false},
    {3, 1, 1, 4, 3, TIER_NVME, TIER_CPU, TIER_DEVICE, 3, RECOMPUTE_BLOCK, BF16, true, false, false},
    {3, 2, 1, 4, 3, TIER_DEVICE, TIER_DEVICE, TIER_DEVICE, 1, RECOMPUTE_NONE, F32, false, true,
     false},
    {4, 1, 1, 5, 1, TIER_CPU, TIER_CPU, TIER_DEVICE, 1, RECOMPUTE_BLOCK, F32, false, true, false},
    {2, 1, 1, 5, 0, TIER_DEVICE, TIER_DEVICE, TIER_CPU, 1, RECOMPUTE_NONE, F32, false, false,
     false},
    {2, 2, 1, 3, 3, TIER_DEVICE, TIER_CPU, TIER_NVME, 0, RECOMPUTE_BLOCK, BF16, false, true, false},
    {3, 1, 1, 7, 1, TIER_DEVICE, TIER_DEVICE, TIER_CPU, 2, RECOMPUTE_GELU, F32, false, false,
     false},
    {2, 1, 3, 4, 2, TIER_DEVICE, TIER_DEVICE, TIER_CPU, 1, RECOMPUTE_BLOCK, F32, false, false,
     true},
    {4, 1, 1, 6, 1, TIER_DEVICE, TIER_DEVICE, TIER_CPU, 1, RECOMPUTE_NONE, F32, false, true, false},
    {3, 1, 1, 8, 0, TIER_DEVICE, TIER_DEVICE, TIER_CPU, 0, RECOMPUTE_MLP, F32, false, false, false},
};
enum { NCASE = sizeof cases / sizeof cases[0] };

static const char *text_of(const struct Case *c) {
    static char text[160];
    snprintf(text, sizeof text,
             "%d stages x %d ranks x %d places, %zu micro-batches, stage %d, parameters on %s, "
             "optimizer on %s, activations on %s",
             c->pp, c->dp, c->tp, c->micros, c->stage, tier_name(c->param), tier_name(c->opt),
             tier_name(c->act));
    return text;
}

// One block for each stage at least, which have different counts of them.
static struct RankSettings settings_of(const struct Case *c) {
    struct RankSettings s = tiny_settings(c->dtype);
    s.model.layers = 5;
    s.model.untied = !c->tied;
    s.nmicro = c->micros;
    s.pp = (size_t)c->pp;
    s.tp = (size_t)c->tp;
    s.ranks = c->pp * c->dp * c->tp;
    s.stage = c->stage;
    s.param_tier = c->param;
    s.opt_tier = c->opt;
    s.act_tier = c->act;
    s.partition_activations = c->parts;
    s.nvme.folder = disk_folder;
    s.prefetch = c->prefetch;
    s.recompute = c->recompute;
    s.delayed = c->late;
    s.threads = 1;
    s.timeout_s = TIMEOUT_S;
    return s;
}

// ---- slow queues ----

// Microseconds before each operation, at most: compute has a hundred times those of the others.
static const unsigned delays_us[NQUEUE] = {600, 4000, 6000, 6000};

// Half of all queues are quick, some are slow, and some have a tenth of it. Or what leaves is slow,
// and nothing else, so that what comes over it too early does so for sure.
static void slow_down(struct Device *d, uint64_t seed, uint64_t device) {
    if (seed == OUT_IS_SLOW) {
        device_set_delay(d, QUEUE_OUT, (struct QueueDelay){delays_us[QUEUE_OUT], device});
        return;
    }
    for (int q = 0; q < NQUEUE; q++) {
        uint64_t drawn = rng_bits(seed, device * NQUEUE + (uint64_t)q);
        unsigned most = drawn % 4 == 0 ? delays_us[q] : drawn % 4 == 1 ? delays_us[q] / 10 : 0;
        device_set_delay(d, (enum Queue)q, (struct QueueDelay){most, drawn});
    }
}

static void quicken(struct Device *d) {
    for (int q = 0; q < NQUEUE; q++)
        device_set_delay(d, (enum Queue)q, (struct QueueDelay){0});
}

struct Run {
    uint64_t seed; // 0: all queues are quick
    struct Outcome out;
};

// Each step is queued before the result of the last is taken. Poison is no token, and a kernel that
// meets one would end the process before anything is compared.
static void run_slowly(void *context, struct Rank *r) {
    struct Run *run = context;
    struct TinyStep step[STEPS];
    uint64_t rank = (uint64_t)r->all->rank;
    for (size_t i = 0; i < r->feed.slots; i++)
        device_zero(r->device, QUEUE_COMPUTE, r->feed.slot[i].block.mem,
                    r->feed.slot[i].block.bytes);
    device_sync_queue(r->device, QUEUE_COMPUTE);
    if (run->seed)
        slow_down(r->device, run->seed, 2 * rank);
    if (run->seed && r->host)
        slow_down(r->host, run->seed, 2 * rank + 1);
    tiny_steps(r, STEPS, step);
    float validation = tiny_validate(r, VALIDATED);
    zero_sync(&r->zero);
    quicken(r->device);
    if (r->host)
        quicken(r->host);
    uint64_t hash = zero_weights_hash(&r->zero);
    if (!tiny_is_first(r))
        return;
    run->out = (struct Outcome){.steps = STEPS, .validation = validation, .hash = hash};
    for (int i = 0; i < STEPS; i++)
        outcome_keep(&run->out, r, i, step[i]);
}

static struct Outcome run(const struct RankSettings *s, uint64_t seed) {
    struct Run run = {.seed = seed};
    tiny_ranks(s, run_slowly, &run);
    return run.out;
}

// ---- tests ----

static int differs(const struct Outcome *want, const struct Outcome *got, const struct Case *c,
                   const char *what, uint64_t seed) {
    if (outcome_is_same(want, got))
        return 0;
    fprintf(stderr, "%s: %s %d: another run\n", text_of(c), what, (int)seed);
    return 1;
}

// Every PARTS-th seed, from the part-th on; the exit status of a process of its own.
static int try_case(const struct Case *c, int part) {
    struct RankSettings s = settings_of(c), one = s;
    struct Outcome quick = run(&s, 0);
    int failed = !isfinite(quick.loss[STEPS - 1]) && c->dtype != F16;
    one.pp = c->tied ? 2 : 0;
    one.ranks = c->tp * c->dp * (c->tied ? 2 : 1);
    struct Outcome fewer = run(&one, 0);
    failed += differs(&fewer, &quick, c, "beside fewer stages", 0);
    for (uint64_t seed = 1 + (uint64_t)part; seed <= SEEDS; seed += PARTS) {
        struct Outcome slow = run(&s, seed);
        failed += differs(&quick, &slow, c, "slow queues, seed", seed);
    }
    if (part == 0 && c->act != TIER_DEVICE) {
        struct Outcome slow = run(&s, OUT_IS_SLOW);
        failed += differs(&quick, &slow, c, "what leaves is slow", 0);
    }
    return failed > 0;
}

TEST(slow_queues_change_no_bit) {
    pid_t child[NCASE * PARTS];
    int failed = 0;
    fflush(NULL);
    for (int i = 0; i < NCASE * PARTS; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i] == 0) {
            alarm(LIMIT_S);
            _exit(try_case(&cases[i / PARTS], i % PARTS));
        }
    }
    for (int i = 0; i < NCASE * PARTS; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        failed += status != 0;
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
            fprintf(stderr, "%s: no end after %d s\n", text_of(&cases[i / PARTS]), LIMIT_S);
        else if (status && !(WIFEXITED(status) && WEXITSTATUS(status) == 1))
            fprintf(stderr, "%s: ended with %#x\n", text_of(&cases[i / PARTS]), (unsigned)status);
    }
    assert_int_equal(failed, 0);
}

AROUND_ALL(disk_open, disk_close);
