// Overlap, as a trace shows it: with a slow comm queue and units fetched ahead, unit u computes
// while unit u + 1 arrives; with nothing fetched ahead, nothing computes while weights arrive. And
// the file that --trace writes is JSON that holds every queue's operations of the last step. Its
// records say what each kernel must do, which adds up to what the mathematics of a step asks for.
#include "zero/state.h"
#include "kernels/trace.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"

#include <cjson/cJSON.h>

enum { LAYERS = 4, STEPS = 2 };

// Among blocks, which share slots: the ends' group has its own, and may come at any time.
struct Overlap {
    int blocks;  // that computed, at least in part, while the next block's weights arrived
    int back;    // likewise in the backward pass, where the next one is that below
    int strange; // operations of a block that ran while weights of another arrived
};

static bool is_block(const struct TraceRecord *r) {
    return r->label.unit >= 1 && r->label.unit <= LAYERS;
}

static bool is_gather(const struct TraceRecord *r) {
    return r->label.what && !strcmp(r->label.what, "all_gather") && is_block(r);
}

static bool is_math(const struct TraceRecord *r) {
    return is_block(r) && strcmp(r->name, "wait") && strcmp(r->name, "record") &&
           strcmp(r->name, "adamw");
}

static bool overlap(const struct TraceRecord *a, const struct TraceRecord *b) {
    return a->begin < b->end && b->begin < a->end;
}

static struct Overlap find_overlap(const struct Trace *t, uint64_t step) {
    struct Overlap found = {0};
    bool seen[LAYERS + 2] = {0}, seen_back[LAYERS + 2] = {0};
    const struct TraceRing *compute = &t->ring[QUEUE_COMPUTE], *comm = &t->ring[QUEUE_COMM];
    assert_true(compute->count < TRACE_RING && comm->count < TRACE_RING);
    for (uint64_t i = 0; i < compute->count; i++)
        for (uint64_t j = 0; j < comm->count; j++) {
            const struct TraceRecord *c = &compute->record[i], *g = &comm->record[j];
            if (c->label.step != step || g->label.step != step || !is_math(c) || !is_gather(g) ||
                !overlap(c, g))
                continue;
            int unit = c->label.unit;
            found.strange += unit != g->label.unit;
            found.blocks += g->label.unit == unit + 1 && !seen[unit];
            found.back += g->label.unit == unit - 1 && !seen_back[unit];
            seen[unit] = seen[unit] || g->label.unit == unit + 1;
            seen_back[unit] = seen_back[unit] || g->label.unit == unit - 1;
        }
    return found;
}

static void run_traced(void *context, struct Rank *r) {
    struct Overlap *found = context;
    device_set_delay(r->device, QUEUE_COMM, (struct QueueDelay){2000, 3});
    device_set_delay(r->device, QUEUE_COMPUTE, (struct QueueDelay){2000, 4});
    for (int i = 0; i < STEPS; i++)
        tiny_step(r);
    for (int q = 0; q < NQUEUE; q++)
        device_sync_queue(r->device, (enum Queue)q);
    if (r->shard_group->rank == 0)
        *found = find_overlap(r->trace, STEPS);
}

static struct Overlap overlap_with(size_t prefetch) {
    struct RankSettings s = tiny_settings(F32);
    struct Overlap found;
    s.model.layers = LAYERS;
    s.nmicro = 1;
    s.stage = 3;
    s.ranks = 2;
    s.threads = 1;
    s.prefetch = prefetch;
    s.traced = true;
    tiny_ranks(&s, run_traced, &found);
    return found;
}

