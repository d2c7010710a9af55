// How near the memory-bound kernels come to a GPU's memory, at the sizes of GPT-2 124M and 1.5B,
// and the norms with more channels.
//
//   make MODE=gpu build/gpu/tests/bench_cuda && build/gpu/tests/bench_cuda [GPU]
//
// One line a kernel: what it moves, counting each byte that it must read or write once; its time,
// the bandwidth that this means, and the ratio to a device-to-device copy that moves as many bytes.
// Both are taken by bench_time.h, in batches of about BATCH_SECONDS. The runs take turns among
// several sets of operands, together far larger than the L2 cache: none finds its operands there.
// All numbers are random; a GPU is faster on zeros.
#include "tests/bench/bench_time.h"

#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_SETS = 8, MAX_BUFFERS = 16 * MAX_SETS, ARGS_BYTES = 256 };
static const double BATCH_SECONDS = 0.03;
static const size_t ROTATE_BYTES = 600u << 20; // a dozen times the L2 cache of an H200

struct Model {
    const char *name;
    size_t c, rows, t;       // rows: b * t
    size_t group, embedding; // parameters of a block and of wte; 0: the norms alone
};

static const struct Model models[] = {
    {"124M", 768, 8192, 1024, 7087872, 50304 * 768},
    {"124M", 768, 65536, 1024, 7087872, 50304 * 768},
    {"1.5B", 1600, 8192, 1024, 30740800, 50304 * 1600},
    {"1.5B", 1600, 32768, 1024, 30740800, 50304 * 1600},
    {"wide", 2568, 16384, 1024, 0, 0},
    {"wide", 5120, 8192, 1024, 0, 0},
};

enum { V = 50257, VP = 50304, HEAD_ROWS = 4096 };

struct Bench {
    struct Device *device;
    enum Dtype dtype;
    int sets;    // of operands
    size_t turn; // whose turn it is
    int buffers;
    void *buffer[MAX_BUFFERS];
    size_t buffer_bytes[MAX_BUFFERS];
    _Alignas(16) char args[MAX_SETS][ARGS_BYTES];
};

typedef void BenchRun(struct Bench *, const void *args);

// queue_OP puts kernel OP on the compute queue: one function per kernel, all of one type.
#define X(op, Args)                                                                                \
    __attribute__((unused)) static void queue_##op(struct Bench *b, const void *args) {            \
        b->device->kernels->op(b->device->queue[QUEUE_COMPUTE], args);                             \
    }
KERNEL_LIST(X)
#undef X

struct CopyArgs {
    void *dst;
    const void *src;
    size_t bytes;
};

static void queue_copy(struct Bench *b, const void *args) {
    const struct CopyArgs *a = args;
    device_copy(b->device, QUEUE_COMPUTE, a->dst, a->src, a->bytes);
}

static void *buffer_raw(struct Bench *b, size_t bytes) {
    CHECK(b->buffers < MAX_BUFFERS, "more than %d buffers", MAX_BUFFERS);
    void *mem = b->device->ops->alloc(b->device, bytes);
    CHECK(mem, "the GPU has no memory for %zu bytes", bytes);
    b->buffer_bytes[b->buffers] = bytes;
    return b->buffer[b->buffers++] = mem;
}

static void buffers_free(struct Bench *b) {
    device_sync_queue(b->device, QUEUE_COMPUTE);
    while (b->buffers) {
        b->buffers--;
        b->device->ops->free(b->device, b->buffer[b->buffers], b->buffer_bytes[b->buffers]);
    }
}

