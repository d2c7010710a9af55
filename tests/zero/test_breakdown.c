// --breakdown: where a step's time goes. A queue that sleeps for a while, or a reader that does,
// makes compute wait: for the right reason, for that long, in that step, and for nothing else. On
// the CPU and in the simulator a step's parts never add up to more than its time, and each event
// that compute waits for has a reason.
#include "zero/state.h"
#include "kernels/trace.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"
#include "zero/rank/breakdown.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEPS = 5, SLOW = 3 }; // that step, from 1, has the sleep

static const double SLEEP_S = 0.12;

static void sleep_here(const void *args) {
    (void)args;
    struct timespec t = {0, (long)(SLEEP_S * 1e9)};
    nanosleep(&t, NULL);
}

enum Sleeper { NOBODY, DEVICE_QUEUE, HOST_QUEUE, READER };

struct Case {
    const char *name;
    int stage, ranks;
    enum TierKind opt_tier;
    enum Sleeper who;
    enum Queue queue;
    enum WaitReason reason;
    bool next; // it is the step after that which waits
};

struct Made {
    const struct Case *c;
    struct BreakdownTimes step[STEPS + 1]; // from 1
    struct BreakdownTimes sum;
    uint64_t told;
    double wall;
};

static void fall_asleep(struct Rank *r, const struct Case *c) {
    double begin = base_seconds();
    if (c->who == READER) {
        sleep_here(NULL);
        trace_host_waited(r->device, "tokens read", begin);
    } else if (c->who != NOBODY) {
        struct Device *d = c->who == HOST_QUEUE ? r->host : r->device;
        device_call(d, c->queue, sleep_here, NULL, 0);
    }
}

// Steps are told in their order, each once.
static void keep(struct Made *m, const struct Breakdown *b, uint64_t told) {
    if (!told)
        return;
    assert_int_equal(told, m->told + 1);
    m->told = told;
    m->step[told] = b->last;
}

static void make_steps(void *context, struct Rank *r) {
    struct Made *m = context;
    struct Breakdown b;
    breakdown_open(&b, &r->zero, r->trace, r->host_trace);
    bool first = r->shard_group->rank == 0;
    double begin = base_seconds();
    for (uint64_t i = 1; i <= STEPS; i++) {
        if (first && i == SLOW)
            fall_asleep(r, m->c);
        tiny_step(r);
        uint64_t told = breakdown_step(&b, i);
        if (first)
            keep(m, &b, told);
    }
    if (first)
        m->wall = base_seconds() - begin;
    uint64_t told = breakdown_end(&b);
    if (!first)
        return;
    keep(m, &b, told);
    m->sum = b.sum;
    assert_int_equal(m->told, STEPS);
}

static void make(const struct Case *c, struct Made *m) {
    struct RankSettings s = tiny_settings(F32);
    *m = (struct Made){.c = c};
    s.stage = c->stage;
    s.ranks = c->ranks;
    s.opt_tier = c->opt_tier;
    s.threads = 1;
    s.nmicro = 1;
    s.breakdown = true;
    s.device = device_count_cuda() ? DEVICE_CUDA : DEVICE_CPU;
    tiny_ranks(&s, make_steps, m);
}

// Of a step, or of all.
static void expect_sums(const struct BreakdownTimes *t) {
    struct LogValue v[BREAKDOWN_VALUES];
    double all = t->busy[QUEUE_COMPUTE], shares = 0;
    for (int i = 0; i < NWAITREASON; i++) {
        assert_true(t->wait[i] >= 0);
        all += t->wait[i];
    }
    assert_true(t->all > 0 && t->busy[QUEUE_COMPUTE] > 0);
    if (all > t->all * 1.001 + 1e-5)
        fail_msg("compute did %g s in %g s", all, t->all);
    for (int q = 0; q < NQUEUE; q++)
        assert_true(t->busy[q] <= t->all * 1.001 + 1e-5 && t->host_busy[q] <= t->all * 1.001);
    int n = breakdown_shares(t, true, v);
    assert_int_equal(n, NQUEUE + NQUEUE - 1 + NWAITREASON + 1);
    for (int i = 0; i < n; i++)
        if (!strcmp(v[i].name, "compute") || !strncmp(v[i].name, "wait_", 5) ||
            !strcmp(v[i].name, "idle"))
            shares += v[i].value;
    if (fabs(shares - 1) > 2e-3)
        fail_msg("compute's shares add up to %g", shares);
}

