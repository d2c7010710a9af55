// The least that a GPU must do before anything else is worth its time.
//
//   gpu_smoke list             the names of all checks, one a line
//   gpu_smoke NAME... [ROWS]   runs these; ROWS: tokens of a product's batch (256)
//   gpu_smoke hold             has the GPU open until its standard input ends
//
// Most of what a check takes is to open the GPU, so that those of one kind run in one process.
// After each there is a line, `NAME: right, 12 ms` or `NAME: WRONG, 12 ms`. A check may end its
// process: a kernel that faults takes the GPU's context along. The check that has no such line is
// then the one that did it; scripts/gpu_check.sh, which starts all this, goes on after it with
// another process. While one process holds a GPU its driver stays loaded: others open it sooner.
//
//   libraries      opens the GPU, cuBLASLt and NCCL as ./train does, and says which files those are
//   kernel         one conversion of numbers
//   attention-...  the tensor cores' kernels and the plain ones against the CPU's oracle
//   matmul-...     each product that training has, in each format, against a product in double,
//                  and twice with the same bits: smoke_product.c
//
// An error is told as a norm, relative to the result's: rounding to a format moves it by no more
// than half a unit. TF32 in place of fp32 would be seen, as would a forgotten bias. The largest
// error of one element has a limit as well, so that one element that is wrong is seen.
//
// Status 0: right; 1: wrong, and the line says by how much; 2: bad arguments. Tested in the
// simulator by test_gpu_smoke.sh. The kernels' full tests are test_blas.c and test_kernels_*.c.
#include "tests/cusim/sim.h"
#include "tests/bench/smoke.h"
#include "zero/comm/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 256, MOST_ROWS = 1 << 15 };

struct Device *smoke_open(void) {
    static struct Device *d; // one for all checks
    struct Error e = {0};
    if (d || device_open_cuda(&d, 0, &e) == 0)
        return d;
    printf("%s\n", e.text);
    exit(1);
}

void *smoke_upload(struct Device *d, const void *values, size_t bytes) {
    void *mem = d->ops->alloc(d, bytes);
    CHECK(mem, "no memory for %zu bytes", bytes);
    device_copy(d, QUEUE_COMPUTE, mem, values, bytes);
    device_sync_queue(d, QUEUE_COMPUTE);
    return mem;
}

void smoke_download(struct Device *d, void *values, const void *mem, size_t bytes) {
    device_copy(d, QUEUE_COMPUTE, values, mem, bytes);
    device_sync_queue(d, QUEUE_COMPUTE);
}

void *smoke_normal(enum Dtype d, size_t n, uint64_t seed, float std) {
    void *values = base_alloc(n * dtype_size(d));
    for (size_t i = 0; i < n; i++)
        dtype_store(values, d, i, std * rng_normal(seed, i));
    return values;
}

bool smoke_is_near(const char *what, const void *got, enum Dtype d, const double *want, size_t n,
                   double limit, double limit_of_one) {
    double error = 0, size = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        double gap = fabs((double)dtype_load(got, d, i) - want[i]);
        error += gap * gap; // NaN from the first NaN on
        size += want[i] * want[i];
        largest = fmax(largest, gap);
    }
    double relative = sqrt(error / size), of_one = largest / sqrt(size / (double)n);
    bool near = relative <= limit && of_one <= limit_of_one;
    printf("%s%s: error %.2g (at most %.2g), of one element %.2g (at most %.2g)\n",
           near ? "" : "WRONG: ", what, relative, limit, of_one, limit_of_one);
    return near;
}

// ---- the first things ----

static int check_kernel(void) {
    enum { N = 100003 };
    struct Device *d = smoke_open();
    float *x = smoke_normal(F32, N, 1, 1);
    uint16_t *want = base_alloc(N * sizeof *want), *got = base_alloc(N * sizeof *got);
    for (size_t i = 0; i < N; i++)
        dtype_store(want, BF16, i, x[i]);
    struct Cast a = {.n = N, .dst_dtype = BF16, .src = smoke_upload(d, x, N * sizeof *x)};
    a.dst = d->ops->alloc(d, N * sizeof *got);
    CHECK(a.dst, "no memory for %d values", N);
    d->kernels->cast(d->queue[QUEUE_COMPUTE], &a);
    smoke_download(d, got, a.dst, N * sizeof *got);
    bool same = memcmp(got, want, N * sizeof *got) == 0;
    printf("%s\n", same ? "fp32 to bf16: right" : "WRONG: fp32 to bf16");
    free(x);
    free(want);
    free(got);
    return !same;
}

// Prints the files of this process's address space whose path holds `name`.
static void print_mapped(const char *name) {
    char line[4096], last[4096] = "";
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps, "/proc/self/maps cannot be read");
    while (fgets(line, sizeof line, maps)) {
        char *path = strchr(line, '/');
        if (path && strstr(path, name) && strcmp(path, last) != 0)
            printf("%s: %s", name, strcpy(last, path));
    }
    fclose(maps);
}

// One GPU needs no NCCL, so that it is missing is said and is no fault.
static int check_libraries(void) {
    struct Error e = {0};
    smoke_open();
    char *name = device_name_cuda(0);
    printf("GPU 0: %s%s\n", name, sim_is_real() ? "" : " (simulated)");
    print_mapped("libcublasLt");
    if (nccl_find(&e))
        printf("no NCCL: %s\n", e.text);
    else
        print_mapped("libnccl");
    free(name);
    return 0;
}

// ---- names ----

static void print_names(void) {
    printf("libraries\nkernel\nattention-bf16\nattention-fp16\n");
    smoke_print_products();
}

static int run(const char *name, size_t rows) {
    if (!strcmp(name, "libraries"))
        return check_libraries();
    if (!strcmp(name, "kernel"))
        return check_kernel();
    if (!strcmp(name, "attention-bf16"))
        return smoke_attention(BF16);
    if (!strcmp(name, "attention-fp16"))
        return smoke_attention(F16);
    return smoke_product(name, rows);
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int run_all(char **names, int n, size_t rows) {
    int wrong = 0;
    for (int i = 0; i < n; i++) {
        double begin = now_ms();
        int status = run(names[i], rows);
        if (status == 2) {
            fprintf(stderr, "gpu_smoke: no check '%s' (gpu_smoke list names them)\n", names[i]);
            return 2;
        }
        printf("%s: %s, %.0f ms\n", names[i], status ? "WRONG" : "right", now_ms() - begin);
        fflush(stdout);
        wrong |= status;
    }
    return wrong;
}

static int hold(void) {
    char unread[256];
    smoke_open();
    while (read(STDIN_FILENO, unread, sizeof unread) > 0)
        ;
    return 0;
}

int main(int argc, char **argv) {
    char *end = "no number";
    unsigned long rows = argc > 2 ? strtoul(argv[argc - 1], &end, 10) : ROWS;
    if (*end)
        rows = ROWS;
    else
        argc--;
    if (argc < 2 || rows < 8 || rows > MOST_ROWS || rows % 8) {
        fprintf(stderr, "usage: gpu_smoke list | hold | NAME... [ROWS]; ROWS: 8, 16 ... %d\n",
                MOST_ROWS);
        return 2;
    }
    if (!strcmp(argv[1], "list")) {
        print_names();
        return 0;
    }
    return strcmp(argv[1], "hold") ? run_all(argv + 1, argc - 1, rows) : hold();
}
