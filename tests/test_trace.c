// Overlap, as a trace shows it: with a slow comm queue and units fetched ahead, unit u computes
// while unit u + 1 arrives; with nothing fetched ahead, nothing computes while weights arrive. And
// the file that --trace writes is JSON that holds every queue's operations of the last step.
#include "kernels/trace.h"
#include "tests/scratch.h"
#include "tests/tiny.h"

#include <cjson/cJSON.h>

enum { LAYERS = 4, STEPS = 2 };

// Among blocks, which share slots: the ends' group has its own, and may come at any time.
struct Overlap {
    int blocks;  // that computed, at least in part, while the next block's weights arrived
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
    bool seen[LAYERS + 2] = {0};
    const struct TraceRing *compute = &t->ring[QUEUE_COMPUTE], *comm = &t->ring[QUEUE_COMM];
    assert_true(compute->count < TRACE_RING && comm->count < TRACE_RING);
    for (uint64_t i = 0; i < compute->count; i++)
        for (uint64_t j = 0; j < comm->count; j++) {
            const struct TraceRecord *c = &compute->record[i], *g = &comm->record[j];
            if (c->label.step != step || g->label.step != step || !is_math(c) || !is_gather(g) ||
                !overlap(c, g))
                continue;
            found.strange += c->label.unit != g->label.unit;
            if (g->label.unit != c->label.unit + 1 || seen[c->label.unit])
                continue;
            seen[c->label.unit] = true;
            found.blocks++;
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
    if (r->dp->rank == 0)
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

static void a_unit_computes_while_the_next_arrives(void **state) {
    (void)state;
    struct Overlap ahead = overlap_with(1), none = overlap_with(0);
    print_message("prefetch 1: %d of %d blocks beside the next one's gather; prefetch 0: %d\n",
                  ahead.blocks, LAYERS - 1, none.blocks);
    assert_int_equal(ahead.blocks, LAYERS - 1);
    assert_int_equal(none.blocks, 0);
    assert_int_equal(none.strange, 0);
}

// ---- the file ----

static void write_traced(void *context, struct Rank *r) {
    struct Error e = {{0}};
    tiny_step(r);
    tiny_step(r);
    tiny_validate(r, 4); // is no part of a step
    assert_int_equal(rank_write_trace(r, context, &e), 0);
}

static void the_file_is_a_chrome_trace(void **state) {
    (void)state;
    struct RankSettings s = tiny_settings(F32);
    char *folder = scratch_make(), *path = base_format("%s/trace.json", folder);
    s.traced = true;
    tiny_ranks(&s, write_traced, path);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *text = base_alloc_zeroed(4 << 20);
    assert_true(fread(text, 1, (4 << 20) - 1, f) > 0);
    fclose(f);
    cJSON *json = cJSON_Parse(text), *event;
    assert_non_null(json);
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
    free(text);
    struct Error e;
    struct Trace empty = {0};
    assert_true(trace_write(&empty, "/proc/none/trace", 1, 0, &e) < 0);
    assert_non_null(strstr(e.text, "--trace /proc/none/trace"));
    free(path);
    scratch_remove(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unit_computes_while_the_next_arrives),
        cmocka_unit_test(the_file_is_a_chrome_trace),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
