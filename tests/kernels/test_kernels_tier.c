// A kernel that is handed memory of another tier is named, and the block that it lies in; on every
// device. What may use such memory, copies and the host's updates, goes on; and
// no run that offloads, whatever and at whichever stage, makes the slip.
//
// The check itself is in this file, so that this test has it in every build: the library then finds
// it here, and leaves out its own (kernels/tier_check.h).
#include "kernels/tier_check.c"

#include "kernels/tier.h"
#include "tests/lib/child.h"
#include "tests/lib/outcome.h"
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

enum { N = 256 };

// A device with something in two of its tiers.
struct Places {
    struct Rig rig;
    struct Device *device;
    struct Tier tier[NTIER];
    struct Block near, far;
};

static void places_open(struct Places *p, int table) {
    struct Error e;
    *p = (struct Places){0};
    CHECK(rig_open_devices(&p->rig) == 0, "no devices");
    p->device = p->rig.device[table][0];
    for (enum TierKind kind = TIER_DEVICE; kind <= TIER_CPU; kind++) {
        tier_init(&p->tier[kind], kind, p->device, SIZE_MAX);
        CHECK(!tier_alloc(&p->tier[kind], TAG_PARAM, "some weights", N * sizeof(float),
                          kind == TIER_DEVICE ? &p->near : &p->far, &e),
              "%s", e.text);
    }
    device_copy(p->device, QUEUE_IN, p->near.mem, memset(p->far.mem, 0, p->far.bytes),
                p->far.bytes);
    device_sync_queue(p->device, QUEUE_IN);
}

static void cast(const struct Places *p, void *dst, const void *src) {
    struct Cast a = {.n = N / 2, .dst_dtype = F32, .src_dtype = F32, .dst = dst, .src = src};
    p->device->kernels->cast(p->device->queue[QUEUE_COMPUTE], &a);
    device_sync_queue(p->device, QUEUE_COMPUTE);
}

static float *upper_half(const struct Block *b) {
    return (float *)b->mem + N / 2;
}

static void reads_far(const void *table) {
    struct Places p;
    places_open(&p, *(const int *)table);
    cast(&p, p.near.mem, upper_half(&p.far));
}

static void writes_far(const void *table) {
    struct Places p;
    places_open(&p, *(const int *)table);
    cast(&p, p.far.mem, p.near.mem);
}

static void stays_near(const void *table) {
    struct Places p;
    places_open(&p, *(const int *)table);
    cast(&p, upper_half(&p.near), p.near.mem);
    tier_check_launch(p.device, "cast",
                      &(struct Cast){.n = 1, .src = (char *)p.far.mem + p.far.bytes});
    struct Device *host;
    struct Error e;
    CHECK(!device_open_cpu(&host, 1, NULL, &e), "%s", e.text);
    struct Places at_host = {.device = host};
    cast(&at_host, upper_half(&p.far), p.far.mem);
    device_close(host);
    const void *was = p.far.mem;
    tier_free(&p.far);
    tier_check_launch(p.device, "cast", &(struct Cast){.n = 1, .src = was});
}

// Ends with the number of tables as status: in a process of its own, since none can be forked from
// one that has opened a GPU.
static void count_tables(const void *unused) {
    (void)unused;
    struct Rig rig = {0};
    assert_int_equal(rig_open_devices(&rig), 0);
    int n = rig.ntable;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 2; j++)
            if (j == 0 || rig.device[i][1] != rig.device[i][0])
                device_close(rig.device[i][j]);
    exit(n);
}

static int tables(void) {
    int status;
    free(child_said(count_tables, NULL, &status));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) > 0);
    return WEXITSTATUS(status);
}

static void expect(void (*body)(const void *), int table, const char *line) {
    int status;
    char *said = child_said(body, &table, &status);
    bool ended = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (ended != (line != NULL) || (line && !strstr(said, line)))
        fail_msg("table %d: status %d, expected %s: %s", table, status, line ? line : "no end",
                 said);
    free(said);
}

TEST(memory_of_another_tier_is_named) {
    for (int i = 0, n = tables(); i < n; i++) {
        expect(reads_far, i, "reads tier cpu (some weights, byte 512 of 1024)");
        expect(writes_far, i, "writes tier cpu (some weights, byte 0 of 1024)");
        expect(writes_far, i, "kernel cast of device c"); // cpu or cuda
        expect(stays_near, i, NULL);
    }
}

TEST(runs_that_offload_keep_tiers_apart) {
    for (int stage = 0; stage < 4; stage++)
        for (int where = 1; where < 8; where++) {
            struct RankSettings s = tiny_settings(where % 3 ? BF16 : F32);
            s.stage = stage;
            s.ranks = 1 + stage % 2;
            s.threads = 1;
            s.timeout_s = 60;
            s.opt_tier = where & 1 ? TIER_CPU : TIER_DEVICE;
            s.param_tier = where & 2 ? TIER_CPU : TIER_DEVICE;
            s.act_tier = where & 4 ? TIER_CPU : TIER_DEVICE;
            s.delayed = stage == 2 && s.opt_tier == TIER_CPU;
            s.model.layers = 4;
            outcome_of(&s, 3, 1);
        }
}
