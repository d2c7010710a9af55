// The rig that kernels are tested in. See rig.h.
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>

enum { GUARD_BYTES = 192, GUARD_BYTE = 0xff, SCRATCH_EDGE = 1 << 14 };

int rig_setup(void **state) {
    struct Rig *rig = base_alloc_zeroed(sizeof *rig);
    if (rig_open_devices(rig))
        return -1;
    rig->values = values_open("tests/fixtures/torch/kernels.val");
    *state = rig;
    return 0;
}

int rig_teardown(void **state) {
    struct Rig *rig = *state;
    for (int i = 0; i < rig->ntable; i++)
        for (int j = 0; j < 2; j++)
            device_close(rig->device[i][j]);
    values_close(rig->values);
    free(rig);
    return 0;
}

void run_init(struct Run *r, struct Device *device, bool skew) {
    *r = (struct Run){.device = device, .skew = skew};
}

static size_t whole_bytes(const struct Operand *o) {
    return round_up(o->at_bytes + o->size_bytes + GUARD_BYTES, 64);
}

static bool is_scratch(const struct Operand *o) {
    return o->name && !*o->name;
}

// The bytes from the start that are uploaded and fetched, and those that follow at the end: all of
// it, but of scratch only the edges. Most of a large one is never touched.
static size_t first_bytes(const struct Operand *o) {
    return is_scratch(o) ? o->at_bytes + size_min(o->size_bytes, SCRATCH_EDGE) : whole_bytes(o);
}
static size_t last_begin(const struct Operand *o) {
    return is_scratch(o) ? size_max(first_bytes(o), o->at_bytes + o->size_bytes - 64)
                         : whole_bytes(o);
}

// Between the operand's memory on the device and `host`, at the same places.
static void copy_edges(struct Run *r, const struct Operand *o, void *host, bool upload) {
    const size_t begin[2] = {0, last_begin(o)}, end[2] = {first_bytes(o), whole_bytes(o)};
    for (int i = 0; i < 2; i++) {
        char *near = o->device_mem + begin[i], *far = (char *)host + begin[i];
        if (end[i] > begin[i])
            device_copy(r->device, QUEUE_COMPUTE, upload ? near : far, upload ? far : near,
                        end[i] - begin[i]);
    }
}

void run_close(struct Run *r) {
    for (int i = 0; i < r->noperand; i++) {
        struct Operand *o = &r->operand[i];
        r->device->ops->free(r->device, o->device_mem, whole_bytes(o));
        free(o->start);
        free(o->end);
    }
    *r = (struct Run){0};
}

// Makes the guard zones and uploads `bytes` of data (NULL: poison) between them. `skew_bytes`: how
// far past a multiple of 64 the operand begins in a skewed run.
static void *add(struct Run *r, struct Operand operand, size_t skew_bytes, const void *data) {
    CHECK(r->noperand < MAX_OPERANDS, "a run has at most %d operands", MAX_OPERANDS);
    struct Operand *o = &r->operand[r->noperand++];
    *o = operand;
    o->at_bytes = GUARD_BYTES + (r->skew ? skew_bytes : 0);
    o->device_mem = r->device->ops->alloc(r->device, whole_bytes(o));
    CHECK(o->device_mem, "no memory for %zu bytes", whole_bytes(o));
    o->start = base_alloc(whole_bytes(o));
    o->end = base_alloc(whole_bytes(o));
    memset(o->start, GUARD_BYTE, first_bytes(o));
    memset(o->start + last_begin(o), GUARD_BYTE, whole_bytes(o) - last_begin(o));
    if (data && o->size_bytes)
        memcpy(o->start + o->at_bytes, data, o->size_bytes);
    copy_edges(r, o, o->start, true);
    return o->device_mem + o->at_bytes;
}

static void *add_floats(struct Run *r, struct Operand o, const float *values) {
    o.size_bytes = o.n * dtype_size(o.dtype);
    if (!values)
        return add(r, o, dtype_size(o.dtype), NULL);
    void *stored = base_alloc(size_max(o.size_bytes, 1));
    for (size_t i = 0; i < o.n; i++)
        dtype_store(stored, o.dtype, i, values[i]);
    void *mem = add(r, o, dtype_size(o.dtype), stored);
    free(stored);
    return mem;
}

// The sum of two uniform variables: nearly normal, and made in no time.
static void *add_random(struct Run *r, struct Operand o, float mean, float std) {
    float *values = base_alloc(size_max(o.n, 1) * sizeof *values);
    for (size_t i = 0; i < o.n; i++) {
        uint64_t bits = rng_bits(100 + (uint64_t)r->noperand, i);
        float sum = (float)(bits >> 40) + (float)(bits & 0xffffff); // of two in 0 .. 2^24
        values[i] = mean + std * 2.4494897f * (sum * 0x1p-24f - 1);
    }
    void *mem = add_floats(r, o, values);
    free(values);
    return mem;
}

