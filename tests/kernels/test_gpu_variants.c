// Variants of kernels (kernels/cuda/variants.h): a GPU takes the one that is made for it and for
// the arguments, and others the generic kernel; a run that resumes goes on with those it had, and
// is refused where it cannot.
//
// The variant is a GELU of tests/kernels/variant_kernels.cu, for 9.0. The simulator plays GPUs of
// 8.0 and 9.0; on a GPU of another kind than 9.0, or in a build without sm_90a, all of this is
// skipped.
#include "zero/state.h"
#include "kernels/cuda/cuda.h"
#include "tests/lib/gpu_runs.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "zero/checkpoint/checkpoint.h"

#include <errno.h>

#define X(file) extern const struct Variant cuda_variants_##file[];
CUDA_VARIANTS
#undef X

// In this build: that one, or none.
static const struct Variant *const files[] = {
#define X(file) cuda_variants_##file,
    CUDA_VARIANTS
#undef X
        NULL};

static struct Variants *variants_of(struct Device *d) {
    return &((struct Cuda *)d)->variants;
}

static struct Device *open_gpu(void) {
    struct Device *d;
    struct Error e = {0};
    if (device_open_cuda(&d, 0, &e))
        fail_msg("%s", e.text);
    for (size_t i = 0; files[i]; i++)
        variants_add(variants_of(d), files[i]);
    return d;
}

static bool is_testable(void) {
    struct Device *d = open_gpu();
    bool yes = files[0] && variants_of(d)->capability == files[0]->capability;
    device_close(d);
    return yes;
}

// GELU of 1, by the table or by the end of the product 1 x 1.
static float gelu_of_1(struct Device *d, enum Dtype dtype, bool of_product) {
    enum { BYTES = 4 };
    struct Stream *queue = d->queue[QUEUE_COMPUTE];
    struct GeluForward g = {.n = 1, .dtype = dtype};
    void *x = d->ops->alloc(d, BYTES), *y = d->ops->alloc(d, BYTES), *c = d->ops->alloc(d, BYTES);
    char *host = device_alloc_host(d, BYTES);
    dtype_store(host, dtype, 0, 1);
    device_copy(d, QUEUE_COMPUTE, x, host, dtype_size(dtype));
    struct Matmul m = {.m = 1, .n = 1, .k = 1, .gelu = y};
    m.a = m.b = (struct Mat){x, dtype, 1, false, NULL};
    m.c = (struct Mat){c, dtype, 1, false, NULL};
    m.work.bytes = d->kernels->matmul_work(d, &m);
    m.work.mem = d->ops->alloc(d, m.work.bytes);
    g.x = x;
    g.y = y;
    if (of_product)
        d->kernels->matmul(queue, &m);
    else
        d->kernels->gelu_forward(queue, &g);
    device_copy(d, QUEUE_COMPUTE, host, y, dtype_size(dtype));
    device_sync_queue(d, QUEUE_COMPUTE);
    float result = dtype_load(host, dtype, 0);
    d->ops->free(d, m.work.mem, m.work.bytes);
    d->ops->free(d, x, BYTES);
    d->ops->free(d, y, BYTES);
    d->ops->free(d, c, BYTES);
    device_free_host(d, host);
    return result;
}

static const float by_tanh = 0.841192f, by_sigmoid = 0.845796f;

static void expect_gelu(struct Device *d, enum Dtype dtype, float want) {
    for (int of_product = 0; of_product < 2; of_product++) {
        float got = gelu_of_1(d, dtype, of_product);
        if (!(fabsf(got - want) < (dtype == F32 ? 1e-5f : 0x1p-9f)))
            fail_msg("%s%s: GELU(1) is %g, expected %g", dtype_name(dtype),
                     of_product ? ", after a product" : "", got, want);
    }
}

TEST(a_gpu_takes_what_is_made_for_it) {
    if (!is_testable())
        skip();
    struct Device *d = open_gpu();
    expect_gelu(d, F32, by_sigmoid);
    expect_gelu(d, BF16, by_tanh); // which the variant does not take
    variants_forbid(variants_of(d));
    expect_gelu(d, F32, by_tanh);
    device_close(d);
    if (sim_is_real())
        return;
    sim_set_capability(8, 0);
    d = open_gpu();
    expect_gelu(d, F32, by_tanh);
    device_close(d);
    sim_set_capability(9, 0);
}

// ---- a run, and what resumes from its checkpoint ----

struct Leg {
    const char *folder;
    bool add, forbid; // the variant
    bool resume;      // else the run begins, and is saved after its first step
    int err;          // of the resume
    struct Error e;
    bool ran; // the variant did, in this leg or in one before
    uint64_t hash;
};

