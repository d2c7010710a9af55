// The four queues of the CPU device: what orders them, and what happens when something does not.
//
// A run must give the same bits however slow a queue is: each queue is slowed down in turn, by
// random delays before its operations. That alone would not prove that the events are needed, so
// the second half takes each wait of a training step away, one at a time, with the queue that it
// waits for slowed down: the result must then differ. A wait that could go without a trace is one
// that nothing needs, or that no test sees.
//
// Faults 1 to 4 of real trainers (reductions on the wrong stream, buffers used again too early,
// races of double buffers, runs that differ when they overlap) are of this kind.
#include "zero/state.h"
#include "tests/lib/outcome.h"
#include "tests/lib/test.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 5 }; // each is queued before the result of the last is taken

// Microseconds before each operation of a slow queue: longer than what another queue has to do
// until it needs this one. Compute has a hundred times the operations of the others.
static const unsigned delays_us[NQUEUE] = {2000, 20000, 100000, 100000};

static const char *const queue_names[NQUEUE] = {"compute", "comm", "in", "out"};

// ---- a device that forgets one wait ----

enum { HOST = NQUEUE, NWAITER, MAX_EVENTS = 64 };

// What the intercepted operations need to know. They are those of rank 0, whose host is one thread,
// so there is one of these at a time. A wait is known by who waits (a queue, or the host) and by
// the event, numbered in the order of first records.
static struct {
    const struct DeviceOps *real;
    struct Device *device;
    struct Event *event[MAX_EVENTS];
    enum Queue recorder[MAX_EVENTS];
    int nevent;
    const char *event_name[MAX_EVENTS]; // docs/events.md
    char name[MAX_EVENTS][48];          // and which group's, slot's or bucket's
    bool seen[NWAITER][MAX_EVENTS];
    bool dropping;
    int drop_waiter, drop_event;
    int dropped;
} spy;

static int queue_of(const struct Stream *s) {
    for (int q = 0; q < NQUEUE; q++)
        if (spy.device->queue[q] == s)
            return q;
    fail_msg("a stream of no queue");
    return HOST;
}

static int number_of(const struct Event *event) {
    int i = 0;
    while (i < spy.nevent && spy.event[i] != event)
        i++;
    return i;
}

// Notes that `waiter` waits for `event`, and tells whether the wait is to be forgotten.
static bool forget(int waiter, const struct Event *event) {
    int i = number_of(event);
    if (i == spy.nevent)
        return false; // never recorded: the wait is empty
    spy.seen[waiter][i] = true;
    bool drop = spy.dropping && spy.drop_waiter == waiter && spy.drop_event == i;
    spy.dropped += drop;
    return drop;
}

static void spy_record(struct Stream *s, struct Event *event) {
    int i = number_of(event);
    assert_true(i < MAX_EVENTS);
    spy.nevent = i == spy.nevent ? i + 1 : spy.nevent;
    spy.event[i] = event;
    spy.recorder[i] = (enum Queue)queue_of(s);
    spy.real->record(s, event);
}

static void spy_wait(struct Stream *s, struct Event *event) {
    if (!forget(queue_of(s), event))
        spy.real->wait(s, event);
}

static void spy_sync_event(struct Event *event) {
    if (!forget(HOST, event))
        spy.real->sync_event(event);
}

static void spy_on(struct Device *d, struct DeviceOps *ops) {
    spy.real = d->ops;
    spy.device = d;
    spy.nevent = 0;
    *ops = *d->ops;
    ops->record = spy_record;
    ops->wait = spy_wait;
    ops->sync_event = spy_sync_event;
    d->ops = ops;
}

static void number_event(const struct Mark *m, int i) {
    int number = number_of(m->event[0]);
    if (number < spy.nevent)
        snprintf(spy.name[number], sizeof spy.name[number], "%s %d", spy.event_name[number], i);
}

static void name_events(const struct Zero *z) {
    for (int i = 0; i < spy.nevent; i++) {
        spy.event_name[i] = device_event_name(z->device, spy.event[i]);
        assert_non_null(spy.event_name[i]);
        snprintf(spy.name[i], sizeof spy.name[i], "%s", spy.event_name[i]);
    }
    for (int g = 0; g < z->params->ngroup; g++) {
        number_event(&z->state[g].updated, g);
        number_event(&z->state[g].gathered, g);
    }
    const struct Slots *weights = &z->weights[RING_UNITS], *buckets = &z->buckets[RING_UNITS];
    for (int i = 0; i < weights->count; i++) {
        number_event(&weights->slot[i].arrived, i);
        number_event(&weights->slot[i].drained, i);
    }
    for (int i = 0; i < buckets->count; i++)
        number_event(&buckets->slot[i].drained, i);
}

// ---- runs ----

struct Made {
    struct Outcome out;
    bool stop[STEPS]; // the ranks' words
};

struct Disturbance {
    enum Queue slow;
    bool slowed;
    uint64_t seed;
    struct Made *made;
};