void *input_random(struct Run *r, enum Dtype d, size_t n, float mean, float std) {
    return add_random(r, (struct Operand){.dtype = d, .n = n}, mean, std);
}

void *input_values(struct Run *r, enum Dtype d, size_t n, const float *values) {
    return add_floats(r, (struct Operand){.dtype = d, .n = n}, values);
}

void *input_bytes(struct Run *r, size_t bytes, const void *values) {
    return add(r, (struct Operand){.size_bytes = bytes}, 0, values);
}

struct Work scratch(struct Run *r, size_t bytes) {
    struct Operand o = {.name = "", .size_bytes = bytes};
    return (struct Work){add(r, o, 0, NULL), bytes};
}

void *output_poison(struct Run *r, const char *name, enum Dtype d, size_t n, double slack) {
    return add_floats(r, (struct Operand){.name = name, .dtype = d, .n = n, .slack = slack}, NULL);
}

void *output_random(struct Run *r, const char *name, enum Dtype d, size_t n, double slack) {
    struct Operand o = {.name = name, .dtype = d, .n = n, .slack = slack};
    return add_random(r, o, 0, 1);
}

void *output_values(struct Run *r, const char *name, enum Dtype d, size_t n, double slack,
                    const float *values) {
    struct Operand o = {.name = name, .dtype = d, .n = n, .slack = slack};
    return add_floats(r, o, values);
}

void *output_bytes(struct Run *r, const char *name, size_t bytes, const void *values) {
    return add(r, (struct Operand){.name = name, .size_bytes = bytes}, 0, values);
}

static const char *who(const struct Run *r) {
    static char text[64];
    snprintf(text, sizeof text, "%s, %d thread(s)%s", r->device->kernels->name, r->device->threads,
             r->skew ? ", skewed" : "");
    return text;
}

static void check_zone(const struct Run *r, const struct Operand *o, size_t begin, size_t end) {
    if (memcmp(o->start + begin, o->end + begin, end - begin) == 0)
        return;
    size_t i = begin;
    while (o->start[i] == o->end[i])
        i++;
    fail_msg("%s: operand %d (%s): byte %zd of %zu was overwritten", who(r), (int)(o - r->operand),
             !o->name   ? "an input"
             : *o->name ? o->name
                        : "scratch",
             (ssize_t)i - (ssize_t)o->at_bytes, o->size_bytes);
}

// What may not change: all of an input, the guard zones of an output or scratch.
static void check_untouched(const struct Run *r, const struct Operand *o) {
    check_zone(r, o, 0, o->at_bytes);
    check_zone(r, o, o->at_bytes + o->size_bytes, whole_bytes(o));
    if (!o->name)
        check_zone(r, o, o->at_bytes, o->at_bytes + o->size_bytes);
}

void run_finish(struct Run *r) {
    for (int i = 0; i < r->noperand; i++) {
        struct Operand *o = &r->operand[i];
        copy_edges(r, o, o->end, false);
    }
    device_sync_queue(r->device, QUEUE_COMPUTE);
    for (int i = 0; i < r->noperand; i++)
        check_untouched(r, &r->operand[i]);
}

static const struct Operand *find(const struct Run *r, const char *name) {
    for (int i = 0; i < r->noperand; i++)
        if (r->operand[i].name && strcmp(r->operand[i].name, name) == 0)
            return &r->operand[i];
    CHECK(false, "the run has no output %s", name);
}

const void *run_result(const struct Run *r, const char *name) {
    const struct Operand *o = find(r, name);
    return o->end + o->at_bytes;
}

static double largest(const struct Operand *o, const float *values) {
    double most = 0;
    for (size_t i = 0; i < o->n; i++)
        if (isfinite(values[i]))
            most = fmax(most, fabs(values[i]));
    return most;
}

static bool is_near(double got, double want, double limit) {
    if (isnan(want) || isinf(want))
        return isnan(want) ? isnan(got) : got == want;
    return fabs(got - want) <= limit; // false for a NaN
}

double dtype_unit(enum Dtype d) {
    static const double units[NDTYPE] = {[F32] = 0x1p-24, [BF16] = 0x1p-8, [F16] = 0x1p-11};
    return units[d];
}

double dtype_least(enum Dtype d) {
    static const double least[NDTYPE] = {[F32] = 0x1p-150, [BF16] = 0x1p-134, [F16] = 0x1p-25};
    return least[d];
}

uint32_t dtype_bits(enum Dtype d, float x) {
    return d == F32 ? f32_bits(x) : d == BF16 ? bf16_from_f32(x) : f16_from_f32(x);
}

