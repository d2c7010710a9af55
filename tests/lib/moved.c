// See moved.h. Formats are bf16 with fp32 where a step has it so, and all operands begin at
// multiples of 64 bytes, so the launchers take the templates that move whole packs. What a kernel
// must move is what kernels/cost.h says, and the scratch that it leaves to the next one. Of several
// kernels the one that goes through the operands is held to it, the others to what they touch.
#include "tests/lib/moved.h"

#include "kernels/cost.h"
#include "kernels/cuda/blas.h"
#include "tests/cusim/blas_sim.h"
#include "tests/lib/rig.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Case {
    struct Run run;
    struct MovedRows *rows;
    char operands[MOVED_TEXT];
};

static const struct Kernels *kernels(const struct Case *c) {
    return c->run.device->kernels;
}
static void *in(struct Case *c, enum Dtype d, size_t n) {
    return input_random(&c->run, d, n, 0.5f, 1);
}
static void *zeros(struct Case *c, size_t bytes) {
    void *host = base_alloc_zeroed(bytes), *mem = output_bytes(&c->run, "y", bytes, host);
    free(host);
    return mem;
}

// From here on the case's kernels are counted.
__attribute__((format(printf, 2, 3))) static void count(struct Case *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(c->operands, sizeof c->operands, format, args);
    va_end(args);
    device_sync_queue(c->run.device, QUEUE_COMPUTE);
    sim_count(true);
}
static struct Moved *new_row(struct Case *c, const char *kernel, double bytes) {
    CHECK(c->rows->n < MAX_MOVED, "more than %d kernels", MAX_MOVED);
    struct Moved *m = &c->rows->row[c->rows->n++];
    *m = (struct Moved){.by_cost = bytes > 0, .least = bytes / 32};
    snprintf(m->kernel, sizeof m->kernel, "%s", kernel);
    memcpy(m->operands, c->operands, sizeof m->operands);
    return m;
}

static void add_counts(struct SimCounts *to, const struct SimCounts *c) {
    to->asked += c->asked;
    to->moved += c->moved;
    to->again += c->again;
    to->touched += c->touched;
    to->passes += c->passes;
    to->ideal += c->ideal;
}

// Takes the counts down, and ends the case. What must move so many bytes: that kernel, or all of
// them together under another name.
static void counted(struct Case *c, const char *what, double bytes) {
    struct Device *device = c->run.device;
    struct SimCounts sum = {0};
    bool found = !what;
    const char *name;
    device_sync_queue(device, QUEUE_COMPUTE);
    for (size_t i = 0; (name = sim_counted(i)); i++) {
        bool it = what && strcmp(name, what) == 0;
        struct Moved *m = new_row(c, name, it ? bytes : 0);
        m->counts = sim_counts(name);
        if (!it)
            m->least = (double)m->counts.touched;
        add_counts(&sum, &m->counts);
        found |= it;
    }
    if (!found)
        new_row(c, what, bytes)->counts = sum;
    sim_count(false);
    run_close(&c->run);
    run_init(&c->run, device, false);
}

// ---- norms, and what goes through an array once ----

static void norm_forward(struct Case *c, size_t rows, size_t channels, bool sum) {
    struct NormForward a = {.rows = rows, .c = channels, .dtype = BF16, .eps = 1e-5f};
    a.x = in(c, BF16, rows * channels);
    a.delta = sum ? in(c, BF16, rows * channels) : NULL;
    a.sum = sum ? in(c, BF16, rows * channels) : NULL;
    a.y = in(c, BF16, rows * channels);
    a.mean = in(c, F32, rows);
    a.rstd = in(c, F32, rows);
    a.weight = in(c, BF16, channels);
    a.bias = in(c, BF16, channels);
    count(c, "%zu x %zu%s", rows, channels, sum ? ", sum" : "");
    sim_count_small(a.weight, channels * 2);
    sim_count_small(a.bias, channels * 2);
    kernels(c)->norm_forward(compute(&c->run), &a);
    counted(c, "norm_forward_kernel", cost_norm_forward(&a).bytes);
}

