// Measures the matmul rate (kernels/speed.h), through the kernel table like any other caller, and
// the speed of copies, through the queues.
//
// The shapes are large and typical of training, so a choice that suits one shape alone does not
// inflate the rate. The best of repeated runs counts, since disturbances only slow a run down.
// Nothing here is specific to the CPU: it measures any device whose memory a copy can fill.
#include "kernels/speed.h"
#include "kernels/cost.h"
#include "kernels/kernels.h"
#include "kernels/step_state.h"

#include <math.h>
#include <stdlib.h>

enum { WIDE = 2304, NARROW = 768 }; // the products' other dimensions
// Minimum seconds of a run, so that the time of queuing and waiting does not matter; one product
// takes longer than this on a CPU.
static const double RUN_SECONDS = 2e-3;
static const double SHAPE_SECONDS = 0.1; // for all runs of a shape and dtype

struct MatmulShape {
    size_t m, n, k;
    bool a_transposed, b_transposed;
};

// The buffers of the measurement. a and b are filled anew for each dtype.
struct Bench {
    struct Device *device;
    void *a, *b, *c, *work;
    size_t work_bytes, elements; // of the largest operand
};

static struct Matmul matmul_of(const struct MatmulShape *s, enum Dtype d, const struct Bench *b) {
    return (struct Matmul){
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .a = {b->a, d, s->a_transposed ? s->m : s->k, s->a_transposed, NULL},
        .b = {b->b, d, s->b_transposed ? s->k : s->n, s->b_transposed, NULL},
        .c = {b->c, d, s->n, false, NULL},
        .work = {b->work, b->work_bytes},
    };
}

// Returns FLOP/s of the best of several runs; the first warms caches and threads.
static double measure_matmul(struct Bench *b, const struct MatmulShape *s, enum Dtype d) {
    struct Device *device = b->device;
    struct Matmul query = matmul_of(s, d, b);
    b->work_bytes = size_max(device->kernels->matmul_work(device, &query), 64);
    b->work = device->ops->alloc(device, b->work_bytes);
    if (!b->work)
        base_out_of_memory(b->work_bytes, "scratch of a measurement");
    struct Matmul args = matmul_of(s, d, b);
    double best = 0, end = base_seconds() + SHAPE_SECONDS;
    size_t together = 1; // products of a run
    // At least three runs, unless a single one (of the oracle, for example) takes the time of all.
    for (int run = 0; run < 3 || base_seconds() < end; run++) {
        if (run > 0 && base_seconds() > end + SHAPE_SECONDS)
            break;
        double start = base_seconds();
        for (size_t i = 0; i < together; i++)
            device->kernels->matmul(device->queue[QUEUE_COMPUTE], &args);
        device_sync_queue(device, QUEUE_COMPUTE);
        double seconds = (base_seconds() - start) / (double)together;
        double rate = 2.0 * (double)(s->m * s->n * s->k) / seconds;
        if (rate > best)
            best = rate;
        together = (size_t)fmin(1 + RUN_SECONDS / seconds, 100);
    }
    device->ops->free(device, b->work, b->work_bytes);
    return best;
}

// Zeros would distort the result on machines that slow down when many bits switch.
static void fill_randomly(struct Bench *b, void *mem, enum Dtype d) {
    size_t bytes = b->elements * dtype_size(d);
    void *host = base_alloc(bytes);
    for (size_t i = 0; i < b->elements; i++)
        dtype_store(host, d, i, rng_uniform(1, i) - 0.5f);
    device_copy(b->device, QUEUE_COMPUTE, mem, host, bytes);
    device_sync_queue(b->device, QUEUE_COMPUTE);
    free(host);
}

static double best_of_shapes(struct Bench *b, enum Dtype d) {
    size_t rows = b->device->busy_rows;
    const struct MatmulShape shapes[] = {
        {rows, WIDE, NARROW, false, true},
        {rows, NARROW, WIDE, false, false},
        {WIDE, NARROW, rows, true, false},
    };
    fill_randomly(b, b->a, d);
    fill_randomly(b, b->b, d);
    double best = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        double rate = measure_matmul(b, &shapes[i], d);
        best = rate > best ? rate : best;
    }
    return best;
}

