// Training on CUDA, in the simulator or on a GPU: the same code as ./train --device cuda runs.
//
// Against the CPU: the losses of ten steps. Against itself: stages, ranks that share a GPU,
// prefetch, overlap and recomputation change no bit; nor does, in the simulator, the order in which
// threads, streams and hosts take their turns. The race detector looks at every run. Then each
// record, wait and synchronisation of a step is left out, one at a time: each must be missed.
//
//   test_gpu_train           each kind in the setups that had not shown that it is needed
//   test_gpu_train --whole   each kind in every setup; and every combination of stage, ranks,
//                            format, prefetch, queues and recomputation
//
// Faults 1 to 4 of real trainers: a reduction on the wrong stream, a buffer used again too early,
// the race of a double buffer, a run that differs when it overlaps.
#include "tests/cusim/sim.h"
#include "tests/scratch.h"
#include "tests/tiny.h"
#include "zero/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
// cmocka.h wants the headers above it.
#include <cmocka.h>

enum { STEPS = 3, LONG_STEPS = 10 };

static bool whole; // everything, not a part

static struct RankSettings settings_of(enum Dtype dtype, int ranks, int stage) {
    struct RankSettings s = tiny_settings(dtype);
    s.device = DEVICE_CUDA;
    s.ranks = ranks;
    s.stage = stage;
    s.nmicro = 1;
    s.grad_dtype = dtype;
    return s;
}

struct Outcome {
    int steps;
    double loss[LONG_STEPS];
    float norm[LONG_STEPS];
    uint64_t hash;
};

static void train_steps(void *context, struct Rank *r) {
    struct Outcome *out = context;
    for (int i = 0; i < out->steps; i++) {
        struct TinyStep step = tiny_step(r);
        if (!tiny_is_first(r))
            continue;
        out->loss[i] = step.loss;
        out->norm[i] = step.grad_norm;
    }
    uint64_t hash = zero_weights_hash(&r->zero);
    if (tiny_is_first(r))
        out->hash = hash;
}

static struct Outcome run(const struct RankSettings *s, int steps) {
    struct Outcome out = {.steps = steps};
    tiny_ranks(s, train_steps, &out);
    return out;
}

static void expect_no_race(const char *what) {
    size_t races = sim_races();
    if (races)
        fail_msg("%s: %zu races", what, races);
}

static void expect_same(const struct Outcome *a, const struct Outcome *b,
                        const struct RankSettings *s, const char *what) {
    for (int i = 0; i < a->steps; i++)
        if (a->loss[i] != b->loss[i] || a->norm[i] != b->norm[i])
            fail_msg("%s (stage %d, %d ranks, %s): loss %.9g, norm %.9g at step %d, not %.9g, %.9g",
                     what, s->stage, s->ranks, dtype_name(s->model.dtype), b->loss[i], b->norm[i],
                     i + 1, a->loss[i], a->norm[i]);
    if (a->hash != b->hash)
        fail_msg("%s (stage %d, %d ranks, %s): hash %016llx, not %016llx", what, s->stage, s->ranks,
                 dtype_name(s->model.dtype), (unsigned long long)b->hash,
                 (unsigned long long)a->hash);
    expect_no_race(what);
}

// ---- against the CPU ----

static void losses_are_the_cpus(void **state) {
    (void)state;
    struct RankSettings s = settings_of(F32, 1, 0);
    struct Outcome gpu = run(&s, LONG_STEPS);
    expect_no_race("10 steps");
    s.device = DEVICE_CPU;
    struct Outcome cpu = run(&s, LONG_STEPS);
    for (int i = 0; i < LONG_STEPS; i++)
        if (!(fabs(gpu.loss[i] - cpu.loss[i]) <= 1e-5 * cpu.loss[i]))
            fail_msg("loss %.9g at step %d, the CPU says %.9g", gpu.loss[i], i + 1, cpu.loss[i]);
    assert_true(cpu.loss[LONG_STEPS - 1] != cpu.loss[0]);
}

// ---- a checkpoint keeps the algorithms of matrix products ----

struct Stop {
    const char *folder;
    bool resumed;
    void *choices[2]; // of each rank, when it stopped
    size_t bytes[2];
    uint64_t hash;
};

