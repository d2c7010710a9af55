// Matrix products of the CUDA backend: which of cuBLASLt's algorithms is taken, or which way
// without it; also with tuning and after a resume. test_blas_forms.c has what they compute.
//
// What cuBLASLt proposes is known in the simulator alone (tests/cusim/blas_sim.h); on a GPU these
// tests hold bits against each other.
#include "tests/cusim/blas_sim.h"
#include "tests/kernels/blas_form.h"
#include "tests/lib/child.h"
#include "tests/lib/refused.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <stdlib.h>

static struct Device *open_gpu(void) {
    struct Device *d;
    struct Error e = {0};
    if (device_open_cuda(&d, 0, &e))
        fail_msg("%s", e.text);
    return d;
}

// C of a product of bf16 with k = 500, where the algorithms differ in their bits. ROOM: its scratch
// has room for a second C. free() it.
static float *product(struct Device *d, int epilogue, size_t k) {
    enum { M = 16, N = 24 };
    struct Form f = {M, N, k, 0, true, false, true, epilogue, 0, 0};
    f.spare = epilogue & ROOM ? M * N * sizeof(float) : 0;
    struct Run r;
    run_init(&r, d, false);
    queue_form(&r, BF16, &f);
    run_finish(&r);
    float *c = base_alloc(M * N * sizeof *c);
    memcpy(c, run_result(&r, "c"), M * N * sizeof *c);
    run_close(&r);
    return c;
}

static void expect_product(struct Device *d, int epilogue, size_t k, const float *want, bool same) {
    float *got = product(d, epilogue, k);
    bool is_same = memcmp(got, want, 16 * 24 * sizeof *got) == 0;
    if (is_same != same)
        fail_msg("k %zu: expected %s bits", k, same ? "the same" : "other");
    free(got);
}

static void count_now(unsigned long counts[NBLAS]) {
    for (int i = 0; i < NBLAS; i++)
        counts[i] = sim_blas_count(i);
}

// How often each algorithm ran since `before`, which is brought up to date.
static void expect_counts(unsigned long before[NBLAS], unsigned long split, unsigned long plain,
                          unsigned long quick) {
    if (sim_is_real())
        return;
    unsigned long now[NBLAS];
    for (int i = 0; i < NBLAS; i++)
        now[i] = sim_blas_count(i) - before[i];
    assert_int_equal(now[BLAS_INPLACE] + now[BLAS_ROUNDS] + now[BLAS_GREEDY], 0);
    assert_int_equal(now[BLAS_SPLIT], split);
    assert_int_equal(now[BLAS_PLAIN], plain);
    assert_int_equal(now[BLAS_QUICK], quick);
    for (int i = 0; i < NBLAS; i++)
        before[i] += now[i];
}

// The first proposal that keeps the rules, for this shape and for the next: one that splits a long
// k, and gives the same bits each time; and never one that adds in any order, in all that this
// program multiplies.
TEST(test_first) {
    struct Device *d = open_gpu(), *other = open_gpu();
    unsigned long counts[NBLAS];
    count_now(counts);
    assert_int_equal(counts[BLAS_INPLACE] + counts[BLAS_ROUNDS] + counts[BLAS_GREEDY], 0);
    float *first = product(d, 0, 500);
    expect_product(d, 0, 500, first, true);
    expect_product(other, 0, 500, first, true);
    expect_product(d, 0, 499, first, false);
    expect_counts(counts, 4, 0, 0);
    free(first);
    first = product(d, 0, BLAS_SPLIT_K - 1);
    expect_product(d, 0, BLAS_SPLIT_K - 1, first, true);
    expect_counts(counts, 0, 2, 0);
    free(first);
    device_close(d);
    device_close(other);
}

static void expect_told(struct Device *d, const char *what, bool yes) {
    char *text = device_describe_choices(d);
    if (!sim_is_real() && (strstr(text, what) != NULL) != yes)
        fail_msg("\"%s\" is %sin:\n%s", what, yes ? "not " : "", text);
    free(text);
}

