// How fast attention is over a long sequence: dense, in a window of 512, and sparse, with 12 heads
// of 64 channels and T = 8192.
//
//   build/release/tests/bench_long [threads] [table]      tables: base, avx2, avx512
//
// The three take turns, so that a noisy machine disturbs them alike; ratios are medians over 7
// turns. The window visits 7.4 times fewer tiles; copies of queries, keys and values remain. Of the
// sparse one the time for a score is told, as a multiple of dense attention's: at most 1.25.
#include "tests/bench/bench_kernel.h"

#include "model/sparse.h"

#include <string.h>

enum { NH = 12, HS = 64, C = NH * HS, LONG_T = 8192, WINDOW = 512, LONG_RUNS = 7 };

// Passes over a long sequence.
struct Long {
    struct AttentionForward forward;
    struct AttentionBackward backward;
    double seconds[2][LONG_RUNS]; // forward, backward
};

// A window of 0 is none, and so is a layout without lists.
static void long_open(struct Bench *b, size_t window, const struct Layout *layout, struct Long *l) {
    enum Dtype d = b->dtype;
    const struct Kernels *k = b->device->kernels;
    struct AttentionForward *f = &l->forward;
    *f = (struct AttentionForward){1, LONG_T, NH, NH, HS, .dtype = d};
    f->qkv = buffer(b, d, 3 * LONG_T * C);
    int32_t *first = buffer_raw(b, LONG_T * sizeof *first);
    for (size_t i = 0; i < LONG_T; i++)
        first[i] = (int32_t)(i + 1 > window ? i + 1 - window : 0);
    f->first = window ? first : NULL;
    f->layout = *layout;
    f->out = buffer(b, d, LONG_T * C);
    f->lse = buffer(b, F32, NH * LONG_T);
    f->work = scratch(b, k->attention_forward_work(b->device, f));
    struct AttentionBackward *g = &l->backward;
    *g =
        (struct AttentionBackward){1, LONG_T, NH, NH, HS, .dtype = d, .qkv = f->qkv, .out = f->out};
    g->first = f->first;
    g->layout = *layout;
    g->lse = f->lse;
    g->dout = buffer(b, d, LONG_T * C);
    g->dqkv = buffer(b, d, 3 * LONG_T * C);
    g->work = scratch(b, k->attention_backward_work(b->device, g));
}

static void long_run(struct Bench *b, struct Long *l, int i) {
    l->seconds[0][i] = time_once(b->device, queue_attention_forward, &l->forward);
    l->seconds[1][i] = time_once(b->device, queue_attention_backward, &l->backward);
}

static double long_median(const struct Long *l, int pass) {
    double seconds[LONG_RUNS]; // the median sorts, and turns stay as they were
    memcpy(seconds, l->seconds[pass], sizeof seconds);
    return bench_median(seconds, LONG_RUNS);
}

static void long_report(const struct Bench *b, const struct Long *l, const char *what) {
    printf("attention, T %d, %-7s%-5s %9.3f ms forward %9.3f ms backward\n", LONG_T, what,
           dtype_name(b->dtype), long_median(l, 0) * 1e3, long_median(l, 1) * 1e3);
}

// The median over the turns of how long dense attention takes for one second of another.
static double long_ratio(const struct Long *dense, const struct Long *other, int pass) {
    double ratio[LONG_RUNS];
    for (int i = 0; i < LONG_RUNS; i++)
        ratio[i] = dense->seconds[pass][i] / other->seconds[pass][i];
    return bench_median(ratio, LONG_RUNS);
}

static void bench_long(struct Bench *b) {
    struct Sparse sparse;
    struct Error e;
    struct Layout none = {0}, layout = {0};
    struct SparseHeads heads = {&sparse, 0};
    struct Long dense, window, some;
    size_t bytes;
    CHECK(!sparse_read(&sparse, "fixed:block=64,num_local_blocks=8", &e), "%s", e.text);
    double share = sparse_share(&sparse, 0, 1, LONG_T, 0);
    uint32_t *lists = layout_make(&layout, LONG_T, 1, sparse_cells, &heads, &bytes);
    layout.begin = lists;
    long_open(b, 0, &none, &dense);
    long_open(b, WINDOW, &none, &window);
    long_open(b, 0, &layout, &some);
    for (int i = 0; i < LONG_RUNS; i++) {
        long_run(b, &dense, i);
        long_run(b, &window, i);
        long_run(b, &some, i);
    }
    long_report(b, &dense, "dense");
    long_report(b, &window, "window");
    printf("%-20s %-5s %.1f times faster forward, %.1f backward\n", "  the window is",
           dtype_name(b->dtype), long_ratio(&dense, &window, 0), long_ratio(&dense, &window, 1));
    long_report(b, &some, "sparse");
    printf("%-20s %-5s %.3f of the scores; each takes %.2f times as long forward, %.2f backward\n",
           "  the sparse one has", dtype_name(b->dtype), share,
           1 / (share * long_ratio(&dense, &some, 0)), 1 / (share * long_ratio(&dense, &some, 1)));
    buffers_free(b);
    free(lists);
}

int main(int argc, char **argv) {
    struct Bench b = {0};
    int threads = bench_open(&b, "bench_long", argc, argv);
    if (!threads)
        return 2;
    printf("table %s, %d threads, medians of %d\n", b.device->kernels->name, threads, LONG_RUNS);
    for (b.dtype = F32; b.dtype < NDTYPE; b.dtype++)
        bench_long(&b);
    device_close(b.device);
    return 0;
}