// n normal values, none of them of another buffer.
static void *buffer(struct Bench *b, enum Dtype d, size_t n, float mean, float std) {
    struct FillNormal fill = {.n = n, .seed = (uint64_t)b->buffers, .mean = mean, .std = std};
    void *mem = buffer_raw(b, n * dtype_size(d));
    if (d == F32) {
        fill.dst = mem;
        queue_fill_normal(b, &fill);
        return mem;
    }
    fill.dst = b->device->ops->alloc(b->device, n * sizeof(float));
    CHECK(fill.dst, "the GPU has no memory for %zu values", n);
    queue_fill_normal(b, &fill);
    queue_cast(b, &(struct Cast){.n = n, .dst_dtype = d, .dst = mem, .src = fill.dst});
    device_sync_queue(b->device, QUEUE_COMPUTE);
    b->device->ops->free(b->device, fill.dst, n * sizeof(float));
    return mem;
}

static void *upload(struct Bench *b, const void *values, size_t bytes) {
    void *mem = buffer_raw(b, bytes), *host = device_alloc_host(b->device, bytes);
    memcpy(host, values, bytes);
    device_copy(b->device, QUEUE_COMPUTE, mem, host, bytes);
    device_sync_queue(b->device, QUEUE_COMPUTE);
    device_free_host(b->device, host);
    return mem;
}

// As text: half of the places have few tokens, half have any.
static int32_t *tokens(struct Bench *b, size_t n) {
    int32_t *values = base_alloc(n * sizeof *values);
    for (size_t i = 0; i < n; i++)
        values[i] = (int32_t)(rng_bits((uint64_t)b->buffers, i) % (i % 2 ? V : 50));
    int32_t *mem = upload(b, values, n * sizeof *values);
    free(values);
    return mem;
}

// ---- timing ----

struct Turns {
    struct Bench *bench;
    BenchRun *run;
};

static void run_next(void *turns) {
    struct Turns *t = turns;
    struct Bench *b = t->bench;
    t->run(b, b->args[b->turn++ % (size_t)b->sets]);
}

static double time_of(struct Bench *b, BenchRun *run) {
    struct Turns turns = {b, run};
    return bench_time(&(struct Timed){b->device, run_next, &turns, (size_t)b->sets, BATCH_SECONDS});
}

// How many sets of operands that move so many bytes are larger than the cache by far.
static int sets_for(double bytes) {
    return (int)size_max(2, size_min(MAX_SETS, ROTATE_BYTES / size_max(1, (size_t)bytes) + 1));
}

static double time_copy(struct Device *device, double bytes) {
    struct Bench b = {.device = device, .dtype = F32, .sets = sets_for(bytes)};
    size_t half = round_up((size_t)(bytes / 2), 4);
    for (int i = 0; i < b.sets; i++) {
        struct CopyArgs a = {.bytes = half};
        a.src = buffer(&b, F32, half / 4, 0, 1);
        a.dst = buffer_raw(&b, half);
        memcpy(b.args[i], &a, sizeof a);
    }
    double seconds = time_of(&b, queue_copy);
    buffers_free(&b);
    return seconds;
}

// Times the kernel whose operands b->args holds, against the copy, and frees them.
static void report(struct Bench *b, const struct Model *m, const char *name, BenchRun *run,
                   double bytes) {
    double ours = time_of(b, run);
    buffers_free(b);
    double copy = time_copy(b->device, bytes);
    printf("%s %6zu rows  %-22s %-5s %8.1f MB %9.1f us %7.0f GB/s  %.2f of a copy\n", m->name,
           m->rows, name, dtype_name(b->dtype), bytes / 1e6, ours * 1e6, bytes / ours / 1e9,
           copy / ours);
    fflush(stdout);
}

// ---- kernels ----

static void bench_norm_forward(struct Bench *b, const struct Model *m) {
    size_t n = m->rows * m->c;
    enum Dtype d = b->dtype;
    double bytes = 4.0 * (double)(n * dtype_size(d)) + 8.0 * (double)m->rows;
    b->sets = sets_for(bytes);
    for (int i = 0; i < b->sets; i++) {
        struct NormForward a = {.rows = m->rows, .c = m->c, .dtype = d, .eps = 1e-5f};
        a.x = buffer(b, d, n, 0, 1);
        a.delta = buffer(b, d, n, 0, 1);
        a.sum = buffer_raw(b, n * dtype_size(d));
        a.y = buffer_raw(b, n * dtype_size(d));
        a.mean = buffer_raw(b, m->rows * sizeof(float));
        a.rstd = buffer_raw(b, m->rows * sizeof(float));
        a.weight = buffer(b, d, m->c, 1, 0.1f);
        a.bias = buffer(b, d, m->c, 0, 0.1f);
        memcpy(b->args[i], &a, sizeof a);
    }
    report(b, m, "norm_forward", queue_norm_forward, bytes);
}

