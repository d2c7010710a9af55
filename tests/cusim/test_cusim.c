// The CUDA simulator itself (tests/cusim): kernels and what it must find wrong in them and in the
// memory they use. Streams, events and host threads are in test_cusim_streams.c.
//
// A fault ends the run, so each is made in a child process whose last line is read.
#include "tests/cusim/probes.h"
#include "tests/cusim/sim.h"
#include "tests/lib/cusim_help.h"
#include "tests/lib/test.h"
#include "tests/lib/values.h"

#include "kernels/dtype.h"

#include <math.h>
#include <stdio.h>

static cudaStream_t stream;

static void *on_gpu(const void *host, size_t bytes) {
    void *p;
    assert_int_equal(cudaMalloc(&p, bytes), cudaSuccess);
    if (host)
        cudaMemcpyAsync(p, host, bytes, cudaMemcpyDefault, stream);
    return p;
}

static void fetch(void *host, const void *p, size_t bytes) {
    cudaMemcpyAsync(host, p, bytes, cudaMemcpyDefault, stream);
    cudaStreamSynchronize(stream);
}

// A report for probes' kernel large_kernel, as docs/registers.md is one.
static const char *rows_of(const char *shared, const char *registers) {
    static char text[200];
    snprintf(text, sizeof text,
             "| file | kernel | shared | sm_80 | sm_90 |\n"
             "| probes.cu | `large_kernel` | %s | 16 | %s (8) |\n",
             shared, registers);
    return text;
}

// ---- what is right ----

static void for_each_order(void (*body)(void)) {
    for (int order = 0; order < NSIMORDER; order++) {
        sim_set_order((enum SimOrder)order, 7);
        body();
        assert_int_equal(sim_races(), 0);
    }
    sim_set_order(SIM_FORWARD, 1);
}

static void add_and_sum(void) {
    float host[100], sum;
    for (int i = 0; i < 100; i++)
        host[i] = (float)i;
    float *x = on_gpu(host, sizeof host), *y = on_gpu(NULL, sizeof host);
    probe_add(stream, y, x, 1, 100);
    probe_sum(stream, x, y, 100);
    fetch(&sum, x, sizeof sum);
    assert_true(sum == 5050);
    cudaFree(x);
    cudaFree(y);
}
TEST(test_add_and_sum) {
    for_each_order(add_and_sum);
}

static void reverse(void) {
    float host[128], back[128];
    for (int i = 0; i < 128; i++)
        host[i] = (float)i;
    float *x = on_gpu(host, sizeof host), *y = on_gpu(NULL, sizeof host);
    probe_reverse(stream, y, x);
    fetch(back, y, sizeof back);
    for (int i = 0; i < 128; i++)
        assert_true(back[i] == (float)(127 - i));
    cudaFree(x);
    cudaFree(y);
}
TEST(test_async_copy) {
    for_each_order(reverse);
}

static void product(void) {
    uint16_t a[256], b[128];
    float got[128];
    for (int i = 0; i < 256; i++)
        a[i] = bf16_from_f32((float)(i % 13 - 6));
    for (int i = 0; i < 128; i++)
        b[i] = bf16_from_f32((float)(i % 7 - 3) * 0.5f);
    void *a_gpu = on_gpu(a, sizeof a), *b_gpu = on_gpu(b, sizeof b);
    float *d = on_gpu(NULL, sizeof got);
    probe_product(stream, d, a_gpu, b_gpu);
    fetch(got, d, sizeof got);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float want = 0;
            for (int k = 0; k < 16; k++)
                want += f32_from_bf16(a[i * 16 + k]) * f32_from_bf16(b[k * 8 + j]);
            assert_true(got[i * 8 + j] == want); // small integers and halves: exact
        }
    cudaFree(a_gpu);
    cudaFree(b_gpu);
    cudaFree(d);
}
TEST(test_matrices) {
    for_each_order(product);
}

static void count(void) {
    unsigned n = 0;
    unsigned *counter = on_gpu(&n, sizeof n);
    probe_count(stream, counter, 150);
    fetch(&n, counter, sizeof n);
    assert_int_equal(n, 150);
    cudaFree(counter);
}
TEST(test_atomics) {
    for_each_order(count);
}

// ---- faults of kernels ----

static enum ProbeFault fault_now;