static void expect_all_sums(const struct Made *m) {
    double all = 0;
    for (int i = 1; i <= STEPS; i++) {
        expect_sums(&m->step[i]);
        all += m->step[i].all;
    }
    expect_sums(&m->sum);
    assert_true(fabs(all - m->sum.all) < 1e-9);
    if (all > m->wall * 1.01 + 1e-3 || all < m->wall * 0.9)
        fail_msg("steps of %g s in %g s", all, m->wall);
}

// NULL: waits of that reason in that step, and no others worth a word. On a machine that is busy
// with other things a queue may come late to its work.
static const char *unlike(const struct Made *m) {
    static char text[160];
    int slow = SLOW + m->c->next;
    double waited = m->step[slow].wait[m->c->reason];
    if (waited < 0.7 * SLEEP_S || waited > 1.5 * SLEEP_S) {
        snprintf(text, sizeof text, "%s: waited %g s of %g", m->c->name, waited, SLEEP_S);
        return text;
    }
    for (int i = 0; i < NWAITREASON; i++)
        for (int step = 2; step <= STEPS; step++) {
            waited = m->step[step].wait[i];
            if ((i == (int)m->c->reason && step == slow) || waited < 0.4 * SLEEP_S)
                continue;
            snprintf(text, sizeof text, "%s: step %d waited %g s for reason %d", m->c->name, step,
                     waited, i);
            return text;
        }
    return NULL;
}

static const struct Case cases[] = {
    {"a slow gather", 3, 2, TIER_DEVICE, DEVICE_QUEUE, QUEUE_COMM, WAIT_WEIGHTS, false},
    {"slow tokens", 0, 1, TIER_DEVICE, DEVICE_QUEUE, QUEUE_IN, WAIT_DATA, false},
    {"a slow reader", 0, 1, TIER_DEVICE, READER, QUEUE_IN, WAIT_DATA, false},
    {"a slow reduction", 0, 2, TIER_DEVICE, DEVICE_QUEUE, QUEUE_COMM, WAIT_GRADIENTS, false},
    {"a slow update", 0, 1, TIER_CPU, HOST_QUEUE, QUEUE_COMPUTE, WAIT_UPDATE, true},
};

TEST(compute_waits_for_the_right_reason) {
    // The simulator's queues take turns in one thread: all of them would sleep.
    bool all = !device_count_cuda();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (!all && cases[i].who != READER)
            continue;
        const char *wrong = "never tried";
        for (int again = 0; again < 4 && wrong; again++) {
            struct Made m;
            make(&cases[i], &m);
            expect_all_sums(&m);
            wrong = unlike(&m);
        }
        if (wrong)
            fail_msg("%s", wrong);
    }
}

TEST(a_queue_that_works_is_no_wait) {
    struct Case c = {"a slow kernel", 0, 1, TIER_DEVICE, DEVICE_QUEUE, QUEUE_COMPUTE, 0, false};
    struct Made m;
    if (device_count_cuda())
        skip();
    make(&c, &m);
    expect_all_sums(&m);
    assert_true(m.step[SLOW].busy[QUEUE_COMPUTE] > 0.9 * SLEEP_S);
    for (int i = 0; i < NWAITREASON; i++)
        assert_true(m.step[SLOW].wait[i] < 0.4 * SLEEP_S);
    assert_true(m.step[SLOW - 1].busy[QUEUE_COMPUTE] < 0.4 * SLEEP_S);
}

// Two ranks at stage 3, and an offloaded update, on whatever device there is.
TEST(parts_are_of_a_whole) {
    for (int offload = 0; offload < 2; offload++) {
        struct Case c = {.name = "steps", .stage = 3, .ranks = 2, .who = NOBODY};
        c.opt_tier = offload ? TIER_CPU : TIER_DEVICE;
        struct Made m;
        make(&c, &m);
        expect_all_sums(&m);
        assert_true(m.sum.busy[QUEUE_COMM] > 0 && m.sum.busy[QUEUE_IN] > 0);
        assert_true((m.sum.host_busy[QUEUE_COMPUTE] > 0) == offload);
        if (m.sum.wait[WAIT_OTHER] > 0)
            fail_msg("%g s for no reason", m.sum.wait[WAIT_OTHER]);
    }
}

