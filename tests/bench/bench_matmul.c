// How fast the matmul kernel is at the shapes of training, per dtype: GFLOP/s, and as a share of a
// large square product by the same kernel in the same run. Best of 5. Where oneDNN is built in, its
// rate stands beside ours (for bf16 only where the CPU has units for it: emulated, it takes
// minutes).
//
//   build/release/tests/bench_matmul [THREADS]
//
// R is rows (batch x time), the other sizes are GPT-2 124M's, its head in chunks of 512 rows, and
// those of a model with 128 channels.
#include "kernels/cpu/matmul.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RUNS = 5 };

// A linear layer with weights (n, k), and which of its three products.
enum Op { FORWARD, DX, DW, NOP };
struct Layer {
    const char *name;
    size_t rows, n, k;
};

static void *random_array(enum Dtype d, size_t n, uint64_t seed) {
    void *p = aligned_alloc(64, round_up(n * dtype_size(d), 64));
    CHECK(p, "no memory for %zu elements", n);
    for (size_t i = 0; i < n; i++)
        dtype_store(p, d, i, rng_uniform(seed, i) - 0.5f);
    return p;
}

static struct Matmul layer_product(const struct Layer *l, enum Op op, enum Dtype d) {
    struct Matmul p = {.m = l->rows, .n = l->n, .k = l->k};
    if (op == DX)
        p.n = l->k, p.k = l->n;
    if (op == DW)
        p.m = l->n, p.n = l->k, p.k = l->rows;
    p.a = (struct Mat){NULL, d, op == DW ? p.m : p.k, op == DW, NULL};
    p.b = (struct Mat){NULL, d, op == FORWARD ? p.k : p.n, op == FORWARD, NULL};
    p.c = (struct Mat){NULL, d, p.n, false, NULL};
    return p;
}

// Best FLOP/s of RUNS.
static double measure(struct Device *d, struct Matmul *p) {
    p->work.bytes = d->kernels->matmul_work(d, p);
    p->work.mem = d->ops->alloc(d, size_max(p->work.bytes, 64));
    double best = 1e30;
    for (int run = 0; run <= RUNS; run++) { // the first does not count
        double start = base_seconds();
        d->kernels->matmul(d->queue[QUEUE_COMPUTE], p);
        device_sync_queue(d, QUEUE_COMPUTE);
        double seconds = base_seconds() - start;
        if (run && seconds < best)
            best = seconds;
    }
    d->ops->free(d, p->work.mem, size_max(p->work.bytes, 64));
    return 2.0 * (double)(p->m * p->n * p->k) / best;
}

// Rates by our loops and by oneDNN; 0 where there is none.
struct Rates {
    double loops, dnnl;
};
static struct Rates rates(struct Device *d, const struct Layer *l, enum Op op, enum Dtype t) {
    struct MatmulCache *cache = ((struct Cpu *)d)->matmuls;
    struct Matmul p = layer_product(l, op, t);
    p.a.data = random_array(t, p.m * p.k, 1);
    p.b.data = random_array(t, p.k * p.n, 2);
    p.c.data = random_array(t, p.m * p.n, 3);
    struct Rates r = {0, 0};
    matmul_cache_force(cache, t, MATMUL_LOOPS);
    r.loops = measure(d, &p);
    if (matmul_dnnl_takes(t) && (t == F32 || matmul_cpu_has_bf16())) {
        matmul_cache_force(cache, t, MATMUL_DNNL);
        r.dnnl = measure(d, &p);
    }
    free(p.a.data);
    free(p.b.data);
    free(p.c.data);
    return r;
}

static void print_layer(struct Device *d, const struct Layer *l, enum Dtype t, double light) {
    static const char *const ops[NOP] = {"Y", "dX", "dW"};
    for (enum Op op = 0; op < NOP; op++) {
        struct Rates r = rates(d, l, op, t);
        double seconds = 2.0 * (double)(l->rows * l->n * l->k) / r.loops;
        printf("%-6s %-3s %-5s %5zu %6zu %6zu %9.1f %6.2f %10.0f", l->name, ops[op], dtype_name(t),
               l->rows, l->n, l->k, r.loops * 1e-9, r.loops / light, seconds * 1e6);
        if (r.dnnl > 0)
            printf(" %9.1f", r.dnnl * 1e-9);
        printf("\n");
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    static const struct Layer square = {"square", 2048, 2048, 2048};
    static const struct Layer layers[] = {{"qkv", 0, 2304, 768},
                                          {"proj", 0, 768, 768},
                                          {"fc", 0, 3072, 768},
                                          {"fcproj", 0, 768, 3072}};
    static const size_t rows[] = {256, 512, 2048};
    static const struct Layer others[] = {{"head", 512, 50304, 768},
                                          {"small", 768, 384, 128},
                                          {"small", 768, 512, 128},
                                          {"small", 768, 128, 512},
                                          {"tiny", 16, 16, 16}};
    int threads = argc > 1 ? atoi(argv[1]) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    struct Error e;
    struct Device *d;
    CHECK(device_open_cpu(&d, threads, NULL, &e) == 0, "%s", e.text);
    const char *library = matmul_backend_name();
    printf("kernels %s, %d threads, %s; light: a square product of %zu\n", d->kernels->name,
           threads, library ? library : "no oneDNN", square.n);
    printf("layer  op  dtype     R      N      K   GFLOP/s  light    us/call    oneDNN\n");
    for (enum Dtype t = F32; t < NDTYPE; t++) {
        struct Rates r = rates(d, &square, FORWARD, t);
        double light = r.loops;
        printf("%-6s Y   %-5s %5zu %6zu %6zu %9.1f   1.00 %10.0f\n", square.name, dtype_name(t),
               square.rows, square.n, square.k, light * 1e-9, 2e6 * 0x1p33 / light);
        for (int i = 0; i < 3; i++) {
            for (int j = 0; j < 4; j++) {
                struct Layer l = layers[j];
                l.rows = rows[i];
                print_layer(d, &l, t, light);
            }
        }
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
            print_layer(d, &others[i], t, light);
    }
    device_close(d);
    return 0;
}
