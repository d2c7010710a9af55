// The file of --trace-zero is exact: its blocks are the accounts, lives of the same bytes never
// overlap, its bytes are those that the rank counted, and every use of bytes is ordered with every
// write of them by the waits that the queues really made. So a wait that is left out is found
// there, without any delay and whatever the numbers become.
#include "tests/lib/child.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"
#include "tests/lib/zero_trace.h"
#include "zero/state.h"

#include <cjson/cJSON.h>

enum { STEPS = 4 };

struct Traced {
    const char *path;
    const char *left_out; // an event for which rank 0's queues do not wait in the last step
};

// ---- a device that forgets waits ----

static struct {
    const struct DeviceOps *real;
    struct Rank *rank;
    const char *event;
    int dropped;
} spy;

static void spy_wait(struct Stream *s, struct Event *event) {
    const char *name = device_event_name(spy.rank->device, event);
    if (!name && spy.rank->host)
        name = device_event_name(spy.rank->host, event);
    if (name && strcmp(name, spy.event) == 0)
        spy.dropped++;
    else
        spy.real->wait(s, event);
}

static void forget(struct Rank *r, const char *event, struct DeviceOps *ops) {
    spy.real = r->device->ops;
    spy.rank = r;
    spy.event = event;
    spy.dropped = 0;
    *ops = *r->device->ops;
    ops->wait = spy_wait;
    r->device->ops = ops; // marks compare them, so both have the same
    if (r->host)
        r->host->ops = ops;
}

// ---- runs ----

static void train(void *context, struct Rank *r) {
    const struct Traced *t = context;
    struct DeviceOps ops;
    struct Error e;
    for (int i = 0; i + 1 < STEPS; i++)
        tiny_step(r);
    if (r->all->rank == 0)
        forget(r, t->left_out, &ops);
    tiny_step(r);
    if (r->all->rank == 0) {
        r->device->ops = spy.real;
        if (r->host)
            r->host->ops = spy.real;
    }
    CHECK(!rank_write_trace_zero(r, "tiny", t->path, &e), "%s", e.text);
}

static struct RankSettings settings_of(int stage, int ranks, size_t nmicro) {
    struct RankSettings s = tiny_settings(BF16);
    s.threads = 1;
    s.model.layers = 4;
    s.stage = stage;
    s.ranks = ranks;
    s.nmicro = nmicro;
    s.traced = s.traced_zero = true;
    s.nvme.folder = disk_folder;
    return s;
}

struct Validated {
    char *path;
    struct ZeroTraceOf of;
};

static void check(const struct RankSettings *s) {
    zero_trace_check_run(s, disk_folder);
}

TEST(every_stage_and_placement) {
    for (int stage = 0; stage < 4; stage++)
        for (enum TierKind tier = TIER_DEVICE; tier < NTIER; tier++) {
            struct RankSettings s = settings_of(stage, 2, 1 + (size_t)stage % 2);
            s.opt_tier = s.param_tier = tier;
            s.act_tier = tier;
            check(&s);
        }
}

TEST(state_in_several_tiers) {
    for (int i = 0; i < 6; i++) {
        struct RankSettings s = settings_of(i % 4, 1 + i % 2, 2);
        s.opt_tier = i < 4 ? TIER_CPU : TIER_DEVICE;
        s.param_tier = i % 2 ? TIER_NVME : TIER_DEVICE;
        s.delayed = i == 2 || i == 3;
        s.delay_after = 1;
        s.prefetch = (size_t)i % 3;
        check(&s);
    }
}

TEST(every_dimension_and_wire) {
    struct RankSettings s = settings_of(3, 4, 2);
    s.tp = 2;
    s.model.heads = 2;
    check(&s);
    s = settings_of(1, 4, 4);
    s.pp = 2;
    check(&s);
    s = settings_of(3, 4, 1);
    s.hpz_size = 2;
    check(&s);
    s.quantized_weights = 1;
    s.quantized_gradients = true;
    s.hpz_size = 0;
    check(&s);
    s = settings_of(2, 4, 2);
    s.shard_size = 2;
    check(&s);
}