double matmul_speed_of_light(struct Device *device, enum Dtype dtype) {
    struct Bench b = {.device = device, .elements = device->busy_rows * WIDE};
    size_t bytes = b.elements * sizeof(float);
    void **parts[] = {&b.a, &b.b, &b.c};
    for (int i = 0; i < 3; i++) {
        *parts[i] = device->ops->alloc(device, bytes);
        if (!*parts[i])
            base_out_of_memory(bytes, "a measurement of the matmul rate");
    }
    double best = best_of_shapes(&b, F32);
    if (dtype != F32) {
        double rate = best_of_shapes(&b, dtype);
        best = rate > best ? rate : best;
    }
    for (int i = 0; i < 3; i++)
        device->ops->free(device, *parts[i], bytes);
    return best;
}

// ---- copies ----

enum { COPY_BYTES = 128 << 20 }; // larger than any cache
static const double COPY_SECONDS = 0.2;

double copy_speed(struct Device *d, enum Queue q) {
    void *mem = d->ops->alloc(d, COPY_BYTES), *host = d->ops->alloc_host(d, COPY_BYTES);
    double best = 0, end = base_seconds() + COPY_SECONDS;
    for (int run = 0; mem && host && (run < 3 || base_seconds() < end); run++) {
        double start = base_seconds();
        device_copy(d, q, q == QUEUE_IN ? mem : host, q == QUEUE_IN ? host : mem, COPY_BYTES);
        device_sync_queue(d, q);
        best = fmax(best, COPY_BYTES / (base_seconds() - start));
    }
    if (mem)
        d->ops->free(d, mem, COPY_BYTES);
    device_free_host(d, host);
    return best;
}

// ---- updates ----

static const double UPDATE_SECONDS = 0.2;

// Returns the next `bytes` of memory that holds *used so far; with mem NULL it only measures.
static void *part_of(char *mem, size_t *used, size_t bytes) {
    char *part = mem ? mem + *used : NULL;
    *used += round_up(bytes, 64);
    return part;
}

// Lays out the arrays of an update in `mem`, and returns their bytes.
static size_t lay_out_update(struct AdamW *a, bool has_param, char *mem) {
    size_t used = 0;
    a->master = part_of(mem, &used, a->n * dtype_size(master_dtype(a->master_format)));
    a->m = part_of(mem, &used, a->n * dtype_size(a->moments_dtype));
    a->v = part_of(mem, &used, a->n * dtype_size(a->moments_dtype));
    a->grad = part_of(mem, &used, a->n * dtype_size(a->grad_dtype));
    a->param = has_param ? part_of(mem, &used, a->n * dtype_size(a->param_dtype)) : NULL;
    a->state = part_of(mem, &used, sizeof *a->state);
    return used;
}

static double best_of_updates(struct Device *d, const struct AdamW *a) {
    double best = 0, end = base_seconds() + UPDATE_SECONDS, bytes = cost_adamw(a).bytes;
    size_t together = 1;
    for (int run = 0; run < 3 || base_seconds() < end; run++) {
        double start = base_seconds();
        for (size_t i = 0; i < together; i++)
            d->kernels->adamw(d->queue[QUEUE_COMPUTE], a);
        device_sync_queue(d, QUEUE_COMPUTE);
        double seconds = (base_seconds() - start) / (double)together;
        best = fmax(best, bytes / seconds);
        together = (size_t)fmin(1 + RUN_SECONDS / seconds, 100);
    }
    return best;
}

double update_speed(struct Device *d, const struct AdamW *like) {
    struct AdamW a = *like;
    size_t bytes = lay_out_update(&a, like->param != NULL, NULL);
    char *mem = d->ops->alloc(d, bytes);
    if (!mem)
        return 0;
    lay_out_update(&a, like->param != NULL, mem);
    struct StepState state = {.eps = 1, .corrections = {{1, 1}, {1, 1}}};
    device_zero(d, QUEUE_COMPUTE, mem, bytes); // NaN or denormals could be slow
    device_copy(d, QUEUE_COMPUTE, (void *)a.state, &state, sizeof state);
    device_sync_queue(d, QUEUE_COMPUTE);
    double best = best_of_updates(d, &a);
    d->ops->free(d, mem, bytes);
    return best;
}