static void make_fault(void) {
    float zeros[64] = {0};
    probe_fault(stream, fault_now, on_gpu(zeros, sizeof zeros));
    cudaStreamSynchronize(stream);
}

TEST(test_faults) {
    static const char *const says[NPROBEFAULT] = {
        [FAULT_NO_BARRIER] = "race in shared memory",
        [FAULT_OVERWRITTEN] = "race in shared memory",
        [FAULT_NO_WARP_BARRIER] = "race in shared memory",
        [FAULT_BARRIER_BRANCH] = "divergent barrier",
        [FAULT_BARRIER_HALF] = "divergent threads of a block",
        [FAULT_MASK] = "not in its own mask",
        [FAULT_ABSENT_LANE] = "which takes no part",
        [FAULT_SHARED_UNWRITTEN] = "shared memory that nobody has written",
        [FAULT_SHARED_BOUNDS] = "of dynamic shared memory",
        [FAULT_COPY_NOT_WAITED] = "race in shared memory",
    };
    for (int order = 0; order < NSIMORDER; order++) {
        sim_set_order((enum SimOrder)order, 7);
        for (int f = 0; f < NPROBEFAULT; f++) {
            bool races = f == FAULT_NO_BARRIER || f == FAULT_OVERWRITTEN ||
                         f == FAULT_NO_WARP_BARRIER || f == FAULT_SHARED_UNWRITTEN ||
                         f == FAULT_COPY_NOT_WAITED;
            if (races && order != SIM_FORWARD) // looked for in one order, whose choice says nothing
                continue;
            fault_now = (enum ProbeFault)f;
            child_says(make_fault, says[f]);
            child_says(make_fault, "tests/cusim/probes.cu:");
            child_says(make_fault, "kernel fault_kernel");
        }
    }
    sim_set_order(SIM_FORWARD, 1);
}

// Where races are not looked for, what is read too early is still no number.
TEST(test_async_copy_early) {
    float values[64] = {0};
    float *y = on_gpu(values, sizeof values);
    sim_set_order(SIM_REVERSE, 1);
    probe_fault(stream, FAULT_COPY_NOT_WAITED, y);
    fetch(values, y, sizeof values);
    sim_set_order(SIM_FORWARD, 1);
    assert_true(isnan(values[63]));
    cudaFree(y);
}

static enum ProbeAccess access_now;
static int offset_now;

static void make_access(void) {
    probe_access(stream, access_now, on_gpu(calloc(1, 64), 64), offset_now);
    cudaStreamSynchronize(stream);
}

TEST(test_alignment) {
    static const struct {
        int bytes;
        const char *says;
    } of[NPROBEACCESS] = {
        [ACCESS_PAIR] = {4, "4 bytes at an address that is 2 past a multiple of 4: byte 2 of"},
        [ACCESS_LONG] = {8, "8 bytes at an address that is 4 past a multiple of 8: byte 4 of"},
        [ACCESS_FLOAT2] = {8, "8 bytes at an address that is 4 past a multiple of 8: byte 4 of"},
        [ACCESS_PACK] = {16, "16 bytes at an address that is 8 past a multiple of 16: byte 8 of"},
        [ACCESS_STRUCT] = {16, "16 bytes at an address that is 8 past a multiple of 16: byte 8 of"},
        [ACCESS_CLEAR] = {16, "16 bytes at an address that is 8 past a multiple of 16: byte 8 of"},
        [ACCESS_FETCH] = {16, "16 bytes at an address that is 8 past a multiple of 16: byte 8 of"},
        [ACCESS_ADD] = {4, "4 bytes at an address that is 2 past a multiple of 4: byte 2 of"},
        [ACCESS_ATOMIC] = {4, "4 bytes at an address that is 2 past a multiple of 4: byte 2 of"},
        [ACCESS_COPY] = {16, "16 bytes at an address that is 8 past a multiple of 16: byte 8 of"},
        [ACCESS_STAGE] = {16, "16 bytes at an address that is 8 past a multiple of 16: shared"},
        [ACCESS_SHARED] = {16, "16 bytes at an address that is 8 past a multiple of 16: shared"},
        [ACCESS_MATRIX] = {16, "ldmatrix from an address that is no multiple of 16"},
    };
    for (int a = 0; a < NPROBEACCESS; a++) {
        access_now = (enum ProbeAccess)a;
        offset_now = of[a].bytes / 2;
        child_says(make_access, of[a].says);
        child_says(make_access, "cusim: tests/cusim/probes.cu:");
    }
    access_now = ACCESS_PACK; // the least that can be wrong
    offset_now = 2;
    child_says(make_access, "at an address that is 2 past a multiple of 16");
}

