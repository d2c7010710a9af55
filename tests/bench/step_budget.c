// What a step takes at a GPU's limits: see step_kernels.h.
//
// A kernel takes what its operations or its bytes take at 0.9 of a limit, whichever is longer, and
// never less than its launches. Kernels of all queues are added up as if nothing ran beside
// anything else: those of the comm queue (the norm) share the memory with the others. Copies from
// and to the host are left out; they are some hundred KB.
//
// The limits are what the best programs get, not what data sheets say of arithmetic; the table
// names the source of each, or says that it is assumed.
#include "tests/bench/step_kernels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const double OF_LIMIT = 0.9;

// Of attention at T 1024 and head size 64, causal, FLOP/s: of a program that makes five products
// backward. Ours makes `backward` of them at the same rate.
struct AttentionRates {
    double forward, both, backward;
};

static const struct Gpu {
    const char *name;
    double memory;   // bytes for a rank: the card's, less a GB for CUDA itself
    double product;  // FLOP/s, dense, bf16
    double hbm;      // bytes/s
    double launch_s; // of a kernel that does nothing, in a full queue
    bool sums_apart; // bias gradients are made by our own kernels (kernels/cuda/blas_choose.c)
    struct AttentionRates mma, wgmma;
    const char *sources;
} gpus[] = {
    {"h100",
     79e9,
     750e12,
     3.35e12,
     2.5e-6,
     true,
     {229e12, 192e12, 7},
     {265e12, 222e12, 5},
     "- Products 750 TFLOP/s: cuBLAS sustains 716 to 795 on an H100 SXM and random numbers, where\n"
     "  its power limit lowers the clock; the data sheet's peak is 989.\n"
     "- Memory 3.35 TB/s: data sheet of the H100 SXM.\n"
     "- Attention with mma.sync 229 TFLOP/s forward: FlashAttention-2 in the figures of the\n"
     "  FlashAttention-3 paper (2024), causal, T 1024, head size 64. 192 forward and backward: "
     "the\n"
     "  FlashAttention-2 paper (2023), the same shape. Such instructions reach at most 63 to 65% "
     "of\n"
     "  Hopper's peak.\n"
     "- Of both at 192 and the forward pass at 229, the backward pass is at 5 / (7/192 - 2/229) =\n"
     "  180 TFLOP/s: seven products in all, two of them forward. FlashAttention-2 makes five\n"
     "  backward; ours makes seven, S and dP twice (kernels/cuda/attention_backward.cu), so at "
     "the\n"
     "  same rate of a product it is at 5/7 of that, 129 TFLOP/s counted as five.\n"
     "- Attention with wgmma 265 forward: FlashAttention-3, in the same figure. 222 for both is "
     "an\n"
     "  assumption, no more gain backward than forward; without the mask the paper has 363 "
     "against\n"
     "  FlashAttention-2's 238 backward. That is 209 backward, with five products; with seven it\n"
     "  would be 149.\n"
     "- A launch 2.5 us: an assumption.\n"},
    {"h200",
     140e9,
     750e12,
     4.8e12,
     2.5e-6,
     true,
     {229e12, 192e12, 7},
     {265e12, 222e12, 5},
     "- Memory 4.8 TB/s: data sheet of the H200. All else as of an H100, whose chip it is.\n"},
    {"a100",
     79e9,
     265e12,
     2.04e12,
     2.5e-6,
     false,
     {109e12, 97e12, 7},
     {0, 0, 0},
     "- Products 265 TFLOP/s: an assumption, 0.85 of the data sheet's peak of 312.\n"
     "- Memory 2.04 TB/s: data sheet of the A100 SXM with 80 GB.\n"
     "- Attention 109 and 97 TFLOP/s: an assumption, 0.35 and 0.31 of the peak.\n"
     "- A launch 2.5 us: an assumption.\n"},
};

// llm.c on H100s, tokens/s of one GPU of eight: with an all-reduce in each step.
static const struct Published {
    const char *model, *gpu;
    double tokens_per_s;
} published[] = {{"gpt2", "h100", 468e3}, {"gpt2-xl", "h100", 46.8e3}};

struct Request {
    const char *model, *batch;
    const struct Gpu *gpu;
    bool wgmma;
};

// ---- arguments ----

static int usage(struct Error *e, const char *what) {
    return error_set(e, -EINVAL, E_FLAG_STRAY_WORD,
                     "budget %s: expected MODEL BATCH [--gpu h100|h200|a100] [--hopper-attention]",
                     what);
}

static const struct Gpu *find_gpu(const char *name) {
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++)
        if (!strcmp(gpus[i].name, name))
            return &gpus[i];
    return NULL;
}

static int parse(int argc, char **argv, struct Request *r, struct Error *e) {
    *r = (struct Request){.gpu = &gpus[0]};
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--hopper-attention"))
            r->wgmma = true;
        else if (!strcmp(argv[i], "--gpu") && i + 1 < argc)
            r->gpu = find_gpu(argv[++i]);
        else if (argv[i][0] != '-' && !r->model)
            r->model = argv[i];
        else if (argv[i][0] != '-' && !r->batch)
            r->batch = argv[i];
        else
            return usage(e, argv[i]);
        if (!r->gpu)
            return usage(e, argv[i]);
    }
    if (!r->model || !r->batch)
        return usage(e, "without a model or a batch");
    if (r->wgmma && r->gpu->wgmma.forward == 0)
        return error_set(e, -EINVAL, E_GPU_CAPABILITY,
                         "--hopper-attention: an %s has no wgmma, expected h100 or h200",
                         r->gpu->name);
    return 0;
}