static void stop_or_resume(void *context, struct Rank *r) {
    struct Stop *s = context;
    struct Error e = {{0}};
    int rank = r->dp->rank;
    if (!s->resumed) {
        tiny_step(r);
        if (checkpoint_save(&r->zero, s->folder, "a run\n", 1, &e))
            fail_msg("%s", e.text);
        s->bytes[rank] = device_get_choices(r->device, NULL, 0);
        s->choices[rank] = base_alloc(s->bytes[rank]);
        device_get_choices(r->device, s->choices[rank], s->bytes[rank]);
    } else {
        if (checkpoint_resume(&r->zero, s->folder, "auto", "a run\n", &e))
            fail_msg("%s", e.text);
        char *now = base_alloc(s->bytes[rank]);
        CHECK(device_get_choices(r->device, NULL, 0) == s->bytes[rank], "other choices");
        device_get_choices(r->device, now, s->bytes[rank]);
        CHECK(memcmp(now, s->choices[rank], s->bytes[rank]) == 0, "other choices on rank %d", rank);
        free(now);
    }
    tiny_step(r);
    uint64_t hash = zero_weights_hash(&r->zero);
    if (tiny_is_first(r))
        s->hash = hash;
}

static void tuned_runs_resume(void **state) {
    (void)state;
    struct RankSettings s = settings_of(BF16, 2, 3);
    s.autotune = true;
    struct Stop stop = {.folder = scratch_make()};
    tiny_ranks(&s, stop_or_resume, &stop);
    uint64_t never_stopped = stop.hash;
    assert_true(stop.bytes[0] > 64 && stop.bytes[1] > 64);
    stop.resumed = true;
    tiny_ranks(&s, stop_or_resume, &stop);
    assert_true(stop.hash == never_stopped);
    for (int r = 0; r < 2; r++)
        free(stop.choices[r]);
    scratch_remove((char *)stop.folder);
}

// ---- the same bits ----

// Of the matrix, a part in which each stage meets each prefetch, queue and recomputation.
static bool is_chosen(const struct RankSettings *s) {
    if (s->stage < 2 && s->prefetch != 1)
        return false; // nothing is fetched or reduced in turns there
    return s->one_queue == (s->prefetch == 2) && (int)s->recompute == s->stage % NRECOMPUTE;
}

static void compare_stages(enum Dtype dtype, int ranks) {
    struct RankSettings s = settings_of(dtype, ranks, 0);
    struct Outcome reference = run(&s, STEPS);
    assert_true(isfinite(reference.loss[STEPS - 1]));
    expect_no_race("stage 0");
    for (s.stage = 0; s.stage < 4; s.stage++)
        for (s.prefetch = 0; s.prefetch < 3; s.prefetch++)
            for (int i = 0; i < 2 * NRECOMPUTE; i++) {
                s.one_queue = i % 2;
                s.recompute = (enum Recompute)(i / 2);
                if (!whole && !is_chosen(&s))
                    continue;
                struct Outcome other = run(&s, STEPS);
                expect_same(&reference, &other, &s, s.one_queue ? "one queue" : "four queues");
            }
}

static void stages_agree_bitwise(void **state) {
    (void)state;
    for (enum Dtype d = F32; d < NDTYPE; d++)
        for (int ranks = 2; ranks <= 4; ranks += 2)
            if (whole || (d == F32) == (ranks == 2))
                compare_stages(d, ranks);
}

static void fault_04_overlap_changes_no_bit(void **state) {
    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        struct RankSettings s = settings_of(BF16, 2, stage);
        s.nmicro = 2;
        s.grad_dtype = F32;
        struct Outcome four = run(&s, STEPS), again = run(&s, STEPS);
        expect_same(&four, &again, &s, "run again");
        s.one_queue = true;
        struct Outcome one = run(&s, STEPS);
        expect_same(&four, &one, &s, "overlap off");
    }
}

// ---- the same bits, in whatever order things happen ----