static void *choices_of(struct Device *d, size_t *bytes) {
    *bytes = device_get_choices(d, NULL, 0);
    void *choices = base_alloc(*bytes);
    assert_int_equal(device_get_choices(d, choices, *bytes), *bytes);
    return choices;
}

// A product on a device that is opened for it, as a GPU of 8.0 or 9.0, and goes on with choices
// (NULL: none).
static struct Device *form_on(int major, const struct Form *form, enum Dtype dtype, bool tuned,
                              const void *choices, size_t bytes) {
    struct Error e = {0};
    struct Run r;
    sim_set_capability(major, 0);
    struct Device *d = open_gpu();
    sim_set_capability(9, 0);
    d->autotune = tuned;
    if (choices && device_set_choices(d, choices, bytes, &e))
        fail_msg("%s", e.text);
    run_init(&r, d, false);
    queue_form(&r, dtype, form);
    run_finish(&r);
    run_close(&r);
    return d;
}

static const struct Form summed = {
    .m = 24, .n = 40, .k = 16, .a_transposed = true, .epilogue = DBIAS};

// Who does an epilogue on a GPU of 8.0 or 9.0. That our own kernels do is no fallback.
static void expect_way(int major, const struct Form *f, enum Dtype dtype, const char *epilogue,
                       bool own) {
    struct Device *d = form_on(major, f, dtype, false, NULL, 0);
    char *fallbacks = device_describe_fallbacks(d);
    char *told = base_format("epilogue %s: by %s", epilogue,
                             own ? "our own kernels; queued 1 times" : "cuBLASLt");
    expect_told(d, told, true);
    assert_string_equal(fallbacks, "");
    free(told);
    free(fallbacks);
    device_close(d);
}

// On 9.0 in bf16 cuBLASLt is not asked for bias gradients unless a clock has found it quicker.
// What a checkpoint says of it holds, whichever it is and whoever goes on with it.
TEST(test_bgradb_of_hopper) {
    if (sim_is_real())
        skip();
    for (int major = 8; major <= 9; major++)
        for (enum Dtype t = F32; t < NDTYPE; t++)
            expect_way(major, &summed, t, "dbias", major == 9 && t == BF16);
    for (int tuned = 0; tuned < 2; tuned++) {
        size_t bytes;
        struct Device *d = form_on(9, &summed, BF16, tuned, NULL, 0); // its sums are quicker here
        void *choices = choices_of(d, &bytes);
        struct Device *resumed = form_on(9, &summed, BF16, !tuned, choices, bytes);
        expect_told(resumed, "epilogue dbias: by cuBLASLt", tuned);
        expect_told(resumed, "epilogue dbias: by our own kernels; queued 1 times", !tuned);
        free(choices);
        device_close(d);
        device_close(resumed);
    }
    sim_blas_delay_backward(10000); // ours take two kernels
    struct Device *d = form_on(8, &summed, BF16, true, NULL, 0);
    sim_blas_delay_backward(0);
    expect_told(d, "epilogue dbias: by our own kernels, the quickest", true);
    device_close(d);
}

// C of a product with GELU's slope, rounded once, or twice where the slope is a pass of its own.
static float *sloped(struct Device *d, const struct Form *f, enum Dtype dtype, const float *want) {
    size_t n = f->m * (f->n + f->gap);
    float *c = base_alloc(n * sizeof *c);
    struct Run r;
    run_init(&r, d, false);
    queue_form(&r, dtype, f);
    run_finish(&r);
    for (size_t i = 0; i < n; i++)
        c[i] = dtype_load(run_result(&r, "c"), dtype, i);
    if (want)
        run_expect(&r, "c", "cuBLASLt", want, 2);
    run_close(&r);
    return c;
}

