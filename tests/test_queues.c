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
#include "tests/tiny.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h wants the headers above it.
#include <cmocka.h>

enum { STEPS = 3 };

// Microseconds before each operation of a slow queue: longer than what another queue has to do
// until it needs this one. Compute has a hundred times the operations of the others.
static const unsigned delays_us[NQUEUE] = {2000, 20000, 100000, 20000};

static const char *const queue_names[NQUEUE] = {"compute", "comm", "in", "out"};

// ---- a device that forgets one wait ----

enum { HOST = NQUEUE, NWAITER, MAX_EVENTS = 16 };

// What the intercepted operations need to know. A test is one thread, so one of these at a time. A
// wait is known by who waits (a queue, or the host) and by the event, numbered in the order of
// first records.
static struct {
    const struct DeviceOps *real;
    struct Device *device;
    struct Event *event[MAX_EVENTS];
    enum Queue recorder[MAX_EVENTS];
    int nevent;
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

// ---- runs ----

struct Outcome {
    uint64_t hash;
    double loss[STEPS];
    float norm[STEPS];
};

// Four micro-batches a step, so that the feed's two slots are used again while a step is under way.
static struct Outcome run(enum Queue slow, bool slowed, uint64_t seed) {
    struct RankSettings s = tiny_settings(F32);
    struct Rank r;
    struct DeviceOps ops;
    struct Outcome out = {0};
    s.nmicro = 4;
    tiny_open(&r, &s, 1);
    for (int i = 0; i < FEED_SLOTS; i++) // poison is no token, and would end the process
        device_zero(r.device, QUEUE_COMPUTE, r.feed.slot[i].block.mem, r.feed.slot[i].block.bytes);
    device_sync_queue(r.device, QUEUE_COMPUTE);
    if (slowed)
        device_set_delay(r.device, slow, (struct QueueDelay){delays_us[slow], seed});
    spy_on(r.device, &ops);
    for (int i = 0; i < STEPS; i++) {
        struct TinyStep step = tiny_step(&r);
        out.loss[i] = step.loss;
        out.norm[i] = step.grad_norm;
    }
    for (int q = 0; q < NQUEUE; q++)
        device_sync_queue(r.device, (enum Queue)q);
    r.device->ops = spy.real; // the hash is no part of a step
    out.hash = zero_weights_hash(&r.zero);
    rank_close(&r);
    return out;
}

static bool same(const struct Outcome *a, const struct Outcome *b) {
    bool equal = a->hash == b->hash;
    for (int i = 0; i < STEPS; i++) // compared as values: a NaN differs from everything
        equal = equal && a->loss[i] == b->loss[i] && a->norm[i] == b->norm[i];
    return equal;
}

static void slow_queues_change_no_bit(void **state) {
    (void)state;
    struct Outcome reference = run(QUEUE_COMPUTE, false, 0);
    for (int q = 0; q < NQUEUE; q++)
        for (uint64_t seed = 1; seed <= 2; seed++) {
            struct Outcome slowed = run((enum Queue)q, true, seed);
            if (!same(&reference, &slowed))
                fail_msg("with queue %s slowed down (seed %d), the run differs", queue_names[q],
                         (int)seed);
        }
}

static void check_needed(const struct Outcome *reference, int waiter, int event) {
    spy.dropping = true;
    spy.drop_waiter = waiter;
    spy.drop_event = event;
    spy.dropped = 0;
    enum Queue recorder = spy.recorder[event];
    struct Outcome without = run(recorder, true, 7);
    spy.dropping = false;
    assert_true(spy.dropped > 0);
    if (same(reference, &without))
        fail_msg("%s without its %d waits for event %d of %s gives the same run",
                 waiter == HOST ? "the host" : queue_names[waiter], spy.dropped, event,
                 queue_names[recorder]);
}

static void fault_01_to_04_each_wait_is_needed(void **state) {
    (void)state;
    memset(spy.seen, 0, sizeof spy.seen);
    struct Outcome reference = run(QUEUE_COMPUTE, false, 0);
    bool seen[NWAITER][MAX_EVENTS];
    memcpy(seen, spy.seen, sizeof seen);
    int checked = 0;
    for (int w = 0; w < NWAITER; w++)
        for (int i = 0; i < MAX_EVENTS; i++)
            if (seen[w][i]) {
                check_needed(&reference, w, i);
                checked++;
            }
    print_message("%d waits, each needed\n", checked);
    assert_true(checked >= 8);
}

// ---- the queue itself ----

static void events_behave_as_documented(void **state) {
    (void)state;
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

static void fresh_memory_is_poisoned(void **state) {
    (void)state;
    struct Device *d;
    struct Error e;
    assert_int_equal(device_open_cpu(&d, 1, NULL, &e), 0);
    float *x = d->ops->alloc(d, 4096);
    for (int i = 0; i < 1024; i++)
        assert_true(isnan(x[i]));
    d->ops->free(d, x, 4096);
    device_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_behave_as_documented),
        cmocka_unit_test(fresh_memory_is_poisoned),
        cmocka_unit_test(slow_queues_change_no_bit),
    };
    const struct CMUnitTest races_on_purpose[] = {
        cmocka_unit_test(fault_01_to_04_each_wait_is_needed),
    };
    int failed = cmocka_run_group_tests_name("queues", tests, NULL, NULL);
    if (!tests_under_thread_sanitizer()) // which would end the process at the first
        failed += cmocka_run_group_tests_name("dropped waits", races_on_purpose, NULL, NULL);
    return failed;
}