static void norm_backward(struct Case *c, size_t rows, size_t channels) {
    struct NormBackward a = {.rows = rows, .c = channels, .dtype = BF16, .grad_dtype = BF16};
    a.dy = in(c, BF16, rows * channels);
    a.x = in(c, BF16, rows * channels);
    a.dx = in(c, BF16, rows * channels);
    a.weight = in(c, BF16, channels);
    a.mean = in(c, F32, rows);
    a.rstd = in(c, F32, rows);
    a.dweight = in(c, BF16, channels);
    a.dbias = in(c, BF16, channels);
    a.work = scratch(&c->run, kernels(c)->norm_backward_work(c->run.device, &a));
    count(c, "%zu x %zu", rows, channels);
    sim_count_small(a.weight, channels * 2);
    kernels(c)->norm_backward(compute(&c->run), &a);
    double sums = (double)a.work.bytes / NORM_BLOCKS * 8; // PTX_TURNING_BLOCKS of the simulator
    counted(c, "norm_backward_rows_kernel", cost_norm_backward(&a).bytes + sums);
}

static void gelu(struct Case *c) {
    struct GeluForward a = {.n = 1 << 18, .dtype = BF16};
    a.x = in(c, BF16, a.n);
    a.y = in(c, BF16, a.n);
    count(c, "%zu", a.n);
    kernels(c)->gelu_forward(compute(&c->run), &a);
    counted(c, "gelu_forward_kernel", cost_gelu_forward(&a).bytes);
}

static void dropout(struct Case *c) {
    struct Dropout a = {.rows = 64, .cols = 4096, .dtype = BF16, .scale = 2, .p = 0.1f};
    a.stride = a.cols;
    a.x = in(c, BF16, a.rows * a.cols);
    a.y = in(c, BF16, a.rows * a.cols);
    count(c, "%zu x %zu", a.rows, a.cols);
    kernels(c)->dropout(compute(&c->run), &a);
    counted(c, "dropout_kernel", cost_dropout(&a).bytes);
}

static void swiglu(struct Case *c) {
    enum { ROWS = 64, N = 4096 };
    struct SwigluForward f = {ROWS, N, BF16, in(c, BF16, ROWS * 2 * N), in(c, BF16, ROWS * N)};
    count(c, "%d x %d", ROWS, N);
    kernels(c)->swiglu_forward(compute(&c->run), &f);
    counted(c, "swiglu_forward_kernel", cost_swiglu_forward(&f).bytes);
    struct SwigluBackward b = {ROWS, N, BF16, in(c, BF16, ROWS * 2 * N), in(c, BF16, ROWS * N), 0};
    b.dx = in(c, BF16, ROWS * 2 * N);
    count(c, "%d x %d", ROWS, N);
    kernels(c)->swiglu_backward(compute(&c->run), &b);
    counted(c, "swiglu_backward_kernel", cost_swiglu_backward(&b).bytes);
}

static void sum(struct Case *c) {
    struct Sum a = {.n = 3 << 18, .dtype = BF16, .square = true};
    a.x = in(c, BF16, a.n);
    a.out = zeros(c, sizeof *a.out);
    count(c, "%zu", a.n);
    kernels(c)->sum(compute(&c->run), &a);
    counted(c, "sum_chunks_kernel", cost_sum(&a).bytes);
}

static void step_clip(struct Case *c) {
    struct StepClip a = {.ranks = 4, .n = 49, .stride = 52, .stages = 1};
    a.squares = zeros(c, a.ranks * a.stride * sizeof *a.squares);
    a.state = zeros(c, sizeof *a.state);
    count(c, "%zu x %zu", a.ranks, a.n);
    kernels(c)->step_clip(compute(&c->run), &a);
    counted(c, NULL, 0);
}

static void adamw(struct Case *c, enum MasterFormat format, enum Dtype moments) {
    struct StepState state = {.lr = 1e-3f,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .eps = 1e-8f,
                              .correction = {1, 1},
                              .grad_scale = 1};
    struct AdamW a = {.n = 1 << 17, .grad_dtype = BF16, .param_dtype = BF16};
    a.master_format = format;
    a.moments_dtype = moments;
    a.master = in(c, master_dtype(format), a.n);
    a.m = zeros(c, a.n * dtype_size(moments));
    a.v = zeros(c, a.n * dtype_size(moments));
    a.grad = in(c, BF16, a.n);
    a.param = format == MASTER_BF16 ? NULL : in(c, BF16, a.n);
    a.state = input_bytes(&c->run, sizeof state, &state);
    count(c, "%zu, %s, moments %s", a.n, master_name(format), dtype_name(moments));
    sim_count_small(a.state, sizeof state);
    kernels(c)->adamw(compute(&c->run), &a);
    counted(c, "adamw_kernel", cost_adamw(&a).bytes);
}