// With tuning GELU's slope is a pass of its own where that is the quicker, in 16 bits.
TEST(test_autotune_dgelu) {
    struct Form f = {.m = 24, .n = 40, .k = 16, .epilogue = DGELU};
    for (int i = 0; i < 8; i++) {
        enum Dtype dtype = i & 1 ? BF16 : F16;
        struct Device *plain = open_gpu(), *tuned = open_gpu();
        f.gap = i & 2 ? 8 : 0;
        tuned->autotune = true;
        sim_blas_delay_backward(i & 4 ? 10000 : 0);
        float *want = sloped(plain, &f, dtype, NULL);
        free(sloped(tuned, &f, dtype, want));
        expect_told(plain, "epilogue dgelu: by cuBLASLt", true);
        expect_told(tuned, "epilogue dgelu: by our own kernels, the quickest", i & 4);
        free(want);
        device_close(plain);
        device_close(tuned);
    }
    sim_blas_delay_backward(0);
}

static void multiply_in_vain(const void *context) {
    (void)context;
    sim_blas_refuse((struct BlasRefusal){.launch = BLAS_SPLIT});
    free(product(open_gpu(), 0, 500));
}

// An algorithm that is proposed and not launched: with tuning it is passed over, without it the run
// ends, with a line about the product.
TEST(test_unlaunched) {
    if (sim_is_real())
        skip();
    unsigned long counts[NBLAS];
    int status;
    struct Device *d = open_gpu();
    count_now(counts);
    sim_blas_refuse((struct BlasRefusal){.launch = BLAS_QUICK});
    sim_blas_delay(BLAS_SPLIT, 3000);
    d->autotune = true;
    free(product(d, 0, 500));
    sim_blas_delay(BLAS_SPLIT, 0);
    expect_counts(counts, 12, 13, 0);
    device_close(d);
    sim_blas_refuse((struct BlasRefusal){.form = NULL});
    char *said = child_said(multiply_in_vain, NULL, &status);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    if (!line_is(said, "E_CUBLASLT (CUBLAS_STATUS_NOT_SUPPORTED); the product: m 16 n 24 k 500, "
                       "C = A' B, bf16 to fp32, epilogue none, rows of A"))
        fail_msg("it says: %s", said);
    free(said);
}

// What is told of a product that is one of cuBLASLt's, and that nothing is told of a CPU.
TEST(test_told) {
    struct Device *d = open_gpu(), *cpu = ((const struct Rig *)*state)->device[0][0];
    free(product(d, 0, 500));
    expect_told(d, "m 16 n 24 k 500, C = A' B, bf16 to fp32, epilogue none: by cuBLASLt", true);
    expect_told(d, "split 4, reduction scheme 2, workspace 6144 bytes; queued 1 times", true);
    expect_told(cpu, "m", false);
    device_close(d);
}

// The quickest proposal that keeps the rules: 12 runs of each to find it, then it alone. An old C
// is added to once, although the product is timed many times; without room for a second C it is
// not.
TEST(test_autotune) {
    struct Device *plain = open_gpu(), *tuned = open_gpu(), *resumed = open_gpu(),
                  *narrow = open_gpu();
    struct Error e = {0};
    size_t bytes;
    float *untuned = product(plain, ACCUMULATE, 500);
    unsigned long counts[NBLAS];
    count_now(counts);
    sim_blas_delay(BLAS_SPLIT, 2000);
    sim_blas_delay(BLAS_PLAIN, 2000);
    tuned->autotune = true;
    narrow->autotune = true;
    expect_product(narrow, ACCUMULATE, 500, untuned, true);
    expect_counts(counts, 1, 0, 0);
    float *want = product(tuned, ACCUMULATE | ROOM, 500);
    expect_product(tuned, ACCUMULATE, 500, want, true);
    if (!sim_is_real()) {
        expect_counts(counts, 12, 12, 14);
        expect_product(plain, ACCUMULATE, 500, want, false);
    }
    sim_blas_delay(BLAS_SPLIT, 0);
    sim_blas_delay(BLAS_PLAIN, 0);
    for (size_t i = 0; i < 16 * 24; i++)
        assert_true(fabsf(want[i] - untuned[i]) < 1e-4f * 500);
    void *choices = choices_of(tuned, &bytes);
    assert_int_equal(device_set_choices(resumed, choices, bytes, &e), 0);
    resumed->autotune = true;
    count_now(counts);
    expect_product(resumed, ACCUMULATE, 500, want, true);
    expect_counts(counts, 0, 0, 1);
    free(choices);
    free(want);
    free(untuned);
    device_close(plain);
    device_close(tuned);
    device_close(resumed);
    device_close(narrow);
}