// ---- times ----

// FLOP/s of the row's operations, which counts five products of attention backward. Of the seven
// that `both` counts two are forward.
static double rate_of(const struct Request *q, const struct StepRow *r) {
    const struct AttentionRates *a = q->wgmma ? &q->gpu->wgmma : &q->gpu->mma;
    if (!strcmp(r->name, "attention_forward"))
        return a->forward;
    if (!strcmp(r->name, "attention_backward"))
        return 5 / a->backward * 5 / (7 / a->both - 2 / a->forward);
    return q->gpu->product;
}

static double seconds_of(const struct Request *q, const struct StepRow *r) {
    double products = r->flops / (OF_LIMIT * rate_of(q, r));
    double memory = r->bytes / (OF_LIMIT * q->gpu->hbm);
    return fmax(fmax(products, memory), r->launches * q->gpu->launch_s);
}

static bool is_counted(const struct StepRow *r) {
    return (r->queue == QUEUE_COMPUTE || r->queue == QUEUE_COMM) && strcmp(r->name, "copy") != 0;
}

// All rows together, their times filled in.
static struct StepRow sum_rows(const struct Request *q, struct StepRows *rows) {
    struct StepRow sum = {.name = "**all**"};
    for (size_t i = 0; i < rows->n; i++) {
        struct StepRow *r = &rows->row[i];
        if (!is_counted(r))
            continue;
        r->seconds = seconds_of(q, r);
        sum.launches += r->launches;
        sum.flops += r->flops;
        sum.bytes += r->bytes;
        sum.seconds += r->seconds;
    }
    return sum;
}

// ---- the text ----

static void print_row(FILE *f, const struct StepRow *r, double all_s) {
    fprintf(f, "| %s | %s | %u | %.0f | %.0f | %.2f | %.1f%% |\n", r->name, r->shape, r->launches,
            r->flops / 1e9, r->bytes / 1e6, r->seconds * 1e3, 100 * r->seconds / all_s);
}

static void print_speed(FILE *f, const struct Request *q, double tokens, double seconds) {
    fprintf(f, "\n%.1f ms a step, %.0f tokens/s", seconds * 1e3, tokens / seconds);
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        const struct Published *p = &published[i];
        if (!strcmp(p->model, q->model) && !strcmp(p->gpu, q->gpu->name))
            fprintf(f, ": %.2f of the %.1fk that llm.c has published",
                    tokens / seconds / p->tokens_per_s, p->tokens_per_s / 1e3);
    }
    fprintf(f, ".\n");
}

// What a run does beside, as far as its kernels are not there yet.
static void print_notes(FILE *f, const struct Request *q, const struct StepPaper *p) {
    double hbm = OF_LIMIT * q->gpu->hbm;
    fprintf(f,
            "Not counted: the classifier looks at its logits twice, the second time in the L2 "
            "cache. From memory\nthat would be %.0f MB, %.2f ms.\n",
            p->logits_bytes / 1e6, p->logits_bytes / hbm * 1e3);
}

static void print_budget(FILE *f, const struct Request *q, const struct RankSettings *s,
                         size_t peak, struct StepPaper *p) {
    struct StepRow sum = sum_rows(q, &p->rows);
    fprintf(f, "%s, batch %zu, T %zu, bf16, recompute %s: %.0f of %.0f GB. Attention with %s.\n\n",
            q->model, s->batch, s->model.seq_len, recompute_name(s->recompute), (double)peak / 1e9,
            q->gpu->memory / 1e9, q->wgmma ? "wgmma" : "mma.sync");
    fprintf(f, "| kernel | shape | launches | GFLOP | MB | ms | share |\n"
               "|---|---|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < p->rows.n; i++)
        if (is_counted(&p->rows.row[i]))
            print_row(f, &p->rows.row[i], sum.seconds);
    print_row(f, &sum, sum.seconds);
    print_speed(f, q, (double)(s->batch * s->model.seq_len), sum.seconds);
    print_notes(f, q, p);
}

int step_budget(FILE *out, int argc, char **argv, struct Error *e) {
    struct Request q;
    struct RankSettings s;
    struct StepPaper p;
    size_t peak;
    int err = parse(argc, argv, &q, e);
    if (!err)
        err = step_settings(q.model, q.batch, &s, e);
    if (!err)
        err = step_fit(&s, q.gpu->memory, &peak, e);
    if (!err)
        err = step_count(&s, q.gpu->sums_apart, &p, e);
    if (err)
        return err;
    print_budget(out, &q, &s, peak, &p);
    return 0;
}

void step_limits(FILE *out) {
    fprintf(out, "| GPU | products | memory | attention forward, both | by wgmma | launch |\n"
                 "|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
        const struct Gpu *g = &gpus[i];
        fprintf(out, "| %s | %.0f TFLOP/s | %.2f TB/s | %.0f, %.0f TFLOP/s | ", g->name,
                g->product / 1e12, g->hbm / 1e12, g->mma.forward / 1e12, g->mma.both / 1e12);
        if (g->wgmma.forward > 0)
            fprintf(out, "%.0f, %.0f TFLOP/s | ", g->wgmma.forward / 1e12, g->wgmma.both / 1e12);
        else
            fprintf(out, "none | ");
        fprintf(out, "%.1f us |\n", g->launch_s * 1e6);
    }
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++)
        fprintf(out, "\n%s:\n\n%s", gpus[i].name, gpus[i].sources);
}