static void run_disturbed(void *context, struct Rank *r) {
    const struct Disturbance *d = context;
    struct DeviceOps ops;
    struct Made made = {.out.steps = STEPS};
    bool spied = r->shard_group->rank == 0;
    for (int i = 0; i < (int)r->feed.slots; i++) // poison is no token, and would end the process
        device_zero(r->device, QUEUE_COMPUTE, r->feed.slot[i].block.mem,
                    r->feed.slot[i].block.bytes);
    device_sync_queue(r->device, QUEUE_COMPUTE);
    if (spied && d->slowed)
        device_set_delay(r->device, d->slow, (struct QueueDelay){delays_us[d->slow], d->seed});
    if (spied)
        spy_on(r->device, &ops);
    atomic_uint wish;
    r->requests = &wish;
    for (int i = 0; i < STEPS + STEPS_AHEAD; i++) {
        wish = spied && i % 2 == 0 ? REQUEST_STOP
                                   : 0; // a word that comes late is the one of the step before
        if (i < STEPS)
            tiny_queue_step(r);
        if (i < STEPS_AHEAD)
            continue;
        struct TinyStep step = tiny_take_step(r);
        outcome_keep(&made.out, r, i - STEPS_AHEAD, step);
        made.stop[i - STEPS_AHEAD] = step.stop;
    }
    for (int q = 0; q < NQUEUE; q++)
        device_sync_queue(r->device, (enum Queue)q);
    if (spied) {
        r->device->ops = spy.real; // the hash is no part of a step
        name_events(&r->zero);
    }
    made.out.hash = zero_weights_hash(&r->zero);
    if (spied)
        *d->made = made;
}

struct Setup {
    int stage, ranks;
};

// Two micro-batches a step: with one, the result of a step tells the host that a slot of the feed
// is free, and with three, a slot that is free tells a queue that the last step has ended. So many
// blocks that each bucket or slot they share is used again in one pass. At stage 3 two units are
// fetched ahead: with one, a gather queued behind a reduction stands in for its wait.
static struct Made run(struct Setup setup, enum Queue slow, bool slowed, uint64_t seed) {
    struct Made made;
    struct Disturbance d = {slow, slowed, seed, &made};
    struct RankSettings s = tiny_settings(F32);
    s.nmicro = 2;
    s.model.layers = setup.stage == 3 ? 6 : setup.stage == 2 ? 4 : 2;
    s.prefetch = 2;
    s.stage = setup.stage;
    s.ranks = setup.ranks;
    s.threads = 1;
    tiny_ranks(&s, run_disturbed, &d);
    return made;
}

static bool same(const struct Made *a, const struct Made *b) {
    return outcome_is_same(&a->out, &b->out) && memcmp(a->stop, b->stop, sizeof a->stop) == 0;
}

static const struct Setup setups[] = {{0, 1}, {0, 2}, {1, 2}, {2, 2}, {3, 2}};
enum { NSETUP = sizeof setups / sizeof setups[0], PARTS = 8, LEAST_WAITS = 8 };

// Calls work(0) .. work(n - 1), each in a process of its own, whose exit status it returns. The
// time goes into sleeping queues, so all run side by side.
static void in_processes(int n, int (*work)(int)) {
    pid_t child[NSETUP * PARTS];
    int failed = 0;
    assert_true(n <= NSETUP * PARTS);
    fflush(NULL);
    for (int i = 0; i < n; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i] == 0)
            _exit(work(i));
    }
    for (int i = 0; i < n; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        failed += status != 0;
        if (status && !(WIFEXITED(status) && WEXITSTATUS(status) == 1))
            fprintf(stderr, "process %d of %d ended with %#x\n", i, n, (unsigned)status);
    }
    assert_int_equal(failed, 0);
}

static int slow_queue(int i) {
    int setup = i / NQUEUE, q = i % NQUEUE, differ = 0;
    struct Made reference = run(setups[setup], QUEUE_COMPUTE, false, 0);
    for (uint64_t seed = 1; seed <= (setup ? 1 : 2); seed++) {
        struct Made slowed = run(setups[setup], (enum Queue)q, true, seed);
        if (same(&reference, &slowed))
            continue;
        differ++;
        fprintf(stderr,
                "stage %d, %d ranks: with queue %s slowed down (seed %d), the run differs\n",
                setups[setup].stage, setups[setup].ranks, queue_names[q], (int)seed);
    }
    return differ > 0;
}

TEST(slow_queues_change_no_bit) {
    in_processes(NSETUP * NQUEUE, slow_queue);
}

// Events left out by test_queues:
static const char *const shown[] = {
    "word sent",      "backward done",  "reported",       "clipped",         "settings used",
    "received all",   "group updated",  "group gathered", "weights arrived", "weights drained",
    "bucket drained", "tokens arrived", "tokens drained",
};
enum { NSHOWN = sizeof shown / sizeof shown[0] };

// Which of them some process has left out, in memory that all share; the last: one of another name.
static bool *were_shown;