// What the product overwrites serves for timing, and no scratch is needed.
TEST(test_autotune_in_place) {
    struct Device *plain = open_gpu(), *tuned = open_gpu();
    unsigned long counts[NBLAS];
    float *untuned = product(plain, 0, 500);
    count_now(counts);
    sim_blas_delay(BLAS_SPLIT, 2000);
    sim_blas_delay(BLAS_PLAIN, 2000);
    tuned->autotune = true;
    float *want = product(tuned, 0, 500);
    sim_blas_delay(BLAS_SPLIT, 0);
    sim_blas_delay(BLAS_PLAIN, 0);
    expect_counts(counts, 12, 12, 13);
    for (size_t i = 0; i < 16 * 24; i++)
        assert_true(fabsf(want[i] - untuned[i]) < 1e-4f * 500);
    expect_product(tuned, 0, 500, want, true);
    free(want);
    free(untuned);
    device_close(plain);
    device_close(tuned);
}

static void expect_refused(struct Device *d, const void *choices, size_t bytes, const char *said) {
    struct Error e = {0};
    assert_error(device_set_choices(d, choices, bytes, &e), -EINVAL, &e, said);
}

// Lists that are damaged, or come from elsewhere. Their head: 8 letters, library, GPU, count; then
// for each product its sizes (m first) and its algorithm.
TEST(test_bad_choices) {
    struct Device *d = open_gpu(), *fresh = open_gpu();
    size_t bytes;
    free(product(d, 0, 500));
    free(product(d, 0, 300));
    unsigned char *choices = choices_of(d, &bytes), *bad = base_alloc(bytes);
    size_t entry_bytes = (bytes - 32) / 2;
    expect_refused(fresh, choices, 7, "E_MATMUL_ALGORITHMS");
    expect_refused(fresh, choices, bytes - 1, "E_MATMUL_ALGORITHMS bytes for 2");
    expect_refused(fresh, choices, bytes - entry_bytes, "E_MATMUL_ALGORITHMS bytes for 2");
    static const struct {
        size_t at;
        const char *said;
    } flips[] = {{0, "E_MATMUL_ALGORITHMS"},
                 {8, "E_MATMUL_ALGORITHMS_GPU"},
                 {16, "E_MATMUL_ALGORITHMS_GPU"},
                 {24, "E_MATMUL_ALGORITHMS bytes for 3"}};
    for (size_t i = 0; i < sizeof flips / sizeof flips[0]; i++) {
        memcpy(bad, choices, bytes);
        bad[flips[i].at] ^= 1;
        expect_refused(fresh, bad, bytes, flips[i].said);
    }
    memcpy(bad, choices, bytes);
    memcpy(bad, "zeroblas", 8);
    expect_refused(fresh, bad, bytes, "E_MATMUL_ALGORITHMS zeroblas");
    memcpy(bad, choices, bytes);
    memset(bad + 32, 0, 8); // m
    expect_refused(fresh, bad, bytes, "E_MATMUL_ALGORITHMS");
    memcpy(bad, choices, bytes);
    memset(bad + bytes - 64, 0xff, 64); // the second algorithm: the first is taken over before it
    expect_refused(fresh, bad, bytes, "E_MATMUL_ALGORITHMS");
    free(choices);
    free(bad);
    device_close(d);
    device_close(fresh);
}

AROUND_ALL(rig_setup, rig_teardown);