static void bench_norm_backward(struct Bench *b, const struct Model *m) {
    size_t n = m->rows * m->c;
    enum Dtype d = b->dtype;
    double bytes = 4.0 * (double)(n * dtype_size(d)) + 8.0 * (double)m->rows;
    b->sets = sets_for(bytes);
    for (int i = 0; i < b->sets; i++) {
        struct NormBackward a = {.rows = m->rows, .c = m->c, .dtype = d, .grad_dtype = d};
        a.dy = buffer(b, d, n, 0, 1);
        a.x = buffer(b, d, n, 0, 1);
        a.dx = buffer(b, d, n, 0, 1);
        a.weight = buffer(b, d, m->c, 1, 0.1f);
        a.mean = buffer(b, F32, m->rows, 0, 0.1f);
        a.rstd = buffer(b, F32, m->rows, 1, 0.1f);
        a.dweight = buffer_raw(b, m->c * dtype_size(d));
        a.dbias = buffer_raw(b, m->c * dtype_size(d));
        a.work.bytes = b->device->kernels->norm_backward_work(b->device, &a);
        a.work.mem = buffer_raw(b, a.work.bytes);
        memcpy(b->args[i], &a, sizeof a);
    }
    report(b, m, "norm_backward", queue_norm_backward, bytes);
}

static void bench_gelu(struct Bench *b, const struct Model *m) {
    size_t n = 4 * m->rows * m->c;
    double bytes = 2.0 * (double)(n * dtype_size(b->dtype));
    b->sets = sets_for(bytes);
    for (int i = 0; i < b->sets; i++) {
        struct GeluForward a = {.n = n, .dtype = b->dtype, .x = buffer(b, b->dtype, n, 0, 1)};
        a.y = buffer_raw(b, n * dtype_size(b->dtype));
        memcpy(b->args[i], &a, sizeof a);
    }
    report(b, m, "gelu_forward", queue_gelu_forward, bytes);
}

// Rows of the table that are read again come from the cache; they count, as do those of dwte.
static void bench_embed(struct Bench *b, const struct Model *m) {
    size_t batch = m->rows / m->t, n = m->rows * m->c;
    enum Dtype d = b->dtype;
    double row_bytes = (double)(m->c * dtype_size(d));
    double bytes = (double)(2 * m->rows + m->t) * row_bytes + 4.0 * (double)m->rows;
    b->sets = sets_for(bytes);
    for (int i = 0; i < b->sets; i++) {
        struct EmbedForward a = {.b = batch, .t = m->t, .c = m->c, .v = VP, .dtype = d};
        a.tokens = tokens(b, m->rows);
        a.wte = buffer(b, d, m->embedding, 0, 0.02f);
        a.wpe = buffer(b, d, m->t * m->c, 0, 0.02f);
        a.out = buffer_raw(b, n * dtype_size(d));
        memcpy(b->args[i], &a, sizeof a);
    }
    report(b, m, "embed_forward", queue_embed_forward, bytes);
}