static void cast(struct Case *c) {
    struct Cast a = {.n = 1 << 18, .dst_dtype = BF16, .src_dtype = F32};
    a.src = in(c, F32, a.n);
    a.dst = in(c, BF16, a.n);
    count(c, "%zu, fp32 to bf16", a.n);
    kernels(c)->cast(compute(&c->run), &a);
    counted(c, "cast_kernel", cost_cast(&a).bytes);
    struct FillNormal f = {.n = 1 << 16, .dst = in(c, F32, 1 << 16), .std = 1};
    count(c, "%zu", f.n);
    kernels(c)->fill_normal(compute(&c->run), &f);
    counted(c, "fill_normal_kernel", cost_fill_normal(&f).bytes);
}

// ---- embedding, classifier ----

enum { BATCH = 4, TOKENS = 1024, WIDTH = 768, ROWS = BATCH * TOKENS };

// As text: half of the places have few tokens. all: each token once, as cost.h has it.
static const int32_t *tokens(struct Case *c, size_t n, size_t v, bool all) {
    int32_t *values = base_alloc(n * sizeof *values);
    for (size_t i = 0; i < n; i++)
        values[i] = (int32_t)(all ? i * 7 % n : rng_bits(5, i) % (i % 2 ? v : 20));
    const int32_t *mem = input_bytes(&c->run, n * sizeof *values, values);
    free(values);
    return mem;
}

static void embed_forward(struct Case *c) {
    struct EmbedForward a = {.b = 2, .t = 256, .c = WIDTH, .v = 512, .dtype = BF16};
    a.tokens = tokens(c, 512, 512, true);
    a.wte = in(c, BF16, a.v * a.c);
    a.wpe = in(c, BF16, a.t * a.c);
    a.out = in(c, BF16, a.b * a.t * a.c);
    count(c, "%zu x %zu x %zu", a.b, a.t, a.c);
    sim_count_small(a.wpe, a.t * a.c * 2);
    kernels(c)->embed_forward(compute(&c->run), &a);
    counted(c, "embed_forward_kernel", cost_embed_forward(&a).bytes);
}

static void embed_backward(struct Case *c, bool documents) {
    static int32_t starts[BATCH * TOKENS];
    struct EmbedBackward a = {.b = documents ? 1 : BATCH, .t = TOKENS, .c = WIDTH, .v = ROWS};
    size_t n = a.b * a.t;
    for (size_t i = 0; i < n; i++)
        starts[i] = (int32_t)(i % TOKENS / 300 * 300);
    a.dtype = a.grad_dtype = BF16;
    a.tokens = tokens(c, n, ROWS, !documents);
    a.starts = documents ? input_bytes(&c->run, n * sizeof *starts, starts) : NULL;
    a.dout = in(c, BF16, n * a.c);
    a.dwte = in(c, BF16, a.v * a.c);
    a.dwpe = in(c, BF16, a.t * a.c);
    a.work = scratch(&c->run, kernels(c)->embed_backward_work(c->run.device, &a));
    count(c, "%zu x %zu x %zu%s", a.b, a.t, a.c, documents ? ", documents" : "");
    kernels(c)->embed_backward(compute(&c->run), &a);
    counted(c, documents ? NULL : "embed_backward", cost_embed_backward(&a).bytes);
}

enum { V = 50257, VP = 50304, LOGIT_ROWS = 12, PARTS = 4 };

static void classifier(struct Case *c) {
    struct Classifier a = {.rows = LOGIT_ROWS, .v = V, .vp = VP, .dtype = BF16};
    a.logits = in(c, BF16, a.rows * VP);
    a.targets = tokens(c, a.rows, V, false);
    a.loss = in(c, F32, a.rows);
    a.dloss = 1;
    a.backward = true;
    count(c, "%zu x %zu", a.rows, a.vp);
    kernels(c)->classifier(compute(&c->run), &a);
    counted(c, "classifier_kernel", cost_classifier(&a).bytes);
}

