// A training step that is only counted: see step_kernels.h.
//
// A dry rank has all but memory. Its device gets a table whose kernels add their cost to a row, and
// queues that do nothing; then zero/step.c walks through a step as it always does. So what is
// counted is what a run would launch, with no second list of a step's kernels to keep in step.
//
// Only how many launches a kernel takes is written down here once more; test_step_kernels.c holds
// it against what the CUDA backend launches.
#include "tests/bench/step_kernels.h"

#include <stdio.h>
#include <stdio.h>
#include <string.h>

// A queue of this device.
struct Stream {
    struct StepPaper *paper;
    enum Queue queue;
};

static void add(struct Stream *s, const char *name, unsigned launches, struct Cost cost) {
    struct StepRow row = {.queue = s->queue,
                          .name = name,
                          .count = 1,
                          .launches = launches,
                          .flops = cost.flops,
                          .bytes = cost.bytes};
    memcpy(row.shape, cost.shape, sizeof row.shape);
    step_add(&s->paper->rows, &row);
}

// ---- kernels: of one launch, and the others ----

#define X(op, Args)                                                                                \
    static void count_##op(struct Stream *s, const struct Args *a) {                               \
        add(s, #op, 1, cost_##op(a));                                                              \
    }
KERNEL_LIST(X)
#undef X

// Sums of A's rows by themselves: pieces, and their sum.
static void count_dbias(struct Stream *s, const struct Matmul *a) {
    size_t sums = (a->accumulate ? 2 : 1) * a->m * dtype_size(a->c.dtype);
    struct Cost cost = {.bytes = (double)(a->m * a->k * dtype_size(a->a.dtype) + sums)};
    snprintf(cost.shape, sizeof cost.shape, "%zu x %zu", a->k, a->m);
    add(s, "matmul dbias", 2, cost);
}

// GELU is a pass of its own (matmul.c says why), and so are bias gradients on 9.0 (blas_choose.c).
static void count_matmul_parts(struct Stream *s, const struct Matmul *a) {
    struct Matmul product = *a;
    struct GeluForward gelu = {.n = a->m * a->n, .dtype = a->c.dtype};
    bool apart = a->dbias && s->paper->sums_apart;
    product.gelu = NULL;
    product.dbias = apart ? NULL : a->dbias;
    count_matmul(s, &product);
    if (a->gelu)
        count_gelu_forward(s, &gelu);
    if (apart)
        count_dbias(s, a);
}

static void count_norm_backward_twice(struct Stream *s, const struct NormBackward *a) {
    add(s, "norm_backward", 2, cost_norm_backward(a)); // rows, and sums over them
}

static void count_attention_backward_twice(struct Stream *s, const struct AttentionBackward *a) {
    add(s, "attention_backward", 2, cost_attention_backward(a)); // dQ; dK and dV
}

static void count_rotate_backward_parts(struct Stream *s, const struct RotateBackward *a) {
    unsigned launches = a->dq_norm || a->dk_norm ? 2 : 1; // heads; sums for the norms' weights
    add(s, "rotate_backward", launches, cost_rotate_backward(a));
}

static void count_sum_twice(struct Stream *s, const struct Sum *a) {
    add(s, "sum", 2, cost_sum(a)); // chunks, and their sum
}

// Each pass of the sort counts, adds up and moves; tokens, those that tiles cut, and positions.
static void count_embed_backward_parts(struct Stream *s, const struct EmbedBackward *a) {
    unsigned passes = 1;
    while ((a->v + 1) >> 8 * passes)
        passes++;
    bool cut = a->b * a->t > 64;
    add(s, "embed_backward", 3 * passes + 2 + cut, cost_embed_backward(a));
}

static void count_classifier_logits(struct Stream *s, const struct Classifier *a) {
    count_classifier(s, a);
    s->paper->logits_bytes += (double)(a->rows * a->vp * dtype_size(a->dtype));
}

static struct Kernels counting(const struct Kernels *real) {
    struct Kernels k = *real; // whose answers about scratch stay
#define X(op, Args) k.op = count_##op;
    KERNEL_LIST(X)
#undef X
    k.matmul = count_matmul_parts;
    k.norm_backward = count_norm_backward_twice;
    k.attention_backward = count_attention_backward_twice;
    k.rotate_backward = count_rotate_backward_parts;
    k.sum = count_sum_twice;
    k.embed_backward = count_embed_backward_parts;
    k.classifier = count_classifier_logits;
    return k;
}

// ---- queues ----

static void count_copy(struct Stream *s, void *dst, const void *src, size_t bytes) {
    (void)dst;
    (void)src;
    add(s, "copy", 1, (struct Cost){.bytes = (double)bytes});
}

static void count_zero(struct Stream *s, void *dst, size_t bytes) {
    (void)dst;
    add(s, "zero", 1, (struct Cost){.bytes = (double)bytes});
}

static void no_event(struct Stream *s, struct Event *e) {
    (void)s;
    (void)e;
}

// ---- the step ----

// Operands that nobody follows, but that are there.
static void set_operands(struct Zero *z, void *mem) {
    for (int g = 0; g < z->params->ngroup; g++) {
        struct GroupState *s = &z->state[g];
        struct Block *blocks[] = {&s->param, &s->grad, &s->master, &s->m, &s->v};
        for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
            if (blocks[i]->bytes)
                blocks[i]->mem = mem;
    }
}

static void walk(struct Rank *r) {
    struct StepState settings = {.clip = 1}, sent;
    uint64_t word;
    char somewhere[64];
    struct Zero *z = &r->zero;
    set_operands(z, somewhere);
    z->reports->host_copy[0].sent = &sent;
    z->reports->host_copy[0].sent_word = &word;
    zero_step_begin(z, &settings);
    zero_step_pass(z, &z->pass[0], &r->acts);
    zero_step_pass(z, &z->pass[1], &r->acts);
    zero_step_end(z, false);
    z->reports->host_copy[0].sent = NULL;
    z->reports->host_copy[0].sent_word = NULL;
    set_operands(z, NULL);
}

int step_count(const struct RankSettings *s, bool sums_apart, struct StepPaper *out,
               struct Error *e) {
    struct Rank r;
    *out = (struct StepPaper){.sums_apart = sums_apart};
    int err = rank_open(&r, s, true, e);
    if (!err) {
        struct Device opened = *r.device;
        struct Kernels kernels = counting(opened.kernels);
        struct DeviceOps ops = *opened.ops;
        struct Stream queue[NQUEUE];
        ops.copy = count_copy;
        ops.zero = count_zero;
        ops.record = ops.wait = no_event;
        r.device->kernels = &kernels;
        r.device->ops = &ops;
        for (int q = 0; q < NQUEUE; q++) {
            queue[q] = (struct Stream){out, (enum Queue)q};
            r.device->queue[q] = &queue[q];
        }
        walk(&r);
        *r.device = opened;
    }
    rank_close(&r);
    return err;
}