void run_expect(const struct Run *r, const char *name, const char *what, const float *want,
                double slack) {
    const struct Operand *o = find(r, name);
    double limit = slack * dtype_unit(o->dtype) * largest(o, want);
    for (size_t i = 0; i < o->n; i++) {
        double got = dtype_load(o->end + o->at_bytes, o->dtype, i);
        if (!is_near(got, want[i], limit))
            fail_msg("%s: %s %s[%zu] is %.9g, %s says %.9g (give or take %.2g)", who(r),
                     dtype_name(o->dtype), name, i, got, what, want[i], limit);
    }
}

// Holds an output against the oracle's: see output_poison.
static void compare(const struct Run *r, const struct Operand *o, const struct Operand *oracle) {
    float *want = base_alloc(size_max(o->n, 1) * sizeof *want);
    for (size_t i = 0; i < o->n; i++)
        want[i] = dtype_load(oracle->end + oracle->at_bytes, o->dtype, i);
    double base = o->slack * 0x1p-24 * largest(o, want);
    double unit = (o->dtype == F32 ? 4 : 2) * dtype_unit(o->dtype);
    base += 2 * dtype_least(o->dtype); // one step where elements are denormal
    for (size_t i = 0; i < o->n; i++) {
        double got = dtype_load(o->end + o->at_bytes, o->dtype, i);
        if (!is_near(got, want[i], base + unit * fabs(want[i])))
            fail_msg("%s: %s %s[%zu of %zu] is %.9g, the oracle says %.9g (largest %.3g)", who(r),
                     dtype_name(o->dtype), o->name, i, o->n, got, want[i], largest(o, want));
    }
    free(want);
}

static bool is_output(const struct Operand *o) {
    return o->name && *o->name;
}

static void compare_all(const struct Run *r, const struct Run *oracle) {
    for (int i = 0; i < r->noperand; i++)
        if (is_output(&r->operand[i]))
            compare(r, &r->operand[i], &oracle->operand[i]);
}

static void compare_bits(const struct Run *r, const struct Run *other, const char *why) {
    for (int i = 0; i < r->noperand; i++) {
        const struct Operand *x = &r->operand[i], *y = &other->operand[i];
        if (is_output(x) && memcmp(x->end + x->at_bytes, y->end + y->at_bytes, x->size_bytes) != 0)
            fail_msg("%s: %s %s: other bits %s", who(r), dtype_name(x->dtype), x->name, why);
    }
}

static void run_body(struct Run *r, struct Device *device, int order, bool skew, RigBody *body,
                     enum Dtype d, const void *shape) {
    run_init(r, device, skew);
    rig_set_order(order);
    body(r, d, shape);
    run_finish(r);
}

// Every table but the oracle's own, against `oracle`.
static void check_tables(const struct Rig *rig, const struct Run *oracle, RigBody *body,
                         enum Dtype d, const void *shape, bool same_bits) {
    for (int t = 1; t < rig->ntable; t++) {
        struct Run one, two, again;
        run_body(&one, rig->device[t][0], 0, oracle->skew, body, d, shape);
        run_body(&two, rig->device[t][1], 1, oracle->skew, body, d, shape);
        run_body(&again, rig->device[t][1], 2, oracle->skew, body, d, shape);
        compare_all(&one, oracle);
        compare_all(&two, oracle);
        compare_bits(&again, &two, "when it is run again");
        if (same_bits)
            compare_bits(&two, &one, "than with one thread");
        run_close(&one);
        run_close(&two);
        run_close(&again);
    }
}

void rig_check(const struct Rig *rig, RigBody *body, const void *shape, bool same_bits) {
    for (enum Dtype d = F32; d < NDTYPE; d++) {
        for (int skew = 0; skew < 2; skew++) {
            struct Run oracle;
            run_body(&oracle, rig->device[0][0], 0, skew, body, d, shape);
            check_tables(rig, &oracle, body, d, shape, same_bits);
            run_close(&oracle);
        }
    }
}

void rig_each(const struct Rig *rig, RigBody *body, const void *shape) {
    for (enum Dtype d = F32; d < NDTYPE; d++) {
        for (int t = 0; t < rig->ntable; t++) {
            struct Run r;
            run_init(&r, rig->device[t][1], true);
            body(&r, d, shape);
            run_close(&r);
        }
    }
}

static double slope_of(const struct RigSlopes *s, float *x) {
    static const double weight[4] = {1, -8, 8, -1}; // of f at -2h, -h, h, 2h
    static const float step[4] = {-2, -1, 1, 2};
    float middle = *x;
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        *x = middle + step[i] * s->h;
        sum += weight[i] * s->f(s->context);
    }
    *x = middle;
    return sum / (12.0 * (double)s->h);
}

void rig_expect_slopes(const struct RigSlopes *s, const char *name, float *x, const float *gradient,
                       size_t n) {
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)gradient[i]));
    for (size_t i = 0; i < n; i += s->every ? s->every : 1) {
        double slope = slope_of(s, &x[i]), is = (double)gradient[i];
        if (!(fabs(slope - is) <= s->near * most))
            fail_msg("%s[%zu] is %g, its finite difference %g", name, i, is, slope);
    }
}