static void classifier_parts(struct Case *c, bool backward) {
    size_t v = V / PARTS, vp = VP / PARTS;
    struct ClassifierPart p = {.rows = LOGIT_ROWS, .v = v, .vp = vp, .dtype = BF16};
    p.logits = in(c, BF16, p.rows * vp);
    p.targets = tokens(c, p.rows, V, false);
    p.part = zeros(c, p.rows * sizeof *p.part);
    if (backward) {
        count(c, "%zu x %zu", p.rows, p.vp);
        kernels(c)->classifier_part(compute(&c->run), &p);
        counted(c, "classifier_part_kernel", cost_classifier_part(&p).bytes);
    }
    struct ClassifierMerge m = {.rows = backward ? LOGIT_ROWS : 512, .v = v, .vp = vp};
    m.parts = PARTS;
    m.dtype = BF16;
    m.logits = in(c, BF16, LOGIT_ROWS * vp);
    m.targets = tokens(c, m.rows, V, false);
    m.all = zeros(c, PARTS * m.rows * sizeof *m.all);
    m.loss = in(c, F32, m.rows);
    m.dloss = 1;
    m.backward = backward;
    count(c, "%zu x %zu, %d parts", m.rows, m.vp, PARTS);
    kernels(c)->classifier_merge(compute(&c->run), &m);
    counted(c, backward ? "classifier_gradients_kernel" : "classifier_losses_kernel",
            cost_classifier_merge(&m).bytes);
}

// ---- ranks, and numbers of few bits ----

static void ranks(struct Case *c) {
    void *src[4];
    size_t n = 1 << 16;
    for (int i = 0; i < 4; i++)
        src[i] = in(c, BF16, n);
    struct RankSum s = {.n = n, .ranks = 4, .dtype = BF16, .src = src, .dst = in(c, BF16, n)};
    count(c, "%zu of 4", n);
    kernels(c)->rank_sum(compute(&c->run), &s);
    counted(c, "rank_sum_kernel", cost_rank_sum(&s).bytes);
    for (int i = 0; i < 4; i++)
        src[i] = in(c, BF16, n);
    struct RankGather g = {.bytes = 2 * n, .ranks = 4, .skip = 4, .src = src};
    g.dst = in(c, BF16, 4 * n);
    count(c, "%zu bytes of 4", g.bytes);
    kernels(c)->rank_gather(compute(&c->run), &g);
    counted(c, "rank_gather_kernel", cost_rank_gather(&g).bytes);
}

static void quantize(struct Case *c, int bits, enum Dtype d) {
    size_t n = 1 << 15, parts = 4;
    struct Quantize q = {.n = n, .parts = parts, .columns = 1, .bits = bits, .dtype = d};
    q.x = in(c, d, n * parts);
    q.to = zeros(c, parts * quantized_bytes(bits, n));
    count(c, "%zu x %zu, %s to %d bits", parts, n, dtype_name(d), bits);
    kernels(c)->quantize(compute(&c->run), &q);
    counted(c, "quantize_kernel", cost_quantize(&q).bytes);
    struct Dequantize o = {.n = n, .parts = 1, .ranks = parts, .bits = bits, .dtype = d};
    o.from = zeros(c, parts * quantized_bytes(bits, n));
    o.x = in(c, d, n);
    o.accumulate = true;
    count(c, "%zu x %zu, %d bits to %s", parts, n, bits, dtype_name(d));
    kernels(c)->dequantize(compute(&c->run), &o);
    counted(c, "dequantize_kernel", cost_dequantize(&o).bytes);
    struct Requantize r = {.n = n, .parts = 1, .ranks = parts, .bits = bits};
    r.from = zeros(c, parts * quantized_bytes(bits, n));
    r.to = zeros(c, quantized_bytes(bits, n));
    if (d != BF16)
        return;
    count(c, "%zu x %zu, %d bits", parts, n, bits);
    kernels(c)->requantize(compute(&c->run), &r);
    counted(c, "requantize_kernel", cost_requantize(&r).bytes);
}