TEST(a_unit_computes_while_the_next_arrives) {
    struct Overlap ahead = overlap_with(1), none = overlap_with(0);
    // On a machine that is busy with other things a queue may come late to its work.
    for (int again = 0; again < 3 && ahead.back < LAYERS - 2; again++)
        ahead = overlap_with(1);
    print_message("prefetch 1: %d and back %d of %d blocks beside the next one's gather; prefetch "
                  "0: %d, %d\n",
                  ahead.blocks, ahead.back, LAYERS - 1, none.blocks, none.back);
    assert_int_equal(ahead.blocks, LAYERS - 1);
    assert_true(ahead.back >= LAYERS - 2); // the first comes while the head computes, or later
    assert_int_equal(none.blocks, 0);
    assert_int_equal(none.strange, 0);
}

// ---- offload ----

// With slow copies in, or a slow disk, of a model whose weights and optimizer state lie elsewhere.
struct Offload {
    enum TierKind tier;
    bool slow_update; // instead of slow copies, or a slow disk
    int arriving;     // blocks that computed while the next one's weights were on their way in
    int updating;     // blocks of the forward pass that computed while a later one was updated
};

static bool is_copy_of_weights(const struct TraceRecord *r) {
    return is_block(r) &&
           (!strcmp(r->name, "copy") || (r->label.what && !strcmp(r->label.what, "read")));
}

// Blocks that computed while an operation that `is` chooses ran for a block `ahead` of it, or more.
static int count_beside(const struct TraceRing *compute, const struct TraceRing *other,
                        bool (*is)(const struct TraceRecord *), uint64_t step, int ahead) {
    bool seen[LAYERS + 2] = {0};
    int count = 0;
    for (uint64_t i = 0; i < compute->count; i++)
        for (uint64_t j = 0; j < other->count; j++) {
            const struct TraceRecord *c = &compute->record[i], *o = &other->record[j];
            int unit = c->label.unit;
            if (c->label.step != step || o->label.step != step || !is_math(c) || !is(o) ||
                !overlap(c, o) || o->label.unit < unit + ahead || seen[unit])
                continue;
            seen[unit] = true;
            count++;
        }
    return count;
}

static bool is_update(const struct TraceRecord *r) {
    return is_block(r) && !strcmp(r->name, "adamw");
}

static void run_offloaded(void *context, struct Rank *r) {
    struct Offload *o = context;
    bool disk = o->tier == TIER_NVME;
    if (o->slow_update)
        device_set_delay(r->host, QUEUE_COMPUTE, (struct QueueDelay){8000, 5});
    else
        device_set_delay(disk ? r->host : r->device, QUEUE_IN, (struct QueueDelay){3000, 3});
    unsigned unit_us = o->slow_update ? 6000 : 2000;
    device_set_delay(r->device, QUEUE_COMPUTE, (struct QueueDelay){unit_us, 4});
    for (int i = 0; i < STEPS; i++)
        tiny_step(r);
    zero_sync(&r->zero);
    const struct TraceRing *compute = &r->trace->ring[QUEUE_COMPUTE];
    const struct Trace *in = disk ? r->host_trace : r->trace;
    o->arriving = count_beside(compute, &in->ring[QUEUE_IN], is_copy_of_weights, STEPS, 1);
    o->updating = count_beside(compute, &r->host_trace->ring[QUEUE_COMPUTE], is_update, STEPS, 1);
}

TEST(a_unit_computes_while_the_next_comes_from_its_tier) {
    char *folder = scratch_make_in("build");
    for (enum TierKind tier = TIER_CPU; tier < NTIER; tier++) {
        struct RankSettings s = tiny_settings(BF16);
        struct Offload o = {.tier = tier};
        s.model.layers = LAYERS;
        s.nmicro = 1;
        s.threads = 1;
        s.traced = true;
        s.param_tier = s.opt_tier = tier;
        s.nvme.folder = folder;
        tiny_ranks(&s, run_offloaded, &o);
        int arriving = o.arriving;
        o.slow_update = true;
        tiny_ranks(&s, run_offloaded, &o);
        print_message("%s: %d of %d blocks beside the next one's weights, %d beside its update\n",
                      tier_name(tier), arriving, LAYERS - 1, o.updating);
        assert_true(arriving >= LAYERS - 2); // a busy machine may lose one
        assert_true(o.updating >= 1);
    }
    scratch_remove(folder);
}

