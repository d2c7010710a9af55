// A step's kernels as a GPU ran them: see step_kernels.h.
//
// The step's time is that of steps that nobody traces. The kernels' times come from one more step,
// traced: its events cost the GPU a little, so that kernels of some microseconds look longer than
// they are, and the gaps shorter.
#include "zero/state.h"
#include "kernels/trace.h"
#include "tests/bench/bench_time.h"
#include "tests/cusim/sim.h"
#include "tests/bench/step_kernels.h"
#include "tests/lib/tiny.h"

#include <stdlib.h>
#include <string.h>

// ---- ceilings ----

struct Copy {
    struct Device *device;
    void *to, *from;
    size_t bytes;
};

static void run_copy(void *context) {
    const struct Copy *c = context;
    device_copy(c->device, QUEUE_COMPUTE, c->to, c->from, c->bytes);
}

struct Product {
    struct Device *device;
    struct Matmul args;
};

static void run_product(void *context) {
    struct Product *p = context;
    p->device->kernels->matmul(p->device->queue[QUEUE_COMPUTE], &p->args);
}

static void *memory(struct Device *d, size_t bytes) {
    void *mem = d->ops->alloc(d, bytes);
    CHECK(mem, "the GPU has no memory for %zu bytes", bytes);
    return mem;
}

// n normal values in bf16.
static void *normal(struct Device *d, size_t n, uint64_t seed) {
    struct Stream *s = d->queue[QUEUE_COMPUTE];
    float *values = memory(d, n * sizeof *values);
    void *mem = memory(d, n * dtype_size(BF16));
    d->kernels->fill_normal(s, &(struct FillNormal){.n = n, .dst = values, .seed = seed, .std = 1});
    d->kernels->cast(s, &(struct Cast){n, BF16, F32, mem, values});
    device_sync_queue(d, QUEUE_COMPUTE);
    d->ops->free(d, values, n * sizeof *values);
    return mem;
}

static double copy_rate(struct Device *d, size_t bytes) {
    size_t n = bytes / dtype_size(BF16);
    struct Copy c = {d, memory(d, bytes), normal(d, n, 1), n * dtype_size(BF16)};
    double seconds = bench_time(&(struct Timed){d, run_copy, &c, 1, 0.03});
    d->ops->free(d, c.to, bytes);
    d->ops->free(d, c.from, bytes);
    return 2 * (double)c.bytes / seconds;
}

static double product_rate(struct Device *d, size_t side) {
    size_t n = side * side, bytes = n * dtype_size(BF16);
    struct Product p = {.device = d, .args = {.m = side, .n = side, .k = side}};
    struct Matmul *a = &p.args;
    a->a = (struct Mat){normal(d, n, 2), BF16, side, false, NULL};
    a->b = (struct Mat){normal(d, n, 3), BF16, side, true, NULL};
    a->c = (struct Mat){memory(d, bytes), BF16, side, false, NULL};
    a->work.bytes = d->kernels->matmul_work(d, a);
    a->work.mem = memory(d, a->work.bytes);
    double seconds = bench_time(&(struct Timed){d, run_product, &p, 1, 0.03});
    void *operands[] = {a->a.data, a->b.data, a->c.data};
    for (int i = 0; i < 3; i++)
        d->ops->free(d, operands[i], bytes);
    d->ops->free(d, a->work.mem, a->work.bytes);
    return 2 * (double)n * (double)side / seconds;
}

struct StepCeilings step_ceilings(struct Device *d, size_t copy_bytes, size_t side) {
    return (struct StepCeilings){copy_rate(d, copy_bytes), product_rate(d, side)};
}

// ---- a step ----

// Steps as ./train makes them: each is queued before the result of the last is awaited. Times are
// told from result to result.
static double median_step(struct Rank *r, size_t steps) {
    size_t timed = steps * 3 / 4;
    double *seconds = base_alloc(timed * sizeof *seconds), last = 0;
    tiny_queue_step(r);
    for (size_t i = 0; i < steps; i++) {
        if (i + 1 < steps)
            tiny_queue_step(r);
        tiny_take_step(r);
        double now = base_seconds();
        if (i >= steps - timed)
            seconds[i - (steps - timed)] = now - last;
        last = now;
    }
    double median = bench_median(seconds, timed);
    free(seconds);
    return median;
}

// ---- the traced step ----

static void forget(struct Rank *r) {
    zero_sync(&r->zero);
    r->device->ops->collect(r->device);
    for (int q = 0; q < NQUEUE; q++)
        r->trace->ring[q].count = 0;
    sim_launches();
}

static void add_record(struct StepMeasured *m, enum Queue q, const struct TraceRecord *t) {
    struct StepRow row = {.queue = q,
                          .name = t->name,
                          .count = 1,
                          .launches = t->launches,
                          .flops = t->cost.flops,
                          .bytes = t->cost.bytes,
                          .seconds = t->end - t->begin};
    memcpy(row.shape, t->cost.shape, sizeof row.shape);
    step_add(&m->rows, &row);
}

