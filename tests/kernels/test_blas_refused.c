// Training where cuBLASLt refuses something: each epilogue, each form of a product in 16 bits, all
// workspace, all split algorithms. The run must go on, with losses near those of a run with nothing
// refused; the report must name the way that was taken; and a checkpoint that was made under the
// refusal must go on in the same way, to the same bits, where nothing is refused any more.
//
// For the simulator alone, whose cuBLASLt refuses what it is told to (tests/cusim/blas_sim.h). The
// model is one block whose sizes let cuBLASLt do all that it is ever asked for, and split k; its
// GPU is one of 8.0, where it is asked for bias gradients in bf16, too.
#include "zero/state.h"
#include "tests/lib/child.h"
#include "tests/cusim/blas_sim.h"
#include "tests/cusim/sim.h"
#include "tests/lib/gpu_runs.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "zero/checkpoint/checkpoint.h"

enum { STEPS = 3 };

struct Case {
    const char *name;
    enum Dtype dtype;
    struct BlasRefusal refusal;
    const char *told; // in the report
    bool fallback;    // it is one, and counted as such
};

#define OWN "by our own kernels around a plainer product"
#define UNSPLIT "by an algorithm of cuBLASLt that does not split k"

static const struct Case cases[] = {
    {"bias", BF16, {.form = "bias"}, "epilogue bias: by our own kernels; fallback: " OWN, true},
    {"dgelu", BF16, {.form = "dgelu"}, "epilogue dgelu: by our own kernels; fallback: " OWN, true},
    {"bgradb",
     BF16,
     {.form = "bgradb"},
     "epilogue dbias: by our own kernels; fallback: " OWN,
     true},
    {"no proposals for bgradb",
     BF16,
     {.form = "bgradb", .empty = true},
     "it says: success; of 0 proposals none may be taken",
     true},
    {"NT bf16", BF16, {.form = "NT bf16"}, "C = A B', bf16 to bf16, epilogue none: by our", true},
    {"NN bf16", BF16, {.form = "NN bf16"}, "C = A B, bf16 to bf16, epilogue none: by our", true},
    {"TN bf16", BF16, {.form = "TN bf16"}, "C = A' B, bf16 to bf16, epilogue none: by our", true},
    {"TN fp16", F16, {.form = "TN fp16"}, "C = A' B, fp16 to fp16, epilogue none: by our", true},
    {"bias in fp32",
     F32,
     {.form = "bias"},
     "fp32 to fp32, epilogue bias: by our own kernels",
     true},
    {"splits", BF16, {.splits = true}, "fallback: " UNSPLIT, true},
    {"workspace", BF16, {.workspace = true}, "split 1, reduction scheme 0, workspace 0", false}};
enum { NCASE = sizeof cases / sizeof cases[0] };

static struct RankSettings settings_of(enum Dtype dtype) {
    struct RankSettings s = gpu_settings(dtype, 1, 0);
    struct Error e;
    s.model = (struct ModelConfig){
        .layers = 1, .heads = 2, .channels = 128, .seq_len = 64, .vocab = 61, .dtype = dtype};
    s.batch = 2;
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    return s;
}

struct Trained {
    const char *folder; // NULL: no checkpoint
    bool resumed;
    double loss[STEPS];
    uint64_t hash;
    char *choices, *fallbacks; // as they are told at the end
};

static void train(void *context, struct Rank *r) {
    struct Trained *run = context;
    struct Error e = {0};
    if (run->resumed && checkpoint_resume(&r->zero, (const char *const[]){run->folder, NULL},
                                          "auto", "a run\n", NULL, &e))
        fail_msg("%s", e.text);
    for (int i = run->resumed; i < STEPS; i++) {
        run->loss[i] = tiny_step(r).loss;
        if (i == 0 && run->folder && checkpoint_save(&r->zero, run->folder, "a run\n", NULL, &e))
            fail_msg("%s", e.text);
    }
    run->hash = zero_weights_hash(&r->zero);
    run->choices = device_describe_choices(r->device);
    size_t bytes;
    FILE *out = open_memstream(&run->fallbacks, &bytes);
    rank_print_fallbacks(r, out);
    fclose(out);
}

