// The watcher of collectives (zero/comm/nccl_watch.c): a host that is so far ahead of its GPU that
// the ring of watched collectives is full goes on as soon as one of them has ended, not when the
// watcher happens to look; in whatever order the queues run. And when a collective counts as late:
// not while it waits for its turn, nor while others end before it.
#include "zero/comm/nccl_watch.h"

#include "tests/lib/cusim_help.h"
#include "tests/lib/test.h"

#include <time.h>

enum { ROUNDS = 20, CHAIN = 6 };

// A GPU has one schedule, its own.
static int rounds(void) {
    return sim_is_real() ? 1 : NSCHEDULES;
}

struct Fixture {
    struct Comm comm;
    struct Watch watch;
    _Atomic int lates;
    _Atomic uint64_t late_one; // its sequence number
};

static void look(struct Comm *c, const struct CommCall *now) {
    (void)c;
    (void)now;
}
static void late(struct Comm *c, const struct CommCall *now) {
    struct Fixture *w = (struct Fixture *)c;
    w->lates++;
    w->late_one = now->sequence;
}

static void watched_open(struct Fixture *w, double timeout_s) {
    struct Error e = {0};
    *w = (struct Fixture){.comm = {.queue = QUEUE_COMM, .size = 1, .timeout_s = timeout_s}};
    w->watch = (struct Watch){.comm = &w->comm, .check = look, .report_late = late};
    if (device_open_cuda(&w->comm.device, 0, &e))
        fail_msg("%s", e.text);
    watch_open(&w->watch);
}

static void watched_close(struct Fixture *w) {
    device_sync_queue(w->comm.device, QUEUE_COMM);
    watch_close(&w->watch);
    device_close(w->comm.device);
}

// ---- a full ring ----

// One more collective than the ring holds. Returns how long that took.
static double overfill(struct Watch *watch) {
    double begin = base_seconds();
    for (int i = 0; i <= WATCHED; i++) {
        watch_begin(watch, (struct CommCall){.collective = COMM_BARRIER});
        watch_end(watch);
        assert_true(watch->begun - watch->ended <= WATCHED);
    }
    return base_seconds() - begin;
}

// The watcher's own pace is a look each tenth of a second, and the host's pauses let it fall back
// into that: without a word to it these rounds take nearly 2 seconds.
TEST(a_full_ring_has_room_at_once) {
    struct Fixture w;
    watched_open(&w, 60);
    double seconds = 0;
    for (int i = 0; i < ROUNDS; i++) {
        seconds += overfill(&w.watch);
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    if (seconds > 0.8)
        fail_msg("%d rings of collectives that do nothing took %.2f s", ROUNDS, seconds);
    assert_int_equal(w.lates, 0);
    watched_close(&w);
}

// The comm queue may be the last to run, or run only when somebody waits.
TEST(a_full_ring_has_room_in_any_schedule) {
    for (int i = 0; i < rounds(); i++) {
        struct Fixture w;
        use_schedule(i);
        watched_open(&w, 60);
        overfill(&w.watch);
        device_sync_queue(w.comm.device, QUEUE_COMM);
        assert_true(w.watch.begun == WATCHED + 1);
        assert_int_equal(w.lates, 0);
        watched_close(&w);
    }
    use_schedule(0);
}

// ---- what is late ----

static void sleep_here(const void *seconds) {
    double s = *(const double *)seconds;
    nanosleep(&(struct timespec){(time_t)s, (long)((s - (double)(time_t)s) * 1e9)}, NULL);
}

static void queue_sleep(struct Fixture *w, double seconds) {
    device_call(w->comm.device, QUEUE_COMM, sleep_here, &seconds, sizeof seconds);
}

static void queue_collective(struct Fixture *w, uint64_t sequence, double seconds) {
    watch_begin(&w->watch, (struct CommCall){.sequence = sequence, .collective = COMM_BARRIER});
    queue_sleep(w, seconds);
    watch_end(&w->watch);
}

TEST(a_collective_that_does_not_end_is_late) {
    for (int i = 0; i < rounds(); i++) {
        struct Fixture w;
        use_schedule(i);
        watched_open(&w, 0.5);
        queue_collective(&w, 7, 0);
        queue_collective(&w, 8, 1.5);
        queue_collective(&w, 9, 0);
        device_sync_queue(w.comm.device, QUEUE_COMM);
        if (!w.lates || w.late_one != 8)
            fail_msg("schedule %d: %d times late, last %d", i, w.lates, (int)w.late_one);
        watched_close(&w);
    }
    use_schedule(0);
}

// Its queue is busy for long, then collectives end one by one, all together for long.
TEST(what_goes_on_is_not_late) {
    for (int i = 0; i < rounds(); i++) {
        struct Fixture w;
        use_schedule(i);
        watched_open(&w, 0.8);
        queue_sleep(&w, 1.5);
        for (uint64_t c = 0; c < CHAIN; c++)
            queue_collective(&w, c, 0.3);
        device_sync_queue(w.comm.device, QUEUE_COMM);
        if (w.lates)
            fail_msg("schedule %d: %d times late, last %d", i, w.lates, (int)w.late_one);
        watched_close(&w);
    }
    use_schedule(0);
}

// ---- what the watcher cannot do without ----

// Events left out by test_nccl_watch:
static const char *const events[] = {"collective begun", "collective ended"};

// One of them, which the device forgets to record; NULL: none.
static struct {
    const struct DeviceOps *ops; // the device's own
    struct Device *device;
    const char *name;
} without;

static void record_others(struct Stream *s, struct Event *event) {
    const char *name = device_event_name(without.device, event);
    if (!without.name || !name || strcmp(name, without.name) != 0)
        without.ops->record(s, event);
}

// How often a collective counts as late behind work of `before_s` seconds that lasts `seconds`.
static int count_late(const char *name, double before_s, double seconds) {
    struct Fixture w;
    watched_open(&w, 0.5);
    without.ops = w.comm.device->ops;
    without.device = w.comm.device;
    without.name = name;
    struct DeviceOps ops = *without.ops;
    ops.record = record_others;
    w.comm.device->ops = &ops;
    queue_sleep(&w, before_s);
    queue_collective(&w, 1, seconds);
    device_sync_queue(w.comm.device, QUEUE_COMM);
    int lates = w.lates;
    w.comm.device->ops = without.ops;
    watched_close(&w);
    return lates;
}

TEST(each_of_its_events_is_needed) {
    use_schedule(0);
    assert_true(count_late(NULL, 1.5, 0) == 0 && count_late(NULL, 0, 1.5) > 0);
    assert_true(count_late(events[0], 1.5, 0) > 0);
    assert_true(count_late(events[1], 0, 1.5) == 0);
}