// A queue's records do not overlap, and lie in order.
static void read_trace(const struct Trace *t, struct StepMeasured *m) {
    double first = INFINITY, last = 0;
    for (int q = 0; q < NQUEUE; q++) {
        const struct TraceRing *ring = &t->ring[q];
        CHECK(ring->count <= TRACE_RING, "a step of %llu operations, %d are kept",
              (unsigned long long)ring->count, TRACE_RING);
        for (uint64_t i = 0; i < ring->count; i++) {
            const struct TraceRecord *r = &ring->record[i];
            if (trace_is_record(r) || trace_is_wait(r)) // they only order the queues
                continue;
            add_record(m, (enum Queue)q, r);
            first = fmin(first, r->begin);
            last = fmax(last, r->end);
            m->busy_s += q == QUEUE_COMPUTE ? r->end - r->begin : 0;
        }
    }
    m->traced_s = last - first;
}

int step_measure(const struct RankSettings *s, size_t steps, struct StepMeasured *out,
                 struct Error *e) {
    struct Rank r;
    *out = (struct StepMeasured){0};
    CHECK(steps >= 4, "%zu steps", steps);
    int err = rank_open(&r, s, false, e);
    if (!err) {
        zero_init_weights(&r.zero, 1);
        out->step_s = median_step(&r, steps);
        r.trace = trace_open(r.device, "");
        tiny_queue_step(&r); // opens the events
        tiny_take_step(&r);
        forget(&r);
        tiny_queue_step(&r);
        tiny_take_step(&r);
        zero_sync(&r.zero);
        out->launches = sim_launches();
        r.device->ops->collect(r.device);
        read_trace(r.trace, out);
        out->products = device_describe_choices(r.device);
    }
    rank_close(&r);
    return err;
}

// ---- the table ----

// The speed that binds: of two, the one that takes longer at its ceiling.
static void print_rate(FILE *f, const struct StepRow *r, const struct StepCeilings *c) {
    bool product = r->flops / c->product > r->bytes / c->copy;
    double rate = (product ? r->flops : r->bytes) / r->seconds;
    fprintf(f, "%8.0f %-7s %5.2f\n", rate / (product ? 1e12 : 1e9), product ? "TFLOP/s" : "GB/s",
            rate / (product ? c->product : c->copy));
}

static void print_row(FILE *f, const struct StepRow *r, double step_s,
                      const struct StepCeilings *c) {
    fprintf(f, "%-24s %-34s %8u %10.1f %5.1f%% ", r->name, r->shape, r->launches, r->seconds * 1e6,
            100 * r->seconds / step_s);
    print_rate(f, r, c);
}

static void print_others(FILE *f, const struct StepMeasured *m) {
    static const char *const names[NQUEUE] = {"compute", "comm", "in", "out"};
    fprintf(f, "beside it:\n");
    for (size_t i = 0; i < m->rows.n; i++) {
        const struct StepRow *r = &m->rows.row[i];
        if (r->queue != QUEUE_COMPUTE)
            fprintf(f, "  %-5s %-24s %5u times %10.1f us %10.1f MB\n", names[r->queue], r->name,
                    r->count, r->seconds * 1e6, r->bytes / 1e6);
    }
}

void step_print(FILE *f, const char *model, const struct RankSettings *s,
                const struct StepMeasured *m, const struct StepCeilings *c) {
    double tokens = (double)(s->batch * s->nmicro * s->model.seq_len);
    unsigned launches = 0;
    fprintf(f, "%s batch %zu: %.0f tokens/s, %.3f ms a step\n", model, s->batch, tokens / m->step_s,
            m->step_s * 1e3);
    fprintf(f,
            "recompute %s; in the same run a copy moves %.0f GB/s, a product makes %.0f TFLOP/s\n",
            recompute_name(s->recompute), c->copy / 1e9, c->product / 1e12);
    fprintf(f, "%-24s %-34s %8s %10s %6s %16s %5s\n", "kernel", "shape", "launches", "us", "share",
            "rate", "ratio");
    for (size_t i = 0; i < m->rows.n; i++)
        if (m->rows.row[i].queue == QUEUE_COMPUTE) {
            print_row(f, &m->rows.row[i], m->step_s, c);
            launches += m->rows.row[i].launches;
        }
    fprintf(f, "%-59s %8u %10.1f %5.1f%%\n", "sum", launches, m->busy_s * 1e6,
            100 * m->busy_s / m->step_s);
    fprintf(f, "%-68s %10.1f %5.1f%%\n", "gaps (the step less the sum)",
            (m->step_s - m->busy_s) * 1e6, 100 * (m->step_s - m->busy_s) / m->step_s);
    fprintf(f, "%-68s %10.1f\n", "the traced step, first to last operation", m->traced_s * 1e6);
    print_others(f, m);
    fprintf(f, "products:\n%s", m->products);
}