// docs/events.md: of "from -> to" in its second column, what compute
// waits for; or any queue, where the host waits for a GPU's.
TEST(each_event_has_a_reason) {
    FILE *f = fopen("docs/events.md", "r");
    char line[2048];
    int events = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        char *arrow = strstr(line, "→"), *name = line + 2, *end = strstr(name, " | ");
        if (line[0] != '|' || !arrow || !end || strstr(line, "| event |") == line)
            continue;
        char *to = arrow + strlen("→"), *stop = strstr(to, " | ");
        assert_non_null(stop);
        *end = *stop = 0;
        if (!strstr(to, "compute"))
            continue;
        events++;
        if (breakdown_reason(name) == WAIT_OTHER)
            fail_msg("compute waits for '%s', for no reason", name);
    }
    fclose(f);
    print_message("%d events\n", events);
    assert_true(events >= 12);
    assert_int_equal(breakdown_reason("group gathered"), WAIT_WEIGHTS);
    assert_int_equal(breakdown_reason("group updated"), WAIT_UPDATE);
    assert_int_equal(breakdown_reason("layer arrived"), WAIT_ACTIVATIONS);
    assert_int_equal(breakdown_reason(NULL), WAIT_OTHER);
}

static int one_reason(const char *event) {
    return event != NULL;
}

// By hand: spans 0 to 10, 10 to 20 and so on, where the clock is ours.
TEST(time_is_shared_out_among_spans) {
    struct Tally *t = tally_open(one_reason);
    double zero = base_seconds() + 1; // the first span's begin is the clock's
    tally_cut(t, zero);
    tally_busy(t, QUEUE_COMPUTE, zero + 1, zero + 4);
    tally_busy(t, QUEUE_COMM, zero + 2, zero + 9);
    tally_host(t, "tokens", zero + 3, zero + 7); // 4 to 5 and 6 to 7 of it with nothing to do
    tally_wait(t, QUEUE_COMPUTE, NULL, zero + 5, zero + 6);
    tally_wait(t, QUEUE_COMM, NULL, zero + 9, zero + 10); // not compute's
    assert_int_equal(tally_cut(t, zero + 10), 1);
    tally_busy(t, QUEUE_COMPUTE, zero + 8, zero + 13); // lies in two
    tally_host(t, "tokens", zero + 14, zero + 15);
    assert_int_equal(tally_cut(t, zero + 20), 2);
    assert_int_equal(tally_cut(t, zero + 30), 3);
    tally_wait(t, QUEUE_COMPUTE, "x", zero + 18, zero + 31); // in three
    struct TallySpan a = tally_span(t, 1), b = tally_span(t, 2), c = tally_span(t, 3);
    assert_true(fabs(a.begin - zero) < 1e-6 && fabs(a.end - zero - 10) < 1e-6);
    assert_true(fabs(a.busy[QUEUE_COMPUTE] - 5) < 1e-6 && fabs(a.busy[QUEUE_COMM] - 7) < 1e-6);
    assert_true(fabs(a.wait[0] - 1) < 1e-6 && fabs(a.wait[1] - 2) < 1e-6);
    assert_true(fabs(b.busy[QUEUE_COMPUTE] - 3) < 1e-6 && fabs(b.wait[1] - 1 - 2) < 1e-6);
    assert_true(b.wait[0] == 0 && c.busy[QUEUE_COMPUTE] == 0);
    tally_wait(t, QUEUE_COMPUTE, NULL, zero + 31, zero + 32);
    c = tally_span(t, 3);
    assert_true(fabs(c.wait[1] - 10) < 1e-6 && c.wait[0] == 0);
    assert_true(fabs(tally_span(t, 4).wait[1] - 1) < 1e-6);
    tally_close(t);
}