static void nf4(struct Case *c, enum Dtype d) {
    struct Nf4Quantize q = {.n = 8 * NF4_RUN, .dtype = d};
    q.x = in(c, d, q.n);
    q.to = zeros(c, nf4_bytes(q.n));
    count(c, "%zu, %s", q.n, dtype_name(d));
    kernels(c)->nf4_quantize(compute(&c->run), &q);
    counted(c, "nf4_quantize_kernel", cost_nf4_quantize(&q).bytes);
    struct Nf4Dequantize o = {.n = q.n, .dtype = d, .x = in(c, d, q.n)};
    o.from = zeros(c, nf4_bytes(o.n));
    count(c, "%zu, %s", o.n, dtype_name(d));
    kernels(c)->nf4_dequantize(compute(&c->run), &o);
    counted(c, "nf4_dequantize_kernel", cost_nf4_dequantize(&o).bytes);
}

// ---- attention, and before it ----

static void rotate(struct Case *c) {
    struct RotateForward f = {.b = 8, .t = 128, .nh = 8, .nkv = 2, .hs = 128, .dtype = BF16};
    size_t n = f.b * f.t * (f.nh + 2 * f.nkv) * f.hs;
    f.eps = 1e-6f;
    f.table = in(c, F32, f.t * f.hs);
    f.q_norm = in(c, BF16, f.hs);
    f.k_norm = in(c, BF16, f.hs);
    f.x = in(c, BF16, n);
    f.y = in(c, BF16, n);
    count(c, "%zu x %zu, %zu + %zu x %zu", f.b, f.t, f.nh, f.nkv, f.hs);
    sim_count_small(f.table, f.t * f.hs * 4);
    sim_count_small(f.q_norm, f.hs * 2);
    sim_count_small(f.k_norm, f.hs * 2);
    kernels(c)->rotate_forward(compute(&c->run), &f);
    counted(c, "rotate_forward_kernel", cost_rotate_forward(&f).bytes);
    struct RotateBackward b = {.b = f.b, .t = f.t, .nh = f.nh, .nkv = f.nkv, .hs = f.hs};
    b.dtype = b.grad_dtype = BF16;
    b.eps = f.eps;
    b.table = in(c, F32, f.t * f.hs);
    b.q_norm = in(c, BF16, f.hs);
    b.k_norm = in(c, BF16, f.hs);
    b.x = in(c, BF16, n);
    b.dy = in(c, BF16, n);
    b.dq_norm = in(c, BF16, f.hs);
    b.dk_norm = in(c, BF16, f.hs);
    b.work = scratch(&c->run, kernels(c)->rotate_backward_work(c->run.device, &b));
    count(c, "%zu x %zu, %zu + %zu x %zu", f.b, f.t, f.nh, f.nkv, f.hs);
    sim_count_small(b.table, f.t * f.hs * 4);
    sim_count_small(b.q_norm, f.hs * 2);
    sim_count_small(b.k_norm, f.hs * 2);
    kernels(c)->rotate_backward(compute(&c->run), &b);
    counted(c, "rotate_backward_kernel", cost_rotate_backward(&b).bytes + (double)b.work.bytes);
}

static void attention(struct Case *c, enum Dtype d, size_t t, size_t hs) {
    struct AttentionForward f = {.b = 1, .t = t, .nh = 2, .nkv = 2, .hs = hs, .dtype = d};
    size_t n = t * 2 * hs;
    f.qkv = in(c, d, 3 * n);
    f.out = in(c, d, n);
    f.lse = in(c, F32, 2 * t);
    count(c, "1 x %zu, 2 x %zu %s", t, hs, dtype_name(d));
    kernels(c)->attention_forward(compute(&c->run), &f);
    counted(c, d == F32 ? "attention_forward_plain_kernel" : "attention_forward_mma_kernel",
            cost_attention_forward(&f).bytes);
    struct AttentionBackward b = {.b = 1, .t = t, .nh = 2, .nkv = 2, .hs = hs, .dtype = d};
    b.qkv = in(c, d, 3 * n);
    b.out = in(c, d, n);
    b.dout = in(c, d, n);
    b.lse = in(c, F32, 2 * t);
    b.dqkv = in(c, d, 3 * n);
    b.work = scratch(&c->run, kernels(c)->attention_backward_work(c->run.device, &b));
    count(c, "1 x %zu, 2 x %zu %s", t, hs, dtype_name(d));
    kernels(c)->attention_backward(compute(&c->run), &b);
    counted(c, "attention_backward", cost_attention_backward(&b).bytes);
}