TEST(partitioned_activations) {
    struct RankSettings s = settings_of(1, 2, 2);
    s.tp = 2;
    s.model.heads = 2;
    s.partition_activations = true;
    s.act_tier = TIER_CPU;
    s.recompute = RECOMPUTE_BLOCK;
    check(&s);
}

// What queues do between steps is noted nowhere, and none of it is kept for the next step.
static void validate_between(void *context, struct Rank *r) {
    struct Validated *v = context;
    struct Error e;
    for (int i = 0; i < STEPS; i++) {
        if (i + 1 < STEPS) // what a step moves is counted if it follows another
            tiny_validate(r, 4);
        tiny_step(r);
    }
    zero_trace_note(r, &v->of);
    tiny_validate(r, 4);
    CHECK(!rank_write_trace_zero(r, "tiny", v->path, &e), "%s", e.text);
}

TEST(validation_between_steps) {
    struct RankSettings s = settings_of(0, 1, 1);
    struct Validated v = {.path = base_format("%s/trace", disk_folder)};
    s.model.layers = 12;
    s.param_tier = TIER_NVME;
    tiny_ranks(&s, validate_between, &v);
    cJSON *file = zero_trace_read(v.path);
    zero_trace_check(file, &v.of);
    cJSON_Delete(file);
    free(v.path);
}

// The validation at a run's end does more than a queue's ring has room for.
static void validate_long(void *context, struct Rank *r) {
    struct Validated *v = context;
    struct Error e;
    for (int i = 0; i < STEPS; i++)
        tiny_step(r);
    zero_trace_note(r, &v->of);
    tiny_validate(r, 2000);
    CHECK(!rank_write_trace_zero(r, "tiny", v->path, &e), "%s", e.text);
}

TEST(validation_pushes_nothing_out) {
    struct RankSettings s = settings_of(1, 1, 1);
    struct Validated v = {.path = base_format("%s/trace", disk_folder)};
    tiny_ranks(&s, validate_long, &v);
    cJSON *file = zero_trace_read(v.path);
    zero_trace_check(file, &v.of);
    cJSON_Delete(file);
    free(v.path);
}

// ---- what operations touch ----

static cJSON *trace_of(const struct RankSettings *s) {
    char *path = base_format("%s/trace", disk_folder);
    check(s);
    cJSON *file = zero_trace_read(path);
    free(path);
    return file;
}

static double bytes_in(const cJSON *file, const cJSON *uses, const char *purpose) {
    const cJSON *use;
    double sum = 0;
    cJSON_ArrayForEach(use, uses) {
        const cJSON *block = cJSON_GetArrayItem(cJSON_GetObjectItem(file, "blocks"),
                                                cJSON_GetArrayItem(use, 0)->valueint);
        if (strstr(cJSON_GetObjectItem(block, "purpose")->valuestring, purpose))
            sum += cJSON_GetArrayItem(use, 2)->valuedouble;
    }
    return sum;
}

static bool is(const cJSON *operation, const char *key, const char *word) {
    const cJSON *item = cJSON_GetObjectItem(operation, key);
    return item && strcmp(item->valuestring, word) == 0;
}

// All of them, to the byte: what no kernel touched would be missing.
TEST(a_block_reads_its_weights_and_makes_its_gradient) {
    for (int family = 0; family < TINY_FAMILIES; family++) {
        struct RankSettings s = tiny_family(family, BF16);
        s.stage = 3;
        s.ranks = 2;
        s.threads = s.nmicro = 1;
        cJSON *file = trace_of(&s);
        const cJSON *operation;
        int passes = 0;
        cJSON_ArrayForEach(operation, cJSON_GetObjectItem(file, "operations")) {
            if (!is(operation, "kind", "unit") ||
                strncmp(cJSON_GetObjectItem(operation, "name")->valuestring, "block", 5) != 0)
                continue;
            const cJSON *group =
                cJSON_GetArrayItem(cJSON_GetObjectItem(file, "groups"),
                                   cJSON_GetObjectItem(operation, "group")->valueint);
            double numel = cJSON_GetObjectItem(group, "numel")->valuedouble;
            bool forward = is(operation, "pass", "forward");
            const cJSON *uses = cJSON_GetObjectItem(operation, forward ? "reads" : "writes");
            double bytes = bytes_in(file, uses, forward ? "weights at hand" : "bucket");
            if (bytes != numel * (forward ? 2 : (double)dtype_size(s.grad_dtype)))
                fail_msg("%s: %.0f bytes of %.0f elements", tiny_family_name(family), bytes, numel);
            passes++;
        }
        assert_int_equal(passes, 2 * (int)s.model.layers);
        cJSON_Delete(file);
    }
}

