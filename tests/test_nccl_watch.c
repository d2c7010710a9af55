// The watcher of collectives (zero/nccl_watch.c): a host that is so far ahead of its GPU that the
// ring of watched collectives is full goes on as soon as one of them has ended, not when the
// watcher happens to look.
#include "zero/nccl_watch.h"

#include <setjmp.h>
#include <stdarg.h>
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

// The watcher's own pace is a look each tenth of a second: 2 seconds for so many rings.
static void a_full_ring_has_room_at_once(void **state) {
    (void)state;
    struct Comm comm = {.size = 1, .timeout_s = 60};
    struct Watch watch = {.comm = &comm, .look = look, .late = late};
    struct Error e = {0};
    if (device_open_cuda(&comm.device, 0, &e))
        fail_msg("%s", e.text);
    watch_open(&watch);
    double begin = base_seconds();
    for (int i = 0; i < ROUNDS * WATCHED; i++) {
        watch_begin(&watch, (struct CommCall){.collective = COMM_BARRIER});
        watch_end(&watch);
        assert_true(watch.begun - watch.ended <= WATCHED);
    }
    double seconds = base_seconds() - begin;
    if (seconds > 1)
        fail_msg("%d collectives that do nothing took %.2f s", ROUNDS * WATCHED, seconds);
    device_sync_queue(comm.device, QUEUE_COMM);
    watch_close(&watch);
    device_close(comm.device);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_full_ring_has_room_at_once)};
    return cmocka_run_group_tests_name("the watcher of collectives", tests, NULL, NULL) != 0;
}