// A token of one sequence, behind a full cache.
static void attention_cached(struct Case *c) {
    struct AttentionCached a = {.b = 1, .t = 1, .nh = 8, .nkv = 2, .hs = 128, .capacity = 512};
    int32_t start = -511;
    a.dtype = a.cache_dtype = BF16;
    a.starts = input_bytes(&c->run, sizeof start, &start);
    a.qkv = in(c, BF16, (a.nh + 2 * a.nkv) * a.hs);
    a.cache = in(c, BF16, 2 * a.nkv * a.capacity * a.hs);
    a.out = in(c, BF16, a.nh * a.hs);
    count(c, "1 of %zu, %zu of %zu x %zu", a.capacity, a.nh, a.nkv, a.hs);
    kernels(c)->attention_cached(compute(&c->run), &a);
    counted(c, "attention_cached_kernel", cost_attention_cached(&a).bytes);
}

// ---- beside products ----

// Beside cuBLASLt. k 0: a bias gradient, sums of A; else GELU's slope.
static void matmul(struct Case *c, const char *refused, size_t k, bool transposed, enum Dtype from,
                   enum Dtype to) {
    struct Matmul a = {.m = 768, .n = 8, .k = 512, .accumulate = from != BF16};
    if (k)
        a = (struct Matmul){.m = 64, .n = 1024, .k = k};
    a.a = (struct Mat){in(c, from, a.m * a.k), from, transposed ? a.m : a.k, transposed, NULL};
    a.b = (struct Mat){in(c, from, a.k * a.n), from, a.n, false, NULL};
    a.c = (struct Mat){in(c, to, a.m * a.n), to, a.n, false, NULL};
    a.dgelu = k ? in(c, to, a.m * a.n) : NULL;
    a.dbias = k ? NULL : in(c, to, a.m);
    a.work = scratch(&c->run, kernels(c)->matmul_work(c->run.device, &a));
    sim_blas_refuse((struct BlasRefusal){.form = refused});
    count(c, "%zu x %zu x %zu, %s", a.m, a.n, a.k, k ? "dgelu" : "dbias");
    (k && !refused ? cuda_gelu_slope : kernels(c)->matmul)(compute(&c->run), &a);
    counted(c, NULL, 0);
    sim_blas_refuse((struct BlasRefusal){0});
}

void moved_all(struct MovedRows *rows) {
    struct Case c = {.rows = rows};
    struct Error e = {0};
    struct Device *device;
    rows->n = 0;
    CHECK(device_open_cuda(&device, 0, &e) == 0, "%s", e.text);
    run_init(&c.run, device, false);
    norm_forward(&c, 256, 768, false);
    norm_forward(&c, 256, 768, true);
    norm_forward(&c, 256, 1600, true);
    norm_backward(&c, 4096, 768);
    norm_backward(&c, 4096, 1600);
    gelu(&c);
    dropout(&c);
    swiglu(&c);
    embed_forward(&c);
    embed_backward(&c, false);
    embed_backward(&c, true);
    classifier(&c);
    classifier_parts(&c, true);
    classifier_parts(&c, false);
    sum(&c);
    step_clip(&c);
    adamw(&c, MASTER_FP32, F32);
    adamw(&c, MASTER_SPLIT, F32);
    adamw(&c, MASTER_BF16, BF16);
    cast(&c);
    ranks(&c);
    quantize(&c, 8, BF16);
    quantize(&c, 4, BF16);
    quantize(&c, 8, F32);
    nf4(&c, BF16);
    nf4(&c, F32);
    rotate(&c);
    attention(&c, BF16, 256, 64);
    attention(&c, BF16, 256, 128);
    attention(&c, F32, 128, 64);
    attention_cached(&c);
    matmul(&c, NULL, 0, true, BF16, BF16);
    matmul(&c, NULL, 0, true, F16, F32);
    matmul(&c, NULL, 0, false, BF16, BF16);
    matmul(&c, "dgelu", 8, false, BF16, BF16);
    matmul(&c, NULL, 8, false, BF16, BF16);
    device_close(device);
}