TEST(hops_of_an_update_are_of_a_group_and_no_unit) {
    struct RankSettings s = settings_of(2, 2, 1);
    cJSON *file = trace_of(&s);
    const cJSON *operation;
    int updates = 0;
    cJSON_ArrayForEach(operation, cJSON_GetObjectItem(file, "operations")) {
        bool update = is(operation, "chain", "update") || is(operation, "chain", "publish");
        if (update && cJSON_GetObjectItem(operation, "unit"))
            fail_msg("%s of group %d has a unit",
                     cJSON_GetObjectItem(operation, "name")->valuestring,
                     cJSON_GetObjectItem(operation, "group")->valueint);
        updates += update && cJSON_GetObjectItem(operation, "group");
    }
    assert_true(updates >= (int)s.model.layers + 1);
    cJSON_Delete(file);
}

TEST(gradients_outlive_the_step_if_the_host_updates) {
    struct RankSettings s = settings_of(2, 2, 1);
    s.opt_tier = TIER_CPU;
    cJSON *file = trace_of(&s);
    const cJSON *life;
    int n = 0;
    cJSON_ArrayForEach(life, cJSON_GetObjectItem(file, "lives")) {
        const cJSON *block = cJSON_GetArrayItem(cJSON_GetObjectItem(file, "blocks"),
                                                cJSON_GetObjectItem(life, "block")->valueint);
        n += is(block, "tag", "grad") && cJSON_GetObjectItem(life, "from")->valueint >= 0 &&
             cJSON_GetObjectItem(life, "until")->valueint < 0;
    }
    assert_int_equal(n, (int)s.model.layers + 1); // a block's each, and that of both ends
    cJSON_Delete(file);
}

// ---- what it finds ----

static size_t pairs_without(const struct RankSettings *s, const char *event) {
    struct Traced t = {base_format("%s/trace", disk_folder), event};
    tiny_ranks(s, train, &t);
    cJSON *file = zero_trace_read(t.path);
    struct Unordered u = zero_trace_unordered(file);
    cJSON_Delete(file);
    free((char *)t.path);
    assert_true(spy.dropped > 0);
    if (u.pairs)
        print_message("without the waits for \"%s\": %zu pairs, the first: %s\n", event, u.pairs,
                      u.text);
    return u.pairs;
}

static void expect_found(const struct RankSettings *s, const char *const *events) {
    for (; *events; events++)
        if (!pairs_without(s, *events))
            fail_msg("%s: nothing is missing without its waits", *events);
}

// Not left out: tokens that have not arrived may be no tokens, and end the process.
TEST(each_wait_that_is_left_out_is_found) {
    static const char *const events[] = {
        "weights arrived", "weights drained", "backward done", "reported",
        "clipped",         "bucket drained",  "word sent",     NULL};
    static const char *const published[] = {"group updated", NULL};
    if (tests_under_thread_sanitizer()) // which would end the process at the first race
        skip();
    struct RankSettings s = settings_of(3, 2, 2);
    s.model.layers = 6; // with fewer, or with less fetched ahead, other waits imply some
    s.prefetch = 2;
    expect_found(&s, events);
    s.stage = 1;
    expect_found(&s, published);
}

TEST(each_wait_of_offload_that_is_left_out_is_found) {
    static const char *const moved[] = {"staging arrived", "staging drained", "gradient reduced",
                                        NULL};
    static const char *const pieces[] = {"piece arrived",
                                         "piece updated",
                                         "piece stored",
                                         "new weights made",
                                         "layer arrived",
                                         "layer made",
                                         NULL};
    if (tests_under_thread_sanitizer())
        skip();
    struct RankSettings s = settings_of(3, 2, 1);
    s.opt_tier = s.param_tier = TIER_NVME;
    s.act_tier = TIER_CPU;
    expect_found(&s, moved);
    s.param_tier = TIER_DEVICE;
    expect_found(&s, pieces);
}