// ---- what kernels must do ----

struct Costs {
    double products, attention, adamw; // FLOP, FLOP, bytes
    double padded;                     // parameters
    double predicted;                  // FLOP of a step
    const struct RankSettings *settings;
};

static void add_work(void *context, struct Rank *r) {
    struct Costs *w = context;
    const struct TraceRing *ring = &r->trace->ring[QUEUE_COMPUTE];
    tiny_step(r);
    zero_sync(&r->zero);
    assert_true(ring->count < TRACE_RING);
    for (uint64_t i = 0; i < ring->count; i++) {
        const struct TraceRecord *t = &ring->record[i];
        w->products += strcmp(t->name, "matmul") ? 0 : t->cost.flops;
        w->attention += strncmp(t->name, "attention", 9) ? 0 : t->cost.flops;
        w->adamw += strcmp(t->name, "adamw") ? 0 : t->cost.bytes;
    }
    struct StepFlops predicted = rank_step_flops(r, w->settings);
    w->padded = (double)r->params.padded;
    w->predicted = predicted.forward + predicted.backward;
}

static void work_of(struct RankSettings *s, struct Costs *w) {
    *w = (struct Costs){.settings = s};
    s->traced = true;
    tiny_ranks(s, add_work, w);
}

TEST(a_step_costs_what_it_must) {
    struct RankSettings s = tiny_settings(BF16);
    const struct ModelConfig *c = &s.model;
    struct Costs w;
    size_t rows = s.batch * c->seq_len, C = c->channels;
    double matrices = (double)(12 * c->layers * C * C + c->vocab_padded * C);
    s.grad_dtype = BF16;
    s.nmicro = 1;
    work_of(&s, &w);
    assert_true(w.products == 6 * (double)rows * matrices);
    assert_true(w.attention == 7 * (double)(c->layers * rows * c->seq_len * C));
    assert_true(w.adamw == 28 * w.padded);
    s.moments_dtype = BF16;
    work_of(&s, &w);
    assert_true(w.adamw == 20 * w.padded);
    struct AdamW apart = {.n = 1, .grad_dtype = BF16}; // its weights lie elsewhere
    assert_true(cost_adamw(&apart).bytes == 26);
    assert_true(cost_of("wait", NULL).bytes == 0);
}

// What each level of recomputation repeats, in products of a token with C x C weights, and in those
// of causal attention: block_run's, and not the last one of the block.
TEST(what_is_repeated_is_predicted) {
    static const struct {
        double products, attention;
    } again[NRECOMPUTE] = {[RECOMPUTE_ATTENTION] = {0, 2},
                           [RECOMPUTE_MLP] = {4, 2},
                           [RECOMPUTE_BLOCK] = {3 + 1 + 4, 2}};
    for (enum Recompute level = 0; level < NRECOMPUTE; level++)
        for (size_t nmicro = 1; nmicro <= 2; nmicro++) {
            struct RankSettings s = tiny_settings(F32);
            const struct ModelConfig *c = &s.model;
            struct Costs w;
            s.nmicro = nmicro;
            s.recompute = level;
            work_of(&s, &w);
            double C = (double)c->channels, T = (double)c->seq_len;
            double tokens = (double)(nmicro * s.batch) * T, layers = (double)c->layers;
            double products = layers * (36 + again[level].products) * C * C;
            double head = 3 * (double)c->vocab_padded * C;
            assert_true(w.products == 2 * tokens * (products + head));
            assert_true(w.attention == tokens * layers * (7 + again[level].attention) * T * C);
            assert_true(w.predicted == w.products + w.attention);
        }
}