static void run_leg(void *context, struct Rank *r) {
    struct Leg *leg = context;
    struct Error e = {0};
    struct Variants *v = variants_of(r->device);
    if (leg->add)
        variants_add(v, files[0]);
    if (leg->forbid)
        variants_forbid(v);
    if (!leg->resume)
        tiny_step(r);
    int err = leg->resume ? checkpoint_resume(&r->zero, (const char *const[]){leg->folder, NULL},
                                              "auto", "a run\n", NULL, &e)
                          : checkpoint_save(&r->zero, leg->folder, "a run\n", NULL, &e);
    if (!err)
        tiny_step(r);
    uint64_t hash = zero_weights_hash(&r->zero);
    if (!tiny_is_first(r))
        return;
    leg->err = err;
    leg->e = e;
    leg->hash = hash;
    leg->ran = v->ran[CUDA_OP_gelu_forward][0];
}

static struct Leg leg_of(const struct Leg *asked, int ranks) {
    struct RankSettings s = gpu_settings(F32, ranks, 1);
    struct Leg leg = *asked;
    if (ranks == 1)
        s.batch *= 2; // as many sequences a step
    tiny_ranks(&s, run_leg, &leg);
    return leg;
}

static void expect_refused(const struct Leg *leg, const char *gpu) {
    assert_error(leg->err, -ENOTSUP, &leg->e, "E_KERNEL_VARIANT test GELU, sm_90a");
    assert_non_null(strstr(leg->e.text, gpu));
}

TEST(a_resumed_run_keeps_its_variants) {
    if (!is_testable())
        skip();
    char *folder = scratch_make();
    struct Leg first = leg_of(&(struct Leg){.folder = folder, .add = true}, 2);
    assert_true(first.ran);
    struct Leg second = leg_of(&(struct Leg){.folder = folder, .add = true, .resume = true}, 2);
    assert_int_equal(second.err, 0);
    assert_true(second.ran && second.hash == first.hash);
    // Forbidden, or not in the build: a resume is refused, on as many ranks or on others.
    struct Leg forbidden = {.folder = folder, .add = true, .forbid = true, .resume = true};
    struct Leg lacking = {.folder = folder, .resume = true};
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct Leg refused = leg_of(&forbidden, ranks);
        expect_refused(&refused, "compute capability 9.0");
        refused = leg_of(&lacking, ranks);
        expect_refused(&refused, "compute capability 9.0");
    }
    if (!sim_is_real()) {
        sim_set_capability(8, 0);
        lacking.add = true; // but for another GPU
        struct Leg elsewhere = leg_of(&lacking, 2);
        expect_refused(&elsewhere, "compute capability 8.0");
        sim_set_capability(9, 0);
    }
    expect_no_race("resumes with a variant");
    scratch_remove(folder);
}

TEST(a_resumed_run_takes_no_new_variant) {
    if (!is_testable())
        skip();
    char *folder = scratch_make(), *other = scratch_make();
    struct Leg generic = leg_of(&(struct Leg){.folder = folder}, 2);
    struct Leg fresh = leg_of(&(struct Leg){.folder = other, .add = true, .forbid = true}, 2);
    assert_true(fresh.hash == generic.hash && !fresh.ran); // what is forbidden is not used
    struct Leg with = leg_of(&(struct Leg){.folder = other, .add = true}, 2);
    assert_true(with.hash != generic.hash);
    struct Leg resumed = leg_of(&(struct Leg){.folder = folder, .add = true, .resume = true}, 2);
    assert_int_equal(resumed.err, 0);
    assert_true(resumed.hash == generic.hash && !resumed.ran);
    scratch_remove(folder);
    scratch_remove(other);
}

// A variant that was there and took no arguments may be missing: it computed nothing.
TEST(what_never_ran_may_be_missing) {
    if (!is_testable())
        skip();
    struct Device *d = open_gpu(), *lacks;
    struct Error e = {0};
    assert_int_equal(device_open_cuda(&lacks, 0, &e), 0);
    for (int ran = 0; ran < 2; ran++) {
        expect_gelu(d, ran ? F32 : BF16, ran ? by_sigmoid : by_tanh);
        size_t bytes = device_get_choices(d, NULL, 0);
        char *choices = base_alloc(bytes);
        device_get_choices(d, choices, bytes);
        assert_int_equal(device_set_variants(lacks, choices, bytes, &e), ran ? -ENOTSUP : 0);
        assert_int_equal(device_set_variants(d, choices, 7, &e), 0); // damaged: none are known
        expect_gelu(d, F32, by_tanh);
        variants_add(variants_of(d), files[0]);
        free(choices);
    }
    device_close(d);
    device_close(lacks);
}