// ---- no step ----

static void make_no_step(void *context, struct Rank *r) {
    struct Error e;
    tiny_validate(r, 2);
    CHECK(!rank_write_trace_zero(r, "tiny", context, &e), "%s", e.text);
}

static void write_without_a_step(const void *path) {
    struct RankSettings s = settings_of(0, 1, 1);
    tiny_ranks(&s, make_no_step, (void *)(uintptr_t)path);
    exit(0);
}

TEST(a_process_without_a_step_says_so) {
    if (tests_under_thread_sanitizer()) // where a child has none of the threads
        skip();
    char *path = base_format("%s/trace", disk_folder);
    int status;
    char *said = child_said(write_without_a_step, path, &status);
    assert_int_equal(status, 0);
    assert_non_null(strstr(said, "--trace-zero: this process made no step"));
    cJSON *file = zero_trace_read(path);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(file, "operations")), 0);
    assert_true(cJSON_GetArraySize(cJSON_GetObjectItem(file, "blocks")) > 0);
    cJSON_Delete(file);
    free(said);
    free(path);
}

// ---- blocks that come and go ----

struct Moment {
    double at;
    size_t total;
};

struct Reserved {
    const char *path;
    struct ZeroTraceOf of;
    struct Moment moment[8];
    int n;
};

static void keep_moment(struct Reserved *k, const struct Rank *r) {
    k->moment[k->n++] = (struct Moment){base_seconds(), r->tier[TIER_DEVICE].total};
}

// Two blocks in the last step: one stays, one is freed before its end.
static void reserve(void *context, struct Rank *r) {
    struct Reserved *k = context;
    struct Block stays, goes;
    struct Error e;
    tiny_step(r);
    tiny_queue_step(r);
    zero_sync(&r->zero); // blocks that are reserved before the step begins have no time
    CHECK(!tier_alloc(&r->tier[TIER_DEVICE], TAG_COMM, "goes \"soon\"", 1000, &goes, &e), "%s",
          e.text);
    keep_moment(k, r);
    CHECK(!tier_alloc(&r->tier[TIER_DEVICE], TAG_WORKSPACE, "stays", 5000, &stays, &e), "%s",
          e.text);
    keep_moment(k, r);
    tier_free(&goes);
    keep_moment(k, r);
    tiny_take_step(r);
    zero_trace_note(r, &k->of);
    CHECK(!rank_write_trace_zero(r, "tiny", k->path, &e), "%s", e.text);
    tier_free(&stays);
}

TEST(blocks_are_the_account_at_every_event) {
    struct RankSettings s = settings_of(0, 1, 1);
    struct Reserved k = {.n = 0};
    char *path = base_format("%s/trace", disk_folder);
    const cJSON *block;
    k.path = path;
    tiny_ranks(&s, reserve, &k);
    cJSON *file = zero_trace_read(path);
    zero_trace_check_blocks(file, &k.of);
    double start = cJSON_GetObjectItem(file, "start")->valuedouble;
    for (int i = 0; i < k.n; i++) {
        double at = (k.moment[i].at - start) * 1e6, total = 0;
        cJSON_ArrayForEach(block, cJSON_GetObjectItem(file, "blocks")) {
            const cJSON *from = cJSON_GetObjectItem(block, "reserved");
            const cJSON *to = cJSON_GetObjectItem(block, "freed");
            bool on_device = strcmp(cJSON_GetObjectItem(block, "tier")->valuestring, "device") == 0;
            if (on_device && (!from || from->valuedouble <= at) && (!to || to->valuedouble > at))
                total += cJSON_GetObjectItem(block, "bytes")->valuedouble;
        }
        assert_true(total == (double)k.moment[i].total);
    }
    assert_int_equal(k.n, 3);
    cJSON_Delete(file);
    free(path);
}

AROUND_ALL(disk_open, disk_close);