static void note_shown(int event) {
    int i = 0;
    while (i < NSHOWN && strcmp(shown[i], spy.event_name[event]) != 0)
        i++;
    if (i == NSHOWN)
        fprintf(stderr, "not in this test's list: %s\n", spy.event_name[event]);
    were_shown[i] = true;
}

static bool is_needed(struct Setup setup, const struct Made *reference, int waiter, int event) {
    spy.dropping = true;
    spy.drop_waiter = waiter;
    spy.drop_event = event;
    spy.dropped = 0;
    enum Queue recorder = spy.recorder[event];
    struct Made without = run(setup, recorder, true, 7);
    spy.dropping = false;
    bool needed = spy.dropped > 0 && !same(reference, &without);
    if (needed)
        note_shown(event);
    if (!needed)
        fprintf(stderr, "stage %d, %d ranks: %s without its %d waits for %s (%s): the same run\n",
                setup.stage, setup.ranks, waiter == HOST ? "the host" : queue_names[waiter],
                spy.dropped, queue_names[recorder], spy.name[event]);
    return needed;
}

// Waits of stage 3 that no result can show, though the lines are needed elsewhere. The head's
// weights are gathered behind the reduction of the bucket that it writes, so the wait for the one
// includes the other; slot 0 is only ever gathered again with the bytes that it has; and between
// steps the host has waited for all updates.
static bool is_implied(struct Setup setup, int event) {
    const char *name = spy.name[event];
    return setup.stage == 3 &&
           (!strcmp(name, "bucket drained 0") || !strcmp(name, "weights drained 0") ||
            !strcmp(spy.event_name[event], "group updated"));
}

static void expect_shown(void) {
    int faults = were_shown[NSHOWN];
    for (int i = 0; i < NSHOWN; i++) {
        if (!were_shown[i])
            fprintf(stderr, "in no setup left out: %s\n", shown[i]);
        faults += !were_shown[i];
    }
    assert_int_equal(faults, 0);
}

// Every PARTS-th wait of a setup, from the part-th on.
static int check_waits(int number) {
    struct Setup setup = setups[number / PARTS];
    int part = number % PARTS;
    memset(spy.seen, 0, sizeof spy.seen);
    struct Made reference = run(setup, QUEUE_COMPUTE, false, 0);
    bool seen[NWAITER][MAX_EVENTS];
    memcpy(seen, spy.seen, sizeof seen);
    int count = 0, missing = 0;
    for (int w = 0; w < NWAITER; w++)
        for (int i = 0; i < MAX_EVENTS; i++)
            if (seen[w][i] && !is_implied(setup, i) && count++ % PARTS == part)
                missing += !is_needed(setup, &reference, w, i);
    if (part == 0)
        fprintf(stderr, "stage %d, %d ranks: %d waits\n", setup.stage, setup.ranks, count);
    return missing > 0 || count < LEAST_WAITS;
}

TEST(fault_01_to_04_each_wait_is_needed) {
    if (tests_under_thread_sanitizer()) // which would end the process at the first race
        skip();
    were_shown = mmap(NULL, NSHOWN + 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(were_shown != MAP_FAILED);
    in_processes(NSETUP * PARTS, check_waits);
    expect_shown();
    munmap(were_shown, NSHOWN + 1);
}

// ---- the queue itself ----

TEST(events_behave_as_documented) {
    struct Device *d;
    struct Error e;
    assert_int_equal(device_open_cpu(&d, 1, NULL, &e), 0);
    struct Event *event = d->ops->event_open(d);
    device_sync_event(d, event);          // never recorded: nothing to wait for
    device_wait(d, QUEUE_COMPUTE, event); // likewise
    enum { N = 1 << 20 };
    char *a = base_alloc(N), *b = base_alloc_zeroed(N);
    memset(a, 5, N);
    device_set_delay(d, QUEUE_IN, (struct QueueDelay){20000, 3});
    device_copy(d, QUEUE_IN, b, a, N);
    device_record(d, QUEUE_IN, event);
    device_wait(d, QUEUE_OUT, event);
    device_copy(d, QUEUE_OUT, a, b, 1); // reads what the slow queue wrote
    device_sync_queue(d, QUEUE_OUT);
    assert_int_equal(b[N - 1], 5);
    for (int i = 0; i < 5000; i++) // more than the ring holds
        device_zero(d, QUEUE_COMPUTE, b, 16);
    device_sync_queue(d, QUEUE_COMPUTE);
    assert_int_equal(b[0], 0);
    d->ops->event_close(event);
    device_close(d);
    free(a);
    free(b);
}

TEST(fresh_memory_is_poisoned) {
    struct Device *d;
    struct Error e;
    assert_int_equal(device_open_cpu(&d, 1, NULL, &e), 0);
    float *x = d->ops->alloc(d, 4096);
    for (int i = 0; i < 1024; i++)
        assert_true(isnan(x[i]));
    d->ops->free(d, x, 4096);
    device_close(d);
}
