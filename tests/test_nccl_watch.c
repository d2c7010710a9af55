// The watcher of collectives (zero/nccl_watch.c): a host that is so far ahead of its GPU that the
// ring of watched collectives is full goes on as soon as one of them has ended, not when the
// watcher happens to look.
#include "zero/nccl_watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
// cmocka.h wants the headers above it.
#include <cmocka.h>

enum { ROUNDS = 20 };

static void look(struct Comm *c, const struct CommCall *now) {
    (void)c;
    (void)now;
}
static void late(struct Comm *c, const struct CommCall *now) {
    fail_msg("after %g s: collective %d", c->timeout_s, (int)now->collective);
}

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
static void a_full_ring_has_room_at_once(void **state) {
    (void)state;
    struct Comm comm = {.size = 1, .timeout_s = 60};
    struct Watch watch = {.comm = &comm, .look = look, .late = late};
    struct Error e = {0};
    if (device_open_cuda(&comm.device, 0, &e))
        fail_msg("%s", e.text);
    watch_open(&watch);
    double seconds = 0;
    for (int i = 0; i < ROUNDS; i++) {
        seconds += overfill(&watch);
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    if (seconds > 0.8)
        fail_msg("%d rings of collectives that do nothing took %.2f s", ROUNDS, seconds);
    device_sync_queue(comm.device, QUEUE_COMM);
    watch_close(&watch);
    device_close(comm.device);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_full_ring_has_room_at_once)};
    return cmocka_run_group_tests_name("the watcher of collectives", tests, NULL, NULL) != 0;
}
