// The instructions that kernels/cuda/ptx.cuh wraps, against what NVIDIA's manual says of them:
// which lane holds which element of a fragment. In the simulator this tests the simulator's twins;
// on a GPU, that the manual was understood. And a GPU that the build has no code for is found out
// when it is opened.
#include "tests/cusim/sim.h"
#include "tests/kernels/ptx_kernels.h"
#include "tests/lib/refused.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int open_device(void **state) {
    struct Error e = {0};
    int err = device_open_cuda((struct Device **)state, 0, &e);
    if (err)
        print_message("%s\n", e.text);
    return err;
}

static int close_device(void **state) {
    device_close(*state);
    return 0;
}

// Copies to the device, and back.
static void *upload(struct Device *d, const void *values, size_t bytes) {
    void *mem = d->ops->alloc(d, bytes);
    assert_non_null(mem);
    device_copy(d, QUEUE_COMPUTE, mem, values, bytes);
    device_sync_queue(d, QUEUE_COMPUTE);
    return mem;
}
static void download(struct Device *d, void *values, void *mem, size_t bytes) {
    device_copy(d, QUEUE_COMPUTE, values, mem, bytes);
    device_sync_queue(d, QUEUE_COMPUTE);
    d->ops->free(d, mem, bytes);
}

// Integers from -8 to 8: sums of their products are exact in every format and order.
static void fill(float *x, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(rng_bits(seed, i) % 17) - 8;
}

static void check_mma(struct Device *device, enum Dtype dtype) {
    float a[16][16], b[16][8], d[16][8], want[16][8];
    uint16_t a_bits[16 * 16], b_bits[16 * 8];
    fill(a[0], 16 * 16, 1);
    fill(b[0], 16 * 8, 2);
    fill(d[0], 16 * 8, 3);
    for (size_t i = 0; i < 16 * 16; i++)
        dtype_store(a_bits, dtype, i, a[i / 16][i % 16]);
    for (size_t i = 0; i < 16 * 8; i++)
        dtype_store(b_bits, dtype, i, b[i / 8][i % 8]);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            want[i][j] = d[i][j];
            for (int k = 0; k < 16; k++)
                want[i][j] += a[i][k] * b[k][j];
        }
    void *a_mem = upload(device, a_bits, sizeof a_bits);
    void *b_mem = upload(device, b_bits, sizeof b_bits), *d_mem = upload(device, d, sizeof d);
    ptx_test_mma(device->queue[QUEUE_COMPUTE], dtype, d_mem, a_mem, b_mem);
    download(device, d, d_mem, sizeof d);
    device->ops->free(device, a_mem, sizeof a_bits);
    device->ops->free(device, b_mem, sizeof b_bits);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++)
            if (d[i][j] != want[i][j])
                fail_msg("%s: row %d, column %d is %g, expected %g", dtype_name(dtype), i, j,
                         d[i][j], want[i][j]);
}

TEST(test_mma) {
    check_mma(*state, BF16);
    check_mma(*state, F16);
}

// Element (row, column) of matrix i has the value 64 i + 8 row + column.
static void check_ldmatrix(struct Device *device, bool transposed) {
    uint16_t in[4 * 64];
    uint32_t out[32 * 4];
    for (uint16_t i = 0; i < 4 * 64; i++)
        in[i] = i;
    memset(out, 0xff, sizeof out);
    void *in_mem = upload(device, in, sizeof in), *out_mem = upload(device, out, sizeof out);
    ptx_test_ldmatrix(device->queue[QUEUE_COMPUTE], transposed, out_mem, in_mem);
    download(device, out, out_mem, sizeof out);
    device->ops->free(device, in_mem, sizeof in);
    for (uint32_t lane = 0; lane < 32; lane++)
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t row = lane / 4, column = lane % 4 * 2, step = transposed ? 8 : 1;
            uint32_t first = 64 * i + (transposed ? 8 * column + row : 8 * row + column);
            uint32_t want = first | (first + step) << 16;
            if (out[4 * lane + i] != want)
                fail_msg("%s: register %u of lane %u is %08x, expected %08x",
                         transposed ? "transposed" : "straight", i, lane, out[4 * lane + i], want);
        }
}

TEST(test_ldmatrix) {
    check_ldmatrix(*state, false);
    check_ldmatrix(*state, true);
}

TEST(a_gpu_without_code_is_refused) {
    struct Device *d;
    struct Error e = {0};
    if (sim_is_real())
        skip();
    assert_error(device_open_cuda(&d, 99, &e), -ENODEV, &e, "E_GPU_MISSING GPU 99");
    sim_set_capability(11, 0);
    int err = device_open_cuda(&d, 0, &e);
    sim_set_capability(9, 0);
    assert_error(err, -ENODEV, &e, "E_GPU_CAPABILITY GPU 0 has compute capability 11.0");
    assert_non_null(strstr(e.text, "make CUDA_ARCHS=110"));
    assert_int_equal(device_open_cuda(&d, 0, &e), 0);
    device_close(d);
}

AROUND_ALL(open_device, close_device);