// dout is read twice, for tokens and for positions; each row of dwte whose token occurs is read and
// written: as many as rows / 2 draws among V find, and a few.
static void bench_embed_backward(struct Bench *b, const struct Model *m) {
    size_t batch = m->rows / m->t, n = m->rows * m->c;
    enum Dtype d = b->dtype;
    double distinct = V * (1 - exp(-0.5 * (double)m->rows / V));
    double rows = (double)(2 * m->rows + m->t) + 2 * distinct;
    double bytes = rows * (double)(m->c * dtype_size(d));
    b->sets = sets_for(bytes);
    for (int i = 0; i < b->sets; i++) {
        struct EmbedBackward a = {.b = batch, .t = m->t, .c = m->c, .v = VP, .dtype = d};
        a.grad_dtype = d;
        a.tokens = tokens(b, m->rows);
        a.dout = buffer(b, d, n, 0, 1);
        a.dwte = buffer(b, d, m->embedding, 0, 1);
        a.dwpe = buffer_raw(b, m->t * m->c * dtype_size(d));
        a.work.bytes = b->device->kernels->embed_backward_work(b->device, &a);
        a.work.mem = buffer_raw(b, a.work.bytes);
        memcpy(b->args[i], &a, sizeof a);
    }
    report(b, m, "embed_backward", queue_embed_backward, bytes);
}

static void bench_classifier(struct Bench *b, const struct Model *m) {
    size_t n = (size_t)HEAD_ROWS * VP;
    enum Dtype d = b->dtype;
    double bytes = 2.0 * (double)(n * dtype_size(d));
    b->sets = sets_for(bytes);
    for (int i = 0; i < b->sets; i++) {
        struct Classifier a = {.rows = HEAD_ROWS, .v = V, .vp = VP, .dtype = d, .backward = true};
        a.logits = buffer(b, d, n, 0, 3);
        a.targets = tokens(b, HEAD_ROWS);
        a.loss = buffer_raw(b, HEAD_ROWS * sizeof(float));
        a.dloss = 1;
        memcpy(b->args[i], &a, sizeof a);
    }
    report(b, m, "classifier, 4096 rows", queue_classifier, bytes);
}

// What a rank with a quarter of the vocabulary does before the ranks tell each other, and after.
static void bench_classifier_parts(struct Bench *b, const struct Model *m) {
    enum { PARTS = 4, PART_V = V / PARTS, PART_VP = VP / PARTS };
    static struct SoftmaxPart all[PARTS * HEAD_ROWS];
    size_t n = (size_t)HEAD_ROWS * PART_VP;
    enum Dtype d = b->dtype;
    double bytes = (double)(n * dtype_size(d));
    for (size_t i = 0; i < PARTS * HEAD_ROWS; i++)
        all[i] = (struct SoftmaxPart){12, 1, 1000};
    b->sets = sets_for(bytes);
    for (int i = 0; i < b->sets; i++) {
        struct ClassifierPart a = {HEAD_ROWS, PART_V, PART_VP, PART_VP, .dtype = d};
        a.logits = buffer(b, d, n, 0, 3);
        a.targets = tokens(b, HEAD_ROWS);
        a.part = buffer_raw(b, HEAD_ROWS * sizeof *a.part);
        memcpy(b->args[i], &a, sizeof a);
    }
    report(b, m, "classifier_part, 1/4", queue_classifier_part, bytes);
    b->sets = sets_for(2 * bytes);
    for (int i = 0; i < b->sets; i++) {
        struct ClassifierMerge a = {HEAD_ROWS, PART_V, PART_VP, PART_VP, PARTS, .dtype = d};
        a.logits = buffer(b, d, n, 0, 3);
        a.targets = tokens(b, HEAD_ROWS);
        a.all = upload(b, all, sizeof all);
        a.loss = buffer_raw(b, HEAD_ROWS * sizeof(float));
        a.dloss = 1;
        a.backward = true;
        memcpy(b->args[i], &a, sizeof a);
    }
    report(b, m, "classifier_merge, 1/4", queue_classifier_merge, 2 * bytes);
}

static void bench_sum(struct Bench *b, const struct Model *m, const char *name, size_t n) {
    double bytes = (double)(n * dtype_size(b->dtype));
    b->sets = sets_for(bytes);
    for (int i = 0; i < b->sets; i++) {
        struct Sum a = {.n = n, .dtype = b->dtype, .square = true};
        a.x = buffer(b, b->dtype, n, 0, 1);
        a.out = buffer_raw(b, sizeof(double));
        memcpy(b->args[i], &a, sizeof a);
    }
    report(b, m, name, queue_sum, bytes);
}