static void too_many_threads(void) {
    probe_bounds(stream, on_gpu(NULL, 4), 65);
}
static void shared_without_limit(void) {
    probe_shared(stream, on_gpu(NULL, 4), 1, (48 << 10) + 4, 0);
}
static void both_shared(void) {
    probe_both_shared(stream, (47 << 10) + 4);
}
static void reported_shared(void) { // of a function that the kernel calls, say
    sim_tell_registers(rows_of("1024", "16"));
    probe_shared(stream, on_gpu(NULL, 4), 1, (47 << 10) + 4, 0);
}
static void limit_too_high(void) {
    sim_tell_registers(rows_of("1024", "16"));
    probe_shared(stream, on_gpu(NULL, 4), 1, 4, (226 << 10) + 1);
}
static void static_too_large(void) {
    sim_tell_registers(rows_of("49153", "16"));
    probe_shared(stream, on_gpu(NULL, 4), 1, 4, 0);
}
static void one_register_too_many(void) {
    sim_tell_registers(rows_of("0", "129")); // 136 are taken
    probe_shared(stream, on_gpu(NULL, 4), 512, 4, 0);
}
static void one_warp_too_many(void) { // 16 of 24 are in one part of the four
    sim_tell_registers(rows_of("0", "120"));
    probe_shared(stream, on_gpu(NULL, 4), 17 * 32, 4, 0);
}

TEST(test_resources) {
    child_says(too_many_threads, "probes.cu:");
    child_says(too_many_threads, "launch of bounds_kernel: a block of 65 threads, its "
                                 "__launch_bounds__ are 64");
    child_says(shared_without_limit, "cudaFuncSetAttribute raises it");
    child_says(both_shared, "launch of product_kernel: 48132 bytes of dynamic shared memory beside "
                            "1024 static ones, the limit is 48128");
    child_says(reported_shared, "launch of large_kernel: 48132 bytes of dynamic shared memory "
                                "beside 1024 static ones");
    child_says(limit_too_high, "231425 bytes of dynamic shared memory beside 1024 static ones, a "
                               "GPU has 232448");
    child_says(static_too_large, "49153 bytes of static shared memory, nvcc compiles no more");
    child_says(one_register_too_many, "launch of large_kernel: a block of 512 threads of 129 "
                                      "registers (docs/registers.md, sm_90)");
    child_says(one_warp_too_many, "a block of 544 threads of 120 registers");
}

// What the checks know of kernels/ is known of each kernel.
TEST(test_reported) {
    const char *missing = sim_unreported();
    if (missing)
        fail_msg("docs/registers.md (scripts/bench/gpu_registers.sh writes it):\n%s", missing);
}

// ---- faults of memory ----

static const float zeros[32];