static void fault_03_any_schedule(void **state) {
    (void)state;
    if (sim_is_real())
        skip();
    for (int stage = 0; stage < 4; stage += 3) {
        struct RankSettings s = settings_of(BF16, 2, stage);
        s.prefetch = 2;
        struct Outcome reference = run(&s, STEPS);
        for (int queue = 0; queue < NQUEUE; queue++) {
            sim_set_schedule(SIM_STARVE, (uint64_t)queue);
            struct Outcome starved = run(&s, STEPS);
            expect_same(&reference, &starved, &s, "a starved queue");
        }
        sim_set_schedule(SIM_LAZY, 0);
        struct Outcome lazy = run(&s, STEPS);
        expect_same(&reference, &lazy, &s, "lazy");
        for (uint64_t seed = 1; seed <= 3; seed++) {
            sim_set_schedule(SIM_RANDOM, seed);
            sim_set_order((enum SimOrder)(seed % NSIMORDER), seed);
            struct Outcome random = run(&s, STEPS);
            expect_same(&reference, &random, &s, "random");
        }
        sim_set_schedule(SIM_EAGER, 0);
        sim_set_order(SIM_FORWARD, 0);
    }
}

// ---- what a step cannot do without ----

enum { MAX_SYNCS = 512, NAME = 64 };

struct Drop {
    size_t nth;         // of the records, waits and synchronisations of the second step is left out
    size_t count;       // of all of them
    char (*name)[NAME]; // (MAX_SYNCS): each one's; not the first rank's: empty. NULL: not asked for
    uint64_t hash;
};

// Every event of a rank, by the name of its field; of group 1 for those that all groups have. A
// struct Event of this backend begins with CUDA's.
static const char *event_name(const struct Rank *r, const void *event) {
    const struct Zero *z = &r->zero;
    const struct {
        const struct Event *event;
        const char *name;
    } events[] = {
        {z->word_sent, "word_sent"},
        {z->settings_sent, "settings_sent"},
        {z->backward_done, "backward_done"},
        {z->computed, "computed"},
        {z->reported, "reported"},
        {z->updated, "updated"},
        {z->received_all, "received_all"},
        {r->feed.slot[0].ready, "feed ready"},
        {r->feed.slot[1].ready, "feed ready"},
        {r->feed.slot[0].done, "feed done"},
        {r->feed.slot[1].done, "feed done"},
    };
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        if (*(void *const *)events[i].event == event)
            return events[i].name;
    for (int g = 0; g < z->params->ngroup; g++) {
        if (*(void *const *)z->state[g].updated == event)
            return "group updated";
        if (*(void *const *)z->state[g].gathered == event)
            return "group gathered";
    }
    const struct Slots *slots[] = {&z->weights, &z->buckets};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < slots[k]->count; i++) {
            if (*(void *const *)slots[k]->slot[i].filled == event)
                return k ? "bucket filled" : "weights filled";
            if (*(void *const *)slots[k]->slot[i].drained == event)
                return k ? "bucket drained" : "weights drained";
        }
    return "of a meeting, or another rank's";
}

static void name_syncs(struct Drop *d, const struct Rank *r, size_t count) {
    static const char *const kinds[] = {"record", "wait", "sync"};
    static const char *const queues[] = {"host", "compute", "comm", "in", "out"};
    CHECK(count <= MAX_SYNCS, "%zu synchronisations", count);
    for (size_t i = 0; i < count; i++) {
        struct SimSync s = sim_sync(i);
        if (s.first_host)
            snprintf(d->name[i], NAME, "%s by %s: %s", kinds[s.kind], queues[s.queue + 1],
                     s.event ? event_name(r, s.event) : "the queue");
    }
}

static size_t last_count(struct Drop *d, const struct Rank *r) {
    if (d->name)
        for (size_t i = 0; i < MAX_SYNCS; i++)
            d->name[i][0] = '\0';
    size_t count = sim_syncs();
    if (d->name)
        name_syncs(d, r, count);
    sim_drop(SIZE_MAX);
    return count;
}

static void drop_one(void *context, struct Rank *r) {
    struct Drop *d = context;
    tiny_step(r);
    if (tiny_is_first(r))
        sim_drop(d->nth);
    tiny_step(r);
    if (tiny_is_first(r))
        d->count = last_count(d, r);
    tiny_step(r);
    uint64_t hash = zero_weights_hash(&r->zero);
    if (tiny_is_first(r))
        d->hash = hash;
}

// In a process of its own, since what is left out may end it. True: somebody noticed.
static bool is_noticed(const struct RankSettings *s, size_t nth, uint64_t hash) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct Drop d = {.nth = nth};
        if (!freopen("/dev/null", "w", stderr))
            _exit(3);
        alarm(20); // a wait that never ends is noticed, too
        sim_tell_places(false);
        sim_set_schedule(SIM_EAGER, 0);
        tiny_ranks(s, drop_one, &d);
        _exit(sim_races() != 0 || d.hash != hash);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