// In every family: a SwiGLU's wider product, grouped queries, a head apart, a window.
TEST(what_a_family_repeats_is_predicted) {
    for (int i = 0; i < TINY_FAMILIES; i++)
        for (enum Recompute level = 0; level < NRECOMPUTE; level++) {
            struct RankSettings s = tiny_family(i, F32);
            struct Costs w;
            s.recompute = level;
            work_of(&s, &w);
            if (fabs(w.predicted / (w.products + w.attention) - 1) > 1e-12)
                fail_msg("%s, %s: %.0f FLOP in a step, predicted %.0f", tiny_family_name(i),
                         recompute_name(level), w.products + w.attention, w.predicted);
        }
}

// ---- the file ----

static void write_traced(void *context, struct Rank *r) {
    struct Error e = {0};
    tiny_step(r);
    tiny_step(r);
    tiny_validate(r, 4); // is no part of a step
    assert_int_equal(rank_write_trace(r, context, &e), 0);
}

static cJSON *read_json(const char *path) {
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *text = base_alloc_zeroed(4 << 20);
    assert_true(fread(text, 1, (4 << 20) - 1, f) > 0);
    fclose(f);
    cJSON *json = cJSON_Parse(text);
    assert_non_null(json);
    free(text);
    return json;
}

TEST(the_file_is_a_chrome_trace) {
    struct RankSettings s = tiny_settings(F32);
    char *folder = scratch_make(), *path = base_format("%s/trace.json", folder);
    s.traced = true;
    tiny_ranks(&s, write_traced, path);
    cJSON *json = read_json(path), *event;
    int per_queue[NQUEUE] = {0}, kernels = 0, forwards = 0;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(json, "traceEvents")) {
        if (strcmp(cJSON_GetObjectItem(event, "ph")->valuestring, "X") != 0)
            continue;
        per_queue[cJSON_GetObjectItem(event, "tid")->valueint]++;
        kernels += !strcmp(cJSON_GetObjectItem(event, "name")->valuestring, "attention_backward");
        forwards += !strcmp(cJSON_GetObjectItem(event, "name")->valuestring, "attention_forward");
        assert_true(cJSON_GetObjectItem(event, "dur")->valuedouble >= 0);
        assert_true(cJSON_GetObjectItem(event, "ts")->valuedouble >= 0);
    }
    assert_int_equal(kernels, 2 * 2); // two blocks, two micro-batches, of one step
    assert_int_equal(forwards, 2 * 2);
    for (int q = 0; q < NQUEUE; q++)
        assert_true(per_queue[q] > 0);
    cJSON_Delete(json);
    struct Error e;
    const struct Trace *none[] = {NULL};
    assert_true(trace_write(none, 1, "/proc/none/trace", 1, 0, &e) < 0);
    assert_true(error_is(&e, "E_FILE_WRITE --trace /proc/none/trace"));
    free(path);
    scratch_remove(folder);
}

// ---- who waits for whom ----

static const char *text_of(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItem(object, key);
    return item ? item->valuestring : "";
}

static double number_of(const cJSON *object, const char *key) {
    return cJSON_GetObjectItem(object, key)->valuedouble;
}

// Waits of a row for an event that `recorder` recorded; "": nobody did in this step.
static int count_waits(const cJSON *events, int row, const char *event, const char *recorder) {
    int count = 0;
    const cJSON *e;
    cJSON_ArrayForEach(e, events) {
        const cJSON *args = cJSON_GetObjectItem(e, "args");
        if (strcmp(text_of(e, "ph"), "X") != 0 || (int)number_of(e, "tid") != row ||
            strcmp(text_of(args, "waits for"), event) != 0 ||
            strcmp(text_of(args, "recorded by"), recorder) != 0)
            continue;
        assert_string_equal(text_of(e, "name") + strlen("wait: "), event);
        count++;
    }
    return count;
}