static void read_past_end(void) {
    float *x = on_gpu(zeros, 31 * sizeof *x), *y = on_gpu(NULL, sizeof zeros);
    probe_add(stream, y, x, 0, 32);
}
static void write_past_end(void) {
    float *x = on_gpu(zeros, sizeof zeros), *y = on_gpu(NULL, 31 * sizeof *y);
    probe_add(stream, y, x, 0, 32);
}
static void read_half_past_end(void) { // the last 2 bytes of one element
    float *x = on_gpu(zeros, sizeof zeros - 2), *y = on_gpu(NULL, sizeof zeros);
    probe_add(stream, y, x, 0, 32);
}
static void read_freed(void) {
    float *x = on_gpu(zeros, sizeof zeros), *y = on_gpu(NULL, sizeof zeros);
    cudaStreamSynchronize(stream);
    cudaFree(x);
    probe_add(stream, y, x, 0, 32);
}
static void read_unwritten(void) {
    float *x = on_gpu(NULL, sizeof zeros), *y = on_gpu(NULL, sizeof zeros);
    cudaMemsetAsync(x, 0, 31 * sizeof *x, stream);
    probe_add(stream, y, x, 0, 32);
}
static void read_copy_of_unwritten(void) {
    float *x = on_gpu(NULL, sizeof zeros), *y = on_gpu(NULL, sizeof zeros);
    cudaMemcpyAsync(y, x, sizeof zeros, cudaMemcpyDefault, stream);
    probe_add(stream, y, y, 0, 32);
}
static void add_to_unwritten(void) { // y += x: the read before the write counts
    float *y = on_gpu(NULL, sizeof zeros);
    probe_add(stream, y, y, 1, 32);
}
static void copy_past_end(void) {
    float *x = on_gpu(zeros, sizeof zeros);
    char all[sizeof zeros + 1];
    fetch(all, x, sizeof all);
}
static void host_reads_gpu(void) {
    volatile float *x = on_gpu(zeros, sizeof zeros);
    (void)x[3];
}
static void host_copies_gpu(void) {
    float host[32];
    volatile size_t bytes = sizeof host;
    memcpy(host, on_gpu(zeros, sizeof zeros), bytes);
    fprintf(stderr, "%g\n", host[3]);
}
static void free_twice(void) {
    float *x = on_gpu(NULL, 4);
    cudaFree(x);
    cudaFree(x);
}
static void other_gpu(void) {
    sim_set_gpus(2);
    float *x = on_gpu(zeros, sizeof zeros);
    cudaSetDevice(1);
    cudaStream_t other;
    cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, 0);
    probe_add(other, x, x, 0, 32);
}
static void pinned_memory(void) {
    float *x;
    cudaMallocHost((void **)&x, sizeof zeros);
    memset(x, 0, sizeof zeros);
    probe_add(stream, on_gpu(zeros, sizeof zeros), x, 0, 32);
}
static void null_stream(void) {
    probe_add(NULL, on_gpu(zeros, sizeof zeros), on_gpu(zeros, sizeof zeros), 0, 32);
}
static void blocking_stream(void) {
    cudaStream_t s;
    cudaStreamCreateWithFlags(&s, cudaStreamDefault);
}

TEST(test_memory_faults) {
    child_says(read_past_end, "read of 4 bytes out of bounds: byte 124 of allocation");
    child_says(read_past_end, "probes.cu:");
    child_says(read_past_end, "block (0,0,0), thread (31,0,0)");
    child_says(write_past_end, "write of 4 bytes out of bounds");
    child_says(read_half_past_end, "out of bounds");
    child_says(read_freed, "freed memory");
    child_says(read_unwritten, "that nobody has written: byte 124");
    child_says(read_copy_of_unwritten, "that nobody has written");
    child_says(add_to_unwritten, "that nobody has written");
    child_says(copy_past_end, "out of bounds");
    child_says(host_reads_gpu, "the host touches 4 bytes of a GPU's memory");
    child_says(host_reads_gpu, "test_cusim.c:");
    child_says(host_copies_gpu, "the host touches 128 bytes");
    child_says(free_twice, "was freed before");
    child_says(other_gpu, "a kernel on GPU 1 touches memory of GPU 0");
    child_says(pinned_memory, "a kernel on GPU 0 touches the host's memory");
    child_says(null_stream, "NULL stream is forbidden");
    child_says(blocking_stream, "forbidden");
}

// The last one: the limit that it raises, and its report, stay so.
// What is allowed, to the last byte, thread and register. (test_resources goes one further.)
TEST(test_allowed) {
    enum { MOST = 227 << 10 };
    float *y = on_gpu(NULL, 64), got = 0;
    for (int a = 0; a < NPROBEACCESS; a++) {
        cudaMemsetAsync(y, 0, 64, stream);
        probe_access(stream, (enum ProbeAccess)a, y, 16);
    }
    probe_bounds(stream, y, 64);
    probe_shared(stream, y, 1, 48 << 10, 0);
    probe_shared(stream, y, 1, MOST, MOST);
    sim_tell_registers(rows_of("1024", "40"));
    probe_shared(stream, y, 1, MOST - 1024, MOST - 1024);
    sim_tell_registers(rows_of("0", "128"));
    probe_shared(stream, y, 512, 4, 0);
    fetch(&got, y, sizeof got);
    assert_true(got == 3);
    cudaFree(y);
}

static int open_stream(void **state) {
    (void)state;
    return cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0);
}

AROUND_ALL(open_stream, NULL);