// The same line of code makes some of them once for each group; one of these that is needed shows
// that the line is.
static bool any_is_noticed(const struct RankSettings *s, const struct Drop *run, size_t first,
                           size_t *tried) {
    for (size_t i = first; i < run->count; i++)
        if (strcmp(run->name[i], run->name[first]) == 0) {
            ++*tried;
            if (is_noticed(s, i, run->hash))
                return true;
        }
    return false;
}

static bool is_first_of_its_name(const struct Drop *d, size_t i) {
    if (!d->name[i][0])
        return false;
    for (size_t j = 0; j < i; j++)
        if (strcmp(d->name[j], d->name[i]) == 0)
            return false;
    return true;
}

// What was found so far: every name, and whether some setup needs it.
struct Names {
    size_t count, tried;
    char name[MAX_SYNCS][NAME];
    bool needed[MAX_SYNCS];
};

static size_t names_find(struct Names *n, const char *name) {
    size_t i = 0;
    while (i < n->count && strcmp(n->name[i], name) != 0)
        i++;
    if (i == n->count) {
        CHECK(n->count < MAX_SYNCS, "%zu names", n->count);
        snprintf(n->name[n->count++], NAME, "%.*s", NAME - 1, name);
    }
    return i;
}

static void leave_each_out(const struct RankSettings *s, struct Names *all) {
    static char names[MAX_SYNCS][NAME];
    struct Drop run = {.nth = SIZE_MAX, .name = names};
    sim_set_schedule(SIM_EAGER, 0); // hosts take their turns as they will when it is left out
    tiny_ranks(s, drop_one, &run);
    expect_no_race("nothing left out");
    for (size_t i = 0; i < run.count; i++) {
        size_t known = names[i][0] ? names_find(all, names[i]) : 0;
        if (!is_first_of_its_name(&run, i) || (all->needed[known] && !whole))
            continue;
        if (any_is_noticed(s, &run, i, &all->tried))
            all->needed[known] = true;
        else
            print_message("stage %d, %zu micro-batches: nobody misses the %s\n", s->stage,
                          s->nmicro, names[i]);
    }
}

// As small as a model can be that has every kind of operation: what counts here are the queues.
static struct RankSettings minute_settings(int stage, size_t layers) {
    struct RankSettings s = settings_of(BF16, 2, stage);
    struct Error e;
    s.model = (struct ModelConfig){
        .layers = layers, .heads = 1, .channels = 8, .seq_len = 4, .vocab = 11, .dtype = BF16};
    s.batch = 1;
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    return s;
}

// Each must be missed in some setup: what one stage needs another may have for other reasons. At
// the end of a step the host waits for its results, which makes up for some of them.
static void fault_01_fault_02_every_wait_is_needed(void **state) {
    (void)state;
    static struct Names all;
    if (sim_is_real())
        skip();
    for (int stage = 0; stage < 4; stage++) {
        struct RankSettings s = minute_settings(stage, stage < 2 ? 2 : 4); // each bucket twice
        leave_each_out(&s, &all);
    }
    struct RankSettings s = minute_settings(0, 2);
    s.nmicro = 4; // each slot of the feed twice
    s.grad_dtype = F32;
    leave_each_out(&s, &all);
    size_t needed = 0;
    for (size_t i = 0; i < all.count; i++) {
        needed += all.needed[i];
        if (!all.needed[i])
            print_message("nowhere missed: the %s\n", all.name[i]);
    }
    print_message("%zu of %zu kinds were missed when left out; %zu were tried\n", needed, all.count,
                  all.tried);
    assert_true(all.count >= 20);
    assert_int_equal(needed, all.count);
}

int main(int argc, char **argv) {
    whole = argc > 1 && strcmp(argv[1], "--whole") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_the_cpus),
        cmocka_unit_test(tuned_runs_resume),
        cmocka_unit_test(stages_agree_bitwise),
        cmocka_unit_test(fault_04_overlap_changes_no_bit),
        cmocka_unit_test(fault_03_any_schedule),
        cmocka_unit_test(fault_01_fault_02_every_wait_is_needed),
    };
    return cmocka_run_group_tests_name("gpu_train", tests, NULL, NULL);
}
