// Weights that come and go where places have parts of each tensor: each element is read by whoever
// holds it, and written once.
#include "tests/lib/seats.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

#include "model/adapter.h"
#include "zero/weights/weights.h"

struct Shape {
    int tp, dp, replicas, stage;
};

// The whole model, by index.
struct Store {
    struct Params whole;
    bool adapters;            // they go out, and not the model
    float *values;            // (real)
    _Atomic uint32_t *writes; // (real)
};

static const struct Param *param_of(const struct Params *p, int layer, const char *name) {
    for (int g = 0; g < p->ngroup; g++)
        for (int i = 0; i < p->group[g].nparam; i++)
            if (params_layer(p, g) == layer && !strcmp(p->group[g].param[i].name, name))
                return &p->group[g].param[i];
    CHECK(false, "no %s in layer %d", name, layer);
    return NULL;
}

static int read_store(void *context, int layer, const char *name, const struct WeightsRange *range,
                      float *out, struct Error *e) {
    const struct Store *s = context;
    uint64_t index = param_of(&s->whole, layer, name)->index;
    (void)e;
    for (size_t i = 0; i < range->n; i++)
        out[i] = s->values[index + weights_at(range, i)];
    return 0;
}

static int write_store(void *context, int layer, const char *name, const struct WeightsRange *range,
                       const float *values, struct Error *e) {
    const struct Store *s = context;
    uint64_t index = param_of(&s->whole, layer, name)->index;
    (void)e;
    for (size_t i = 0; i < range->n; i++) {
        s->values[index + weights_at(range, i)] = values[i];
        s->writes[index + weights_at(range, i)]++;
    }
    return 0;
}

static int no_error(void *context, struct Error *e) {
    (void)context, (void)e;
    return 0;
}

// ---- adapters ----

// What an export has of each element: a function of the global index, plus s B A of the adapter's
// elements, which the whole model's layout finds.
static float merged_value(const struct Params *p, int g, const struct Param *param, size_t k) {
    const struct Lora *l = &p->config.lora;
    float value = seats_value(STATE_MASTER, param->index + k);
    int adapter = p->unit[p->group[g].first_unit].adapter,
        product = (int)(param - p->group[g].param);
    enum LoraTarget target[LORA_BESIDE];
    if (adapter < 0 || product > BLOCK_OUT_W)
        return value;
    for (int i = adapter_targets(&p->config, (enum AdapterProduct)product, target); i-- > 0;) {
        struct AdapterTarget t = adapter_target(&p->config, target[i]);
        const struct Param *a = &p->group[adapter].param[target[i]], *b = a + ADAPTER_B;
        size_t row = k / t.in, col = k % t.in;
        if (row < t.first || row >= t.first + t.out)
            continue;
        float sum = 0;
        for (size_t r = 0; r < l->rank; r++)
            sum += seats_value(STATE_MASTER, b->index + (row - t.first) * l->rank + r) *
                   seats_value(STATE_MASTER, a->index + r * t.in + col);
        value += (float)(l->alpha / (double)l->rank) * sum;
    }
    return value;
}

static void expect_exported(const struct Store *s, bool adapters) {
    const struct Params *p = &s->whole;
    for (int g = 0; g < p->ngroup; g++)
        for (int i = 0; i < p->group[g].nparam; i++) {
            const struct Param *param = &p->group[g].param[i];
            bool here = (p->group[g].kind == GROUP_ADAPTER) == adapters;
            for (size_t k = 0; k < param->real; k++) {
                float want = adapters ? seats_value(STATE_MASTER, param->index + k)
                                      : merged_value(p, g, param, k);
                assert_int_equal(s->writes[param->index + k], here);
                if (here && f32_bits(s->values[param->index + k]) != f32_bits(want))
                    fail_msg("%s %s: element %zu is %.9g, should be %.9g", p->group[g].name,
                             param->name, k, (double)s->values[param->index + k], (double)want);
            }
        }
}

static void import_store(struct SeatsJob *job, struct Zero *z) {
    struct Error e = {0};
    struct ImportSource from = {.read = read_store, .context = job->context};
    seats_note(job, z, import_weights(z, &from, &e), &e);
    seats_expect(job, z, STATE_MASTER + 1);
}

static void export_store(struct SeatsJob *job, struct Zero *z) {
    struct Error e = {0};
    const struct Store *s = job->context;
    struct ExportSink to = {.adapters = s->adapters,
                            .write = write_store,
                            .make = no_error,
                            .join = no_error,
                            .sync = no_error,
                            .commit = no_error,
                            .context = job->context};
    seats_fill(z, STATE_MASTER + 1);
    seats_note(job, z, export_weights(z, &to, false, &e), &e);
}

TEST(weights_come_and_go_by_element) {
    static const struct Shape shapes[] = {{1, 1, 1, 0}, {2, 1, 1, 0}, {3, 1, 1, 3},
                                          {4, 1, 1, 1}, {2, 2, 1, 3}, {2, 1, 2, 1}};
    static const enum FamilyKind kinds[] = {FAMILY_GPT2, FAMILY_QWEN2, FAMILY_QWEN3};
    for (int f = 0; f < 3; f++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            struct SeatsJob job = seats_job(kinds[f], f == 2, 130, shapes[i].tp, shapes[i].dp);
            struct Store s = {0};
            params_layout(&job.c, 1, 0, 1, &s.whole);
            s.values = base_alloc_zeroed(s.whole.real * sizeof *s.values);
            s.writes = base_alloc_zeroed(s.whole.real * sizeof *s.writes);
            job.replicas = shapes[i].replicas;
            job.stage = shapes[i].stage;
            job.context = &s;
            seats_run(&job, export_store);
            for (uint64_t k = 0; k < s.whole.real; k++)
                assert_true(s.writes[k] == 1 && s.values[k] == seats_value(STATE_MASTER, k));
            uint64_t hash = job.hash;
            seats_run(&job, import_store);
            assert_true(job.seen > 0 && job.hash == hash);
            free(s.values);
            free((void *)s.writes);
            params_free(&s.whole);
        }
}

// Merged from shards and parts of A and B: each element has the bits of the whole's.
TEST(adapters_are_merged_by_element) {
    static const struct Shape shapes[] = {{1, 1, 1, 0}, {1, 3, 1, 3}, {2, 1, 1, 1},
                                          {4, 1, 1, 3}, {2, 2, 1, 3}, {2, 1, 2, 1}};
    static const enum FamilyKind kinds[] = {FAMILY_GPT2, FAMILY_QWEN2, FAMILY_QWEN3};
    for (int f = 0; f < 3; f++)
        for (size_t i = 0; i < 2 * sizeof shapes / sizeof shapes[0]; i++) {
            const struct Shape *shape = &shapes[i / 2];
            struct SeatsJob job = seats_job(kinds[f], f == 2, 130, shape->tp, shape->dp);
            struct Store s = {.adapters = i % 2};
            job.c.lora = (struct Lora){.rank = 3, .alpha = 12, .targets = lora_targets_all(f == 0)};
            params_layout(&job.c, 1, 0, 1, &s.whole);
            s.values = base_alloc_zeroed(s.whole.real * sizeof *s.values);
            s.writes = base_alloc_zeroed(s.whole.real * sizeof *s.writes);
            job.replicas = shape->replicas;
            job.stage = shape->stage;
            job.context = &s;
            seats_run(&job, export_store);
            expect_exported(&s, s.adapters);
            free(s.values);
            free((void *)s.writes);
            params_free(&s.whole);
        }
}