static void bench_adamw(struct Bench *b, const struct Model *m, const char *name, size_t n) {
    static const struct StepState state = {.lr = 1e-4f,
                                           .beta1 = 0.9f,
                                           .beta2 = 0.95f,
                                           .eps = 1e-8f,
                                           .weight_decay = 0.1f,
                                           .correction = {1, 1},
                                           .loss_scale = {1, 1, 0},
                                           .grad_scale = 1};
    enum Dtype d = b->dtype;
    size_t each = d == F32 ? 28 : 24 + 2 * dtype_size(d); // of fp32: master is the parameter
    double bytes = (double)(n * each);
    b->sets = sets_for(bytes);
    for (int i = 0; i < b->sets; i++) {
        struct AdamW a = {.n = n, .n_decay = n, .grad_dtype = d, .param_dtype = d};
        a.master = buffer(b, F32, n, 0, 0.02f);
        a.m = buffer(b, F32, n, 0, 1e-3f);
        a.v = buffer(b, F32, n, 1e-3f, 1e-5f);
        a.grad = buffer(b, d, n, 0, 1e-2f);
        a.param = d == F32 ? NULL : buffer_raw(b, n * dtype_size(d));
        a.state = upload(b, &state, sizeof state);
        memcpy(b->args[i], &a, sizeof a);
    }
    report(b, m, name, queue_adamw, bytes);
}

static void bench_rank_sum(struct Bench *b, const struct Model *m) {
    enum { RANKS = 4 };
    static void *src[MAX_SETS][RANKS];
    size_t n = m->group / RANKS;
    double bytes = (double)((RANKS + 1) * n * dtype_size(b->dtype));
    b->sets = sets_for(bytes);
    for (int i = 0; i < b->sets; i++) {
        for (int r = 0; r < RANKS; r++)
            src[i][r] = buffer(b, b->dtype, n, 0, 1);
        struct RankSum a = {.n = n, .ranks = RANKS, .dtype = b->dtype, .src = src[i]};
        a.dst = buffer_raw(b, n * dtype_size(b->dtype));
        memcpy(b->args[i], &a, sizeof a);
    }
    report(b, m, "rank_sum, 4 ranks", queue_rank_sum, bytes);
}

static void bench_model(struct Bench *b, const struct Model *m, bool first_of_model) {
    bench_norm_forward(b, m);
    bench_norm_backward(b, m);
    if (!m->group)
        return;
    bench_gelu(b, m);
    bench_embed(b, m);
    bench_embed_backward(b, m);
    if (!first_of_model)
        return; // what follows does not depend on the rows
    bench_classifier(b, m);
    bench_classifier_parts(b, m);
    bench_sum(b, m, "sum of squares, block", m->group);
    bench_sum(b, m, "sum of squares, wte", m->embedding);
    bench_adamw(b, m, "adamw, block", m->group);
    bench_adamw(b, m, "adamw, wte", m->embedding);
    bench_rank_sum(b, m);
}

int main(int argc, char **argv) {
    struct Error e = {0};
    struct Bench b = {0};
    char *end = "";
    long index = argc > 1 ? strtol(argv[1], &end, 10) : 0;
    if (*end || index < 0 || index > 1023) {
        fprintf(stderr, "bench_cuda: GPU %s: give a number from 0 on\n", argv[1]);
        return 2;
    }
    if (device_open_cuda(&b.device, (int)index, &e) != 0) {
        fprintf(stderr, "bench_cuda: %s\n", e.text);
        return 2;
    }
    for (b.dtype = F32; b.dtype <= BF16; b.dtype++)
        for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
            bench_model(&b, &models[i], i == 0 || models[i].c != models[i - 1].c);
    device_close(b.device);
    return 0;
}