static void trained_close(struct Trained *run) {
    free(run->choices);
    free(run->fallbacks);
}

static struct Trained run_of(enum Dtype dtype, const char *folder, bool resumed) {
    struct RankSettings s = settings_of(dtype);
    struct Trained run = {.folder = folder, .resumed = resumed};
    tiny_ranks(&s, train, &run);
    return run;
}

static void expect_report(const struct Case *c, const struct Trained *run, const char *when) {
    if (!strstr(run->choices, c->told))
        fail_msg("%s refused, %s: \"%s\" is not told:\n%s", c->name, when, c->told, run->choices);
    if ((*run->fallbacks != 0) != c->fallback ||
        (c->fallback && !strstr(run->fallbacks, "matrix products by a fallback: ")))
        fail_msg("%s refused, %s: it says \"%s\"", c->name, when, run->fallbacks);
}

static void try_case(const struct Case *c, const struct Trained *wish) {
    char *folder = scratch_make();
    sim_blas_refuse(c->refusal);
    struct Trained refused = run_of(c->dtype, folder, false);
    sim_blas_refuse((struct BlasRefusal){0});
    struct Trained resumed = run_of(c->dtype, folder, true);
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(refused.loss[i] - wish->loss[i]) <= 2e-3 * wish->loss[i]))
            fail_msg("%s refused: loss %.6g at step %d, not %.6g", c->name, refused.loss[i], i + 1,
                     wish->loss[i]);
    expect_report(c, &refused, "in the run");
    expect_report(c, &resumed, "after it was resumed");
    if (resumed.hash != refused.hash)
        fail_msg("%s refused: resumed without that it has other bits", c->name);
    expect_no_race(c->name);
    trained_close(&refused);
    trained_close(&resumed);
    scratch_remove(folder);
}

// Nothing refused: every epilogue is cuBLASLt's, and no product goes by a fallback.
static struct Trained run_as_wished(enum Dtype dtype) {
    struct Trained run = run_of(dtype, NULL, false);
    assert_string_equal(run.fallbacks, "");
    assert_non_null(strstr(run.choices, "split 4, reduction scheme 2"));
    assert_non_null(strstr(run.choices, "epilogue bias: by cuBLASLt"));
    assert_non_null(strstr(run.choices, "epilogue dbias: by cuBLASLt"));
    if (dtype != F32)
        assert_non_null(strstr(run.choices, "epilogue dgelu: by cuBLASLt"));
    return run;
}

TEST(training_goes_on) {
    struct Trained wish[NDTYPE];
    unsigned long before[3];
    static const int forbidden[3] = {BLAS_INPLACE, BLAS_ROUNDS, BLAS_GREEDY};
    for (int i = 0; i < 3; i++)
        before[i] = sim_blas_count(forbidden[i]);
    for (enum Dtype d = F32; d < NDTYPE; d++)
        wish[d] = run_as_wished(d);
    for (size_t i = 0; i < NCASE; i++)
        try_case(&cases[i], &wish[cases[i].dtype]);
    for (enum Dtype d = F32; d < NDTYPE; d++)
        trained_close(&wish[d]);
    for (int i = 0; i < 3; i++)
        assert_int_equal(sim_blas_count(forbidden[i]) - before[i], 0);
}

static void train_in_vain(const void *context) {
    (void)context;
    sim_blas_refuse((struct BlasRefusal){.everything = true});
    run_of(BF16, NULL, false);
}

// Where nothing is left, the line says all that one would ask for.
TEST(the_end_is_told) {
    static const char *const words[] = {"cublasLtMatmulAlgoGetHeuristic has no algorithm",
                                        "m 128 n 384 k 128, C = A B'",
                                        "bf16 to fp32, epilogue none",
                                        "rows of A, B, C 128 128 384 apart",
                                        "aligned to 16 16 16 bytes",
                                        "the simulator refuses it (CUBLAS_STATUS_NOT_SUPPORTED)"};
    int status;
    char *said = child_said(train_in_vain, NULL, &status);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strstr(said, words[i]))
            fail_msg("\"%s\" is not said: %s", words[i], said);
    free(said);
}

int main(void) {
    sim_set_capability(8, 0);
    return run_all_tests();
}