// Each begins at a record of its event, and ends in a wait for it.
static int check_arrow(const cJSON *events, const cJSON *end) {
    bool starts = !strcmp(text_of(end, "ph"), "s");
    const cJSON *e;
    cJSON_ArrayForEach(e, events) {
        const cJSON *args = cJSON_GetObjectItem(e, "args");
        const char *name = text_of(args, starts ? "records" : "waits for");
        double late =
            number_of(end, "ts") - (cJSON_GetObjectItem(e, "ts") ? number_of(e, "ts") : 0);
        if (!strcmp(name, text_of(end, "name")) && number_of(e, "tid") == number_of(end, "tid") &&
            late >= 0 && late <= number_of(e, "dur") + 0.0015) // times are told to the nanosecond
            return 1;
    }
    return 0;
}

// Of two arrows' ends with the same id the start comes first in the file and in time.
static int check_arrows(const cJSON *events) {
    int count = 0;
    const cJSON *e, *start = NULL;
    cJSON_ArrayForEach(e, events) {
        bool starts = !strcmp(text_of(e, "ph"), "s");
        if (!starts && strcmp(text_of(e, "ph"), "f") != 0)
            continue;
        assert_int_equal(check_arrow(events, e), 1);
        if (!starts) {
            assert_non_null(start);
            assert_true(number_of(start, "id") == number_of(e, "id"));
            assert_true(number_of(start, "ts") <= number_of(e, "ts") + 0.0015);
            assert_string_equal(text_of(start, "name"), text_of(e, "name"));
        }
        start = starts ? e : NULL;
        count += starts;
    }
    return count;
}

// Operations of collectives name their group of ranks, and nothing else does.
static void check_groups(const cJSON *events) {
    const cJSON *e;
    cJSON_ArrayForEach(e, events) {
        const cJSON *args = cJSON_GetObjectItem(e, "args");
        const char *name = text_of(e, "name");
        bool collective = !strcmp(name, "all_gather") || !strcmp(name, "reduce_scatter");
        if (text_of(e, "ph")[0] == 'X')
            assert_string_equal(text_of(args, "group"), collective ? "dp" : "");
    }
}

// A step of two micro-batches, two blocks and 2 ranks at stage 3, whose weights lie in host memory
// and whose optimizer state the host updates.
TEST(waits_and_records_have_names) {
    struct RankSettings s = tiny_settings(BF16);
    char *folder = scratch_make(), *path = base_format("%s/trace.json", folder);
    s.traced = true;
    s.stage = 3;
    s.ranks = 2;
    s.param_tier = s.opt_tier = TIER_CPU;
    tiny_ranks(&s, write_traced, path);
    cJSON *json = read_json(path), *events = cJSON_GetObjectItem(json, "traceEvents");
    int groups = (int)s.model.layers + 1;
    assert_int_equal(count_waits(events, QUEUE_COMM, "word sent", "in"), 1);
    assert_int_equal(count_waits(events, QUEUE_COMPUTE, "reported", "comm"), 1);
    assert_int_equal(count_waits(events, QUEUE_OUT, "clipped", "compute"), 1);
    assert_int_equal(count_waits(events, QUEUE_COMM, "backward done", "compute"), 2 * groups);
    assert_int_equal(count_waits(events, QUEUE_OUT, "gradient reduced", "comm"), 2 * groups);
    assert_true(count_waits(events, QUEUE_COMPUTE, "weights arrived", "comm") >= 2 * groups);
    // The host's queues are the rows behind the device's. The step before told it to update.
    assert_int_equal(count_waits(events, NQUEUE + QUEUE_COMPUTE, "results received", ""), groups);
    assert_true(count_waits(events, QUEUE_IN, "group updated", "host compute") >= 2 * groups);
    check_groups(events);
    int arrows = check_arrows(events);
    print_message("%d arrows\n", arrows);
    assert_true(arrows > 8 * groups);
    cJSON_Delete(json);
    free(path);
    scratch_remove(folder);
}
