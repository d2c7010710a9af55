// The host's side of a GPU, where it goes wrong: a kernel that fails is named (--check-launches), a
// call that the machine refuses ends the run with one line and status 2, and a wrong one aborts;
// memory that nobody has written is not read, and a GPU that cannot be used is not what --device
// auto means.
//
// Each run that ends the process is a child. On a real GPU none of them can be made to fail.
#include "kernels/cards.h"
#include "tests/lib/cusim_help.h"
#include "tests/lib/planned.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"

#include <stdio.h>
#include <sys/wait.h>

// ---- --device auto: first, as CUDA has not started ----

struct Auto {
    int ranks, gpus, capability; // 10 times major
    const char *kernels;
    enum DeviceKind found;
    const char *said; // NULL: nothing
};

static enum FlagSource from_default(const void *flags, const char *name) {
    (void)flags;
    (void)name;
    return FLAG_FROM_DEFAULT;
}

static void look_for_gpu(const void *context) {
    const struct Auto *a = context;
    struct RankSettings s = {.device = NDEVICEKIND, .ranks = a->ranks, .kernels = a->kernels};
    struct World w = world_of_threads(1);
    struct SettingsUse use = {.said = {from_default, NULL}};
    struct Error e = {0};
    unsetenv("CUDA_MODULE_LOADING");
    cards_folder = "/none"; // as many cards as the simulator has, not as this machine
    sim_set_gpus(a->gpus);
    sim_set_capability(a->capability / 10, 0);
    CHECK(!rank_device_join(&s, &w, 2, &use, &e), "%s", e.text);
    CHECK(use.chosen.device == a->found, "device %d", (int)use.chosen.device);
    CHECK(use.chosen.dtype[DEVICE_CUDA] == BF16, "a GPU that can be opened has bf16");
    CHECK(a->ranks == 1 || a->kernels || strcmp(sim_module_loading(), "EAGER") == 0,
          "CUDA was called before its environment was made");
}

TEST(auto_is_a_gpu_that_can_be_used) {
    static const char old[] = "--device auto chose cpu: --device cuda: GPU 0 has compute "
                              "capability 7.0, expected 8.0 or newer";
    static const struct Auto all[] = {
        {1, 1, 90, NULL, DEVICE_CUDA, NULL}, {3, 1, 80, NULL, DEVICE_CUDA, NULL},
        {3, 2, 80, NULL, DEVICE_CUDA, NULL}, // rank_device_open refuses
        {1, 0, 90, NULL, DEVICE_CPU, NULL},  {1, 1, 70, NULL, DEVICE_CPU, old},
        {2, 2, 90, "avx2", DEVICE_CPU, NULL}};
    if (sim_is_real())
        skip();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int status;
        char *said = child_said(look_for_gpu, &all[i], &status);
        if (status || (all[i].said ? !strstr(said, all[i].said) : *said != '\0'))
            fail_msg("case %zu, status %#x: %s", i, (unsigned)status, said);
        free(said);
    }
}

// ---- a kernel that fails ----

struct Failing {
    bool check;
    size_t nth; // kernel of the second step
};

static void fail_in_second_step(const void *context) {
    const struct Failing *f = context;
    struct RankSettings s = tiny_settings(BF16);
    struct Rank r;
    s.device = DEVICE_CUDA;
    s.check_launches = f->check;
    tiny_open(&r, &s, 1);
    tiny_step(&r);
    sim_fail_launch(f->nth);
    tiny_step(&r);
    rank_close(&r);
}

static char *said_by(struct Failing f) {
    int status;
    char *said = child_said(fail_in_second_step, &f, &status), *end = strchr(said, '\n');
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 2 || strncmp(said, "train: GPU 0, ", 14) != 0)
        fail_msg("kernel %zu failed, status %#x: %s", f.nth, (unsigned)status, said);
    if (!end || end[1] || !line_is(said, "E_GPU_KERNEL (cudaErrorIllegalAddress)") ||
        f.check == (strstr(said, "--check-launches") != 0))
        fail_msg("kernel %zu: expected one line with the error's name and advice: %s", f.nth, said);
    return said;
}

static void expect_named(size_t nth, const char *kernel, const char *where) {
    char *said = said_by((struct Failing){true, nth});
    if (!strstr(said, kernel) || !strstr(said, where))
        fail_msg("kernel %zu: expected \"%s\" and \"%s\", said: %s", nth, kernel, where, said);
    free(said);
}

TEST(a_kernel_that_fails_is_named) {
    if (sim_is_real())
        skip();
    expect_named(0, "kernel 1 (", " of embed_forward, queue 0, step 2, unit 0: CUDA says: ");
    expect_named(1, "kernel 1 (", " of norm_forward, queue 0, step 2, unit 1: CUDA says: ");
    // cuBLASLt's product, in fp32, was the first.
    expect_named(2, "kernel 2 (", " of matmul, queue 0, step 2, unit 1: CUDA says: ");
}

// Else it is some later call that says so, and its line says at least which.
TEST(without_the_flag_a_call_is_named) {
    if (sim_is_real())
        skip();
    for (size_t nth = 0; nth < 3; nth++) {
        char *said = said_by((struct Failing){false, nth});
        if (!strstr(said, ": CUDA says: an illegal memory access") || strstr(said, "step 2"))
            fail_msg("kernel %zu: %s", nth, said);
        free(said);
    }
}

TEST(the_flag_changes_no_bit) {
    struct RankSettings s = tiny_settings(BF16);
    s.device = DEVICE_CUDA;
    uint64_t without = tiny_run(&s, 1, 2);
    s.check_launches = true;
    assert_true(tiny_run(&s, 1, 2) == without);
    assert_int_equal(sim_races(), 0);
}

// ---- a call that is refused ----

struct Call {
    const char *name;
    size_t nth;
    int status; // that it returns
    const char *said, *error;
};

struct Refused {
    const struct Call *call;
    int ranks;
    bool chosen; // the nth call of the first step, where products are chosen; else of the second
};

static void refuse_in_a_step(void *context, struct Rank *r) {
    const struct Refused *c = context;
    if (!c->chosen)
        tiny_step(r);
    if (tiny_is_first(r))
        sim_fail_call(c->call->name, c->call->nth, c->call->status);
    tiny_step(r);
}

static void train_until_refused(const void *context) {
    const struct Refused *c = context;
    struct RankSettings s = tiny_settings(BF16);
    s.device = DEVICE_CUDA;
    s.ranks = c->ranks;
    s.stage = c->ranks > 1 ? 2 : 0;
    sim_set_gpus(c->ranks);
    tiny_ranks(&s, refuse_in_a_step, (void *)c);
}

// aborts: it is a mistake of ours.
static void expect_refused(struct Refused c, bool aborts) {
    int status;
    char *said = child_said(train_until_refused, &c, &status), *end = strchr(said, '\n');
    bool gave_up = WIFEXITED(status) && WEXITSTATUS(status) == 2 && !strncmp(said, "train: ", 7);
    bool aborted = WIFSIGNALED(status) && strstr(said, "check failed");
    if (!(aborts ? aborted : gave_up) || !end || end[1] || !strstr(said, c.call->said) ||
        !(aborts ? strstr(said, c.call->error) != NULL : line_is(said, c.call->error)))
        fail_msg("%s returns %d: expected \"%s\" and \"%s\"; status %#x, said: %s", c.call->name,
                 c.call->status, c.call->said, c.call->error, (unsigned)status, said);
    free(said);
}

static void expect_each(const struct Call *all, size_t n, int ranks, bool chosen, bool aborts) {
    if (sim_is_real())
        skip();
    for (size_t i = 0; i < n; i++)
        expect_refused((struct Refused){&all[i], ranks, chosen}, aborts);
}

TEST(a_call_that_is_refused_ends_in_one_line) {
    static const struct Call all[] = {
        {"cudaMemcpyAsync", 0, 2,
         "train: GPU 0, cudaMemcpyAsync: ", "E_GPU_MEMORY (cudaErrorMemoryAllocation)"},
        {"cudaEventRecord", 0, 214,
         "cudaEventRecord: ", "E_GPU_BROKEN (cudaErrorECCUncorrectable)"},
        {"cudaStreamSynchronize", 0, 999,
         "cudaStreamSynchronize: ", "E_GPU_CALL (cudaErrorUnknown)"},
        {"cudaEventRecord", 1, 46,
         "cudaEventRecord: ", "E_GPU_TAKEN (cudaErrorDevicesUnavailable)"},
        {"cudaEventRecord", 1, 35, "cudaEventRecord: ", "E_GPU_DRIVER"},
        {"cudaLaunchKernel", 3, 700,
         "GPU 0, launch of a kernel: ", "E_GPU_KERNEL --check-launches"},
        {"cudaFree", 0, 700, "cudaFree: ", "E_GPU_KERNEL --check-launches"},
        {"cublasLtMatmul", 0, 14, "the product: m ", "E_GPU_CALL (CUBLAS_STATUS_INTERNAL_ERROR)"}};
    expect_each(all, sizeof all / sizeof all[0], 1, false, false);
}

// A product that cuBLASLt cannot make goes another way, and that has other bits. So what is no
// answer to the question, memory that is out for example, may not pass for one.
TEST(a_choice_that_fails_is_no_refusal) {
    static const struct Call all[] = {
        {"cublasLtMatmulAlgoGetHeuristic", 0, 3, "train: GPU 0, cublasLtMatmulAlgoGetHeuristic: ",
         "E_GPU_MEMORY (CUBLAS_STATUS_ALLOC_FAILED); the product: m "},
        {"cublasLtMatmulAlgoConfigGetAttribute", 3, 14, "(CUBLAS_STATUS_INTERNAL_ERROR)",
         "E_GPU_CALL"}};
    expect_each(all, sizeof all / sizeof all[0], 1, true, false);
}

TEST(a_call_of_one_rank_ends_all) {
    static const struct Call all[] = {
        {"cudaStreamWaitEvent", 5, 700, "GPU ", "E_GPU_KERNEL cudaStreamWaitEvent: "},
        {"ncclSend", 3, 2, "(ncclResult_t 2) on GPU ", "E_NCCL NCCL_DEBUG=WARN"},
        {"ncclGroupStart", 1, 2, "reduce_scatter of ", "E_NCCL"},
        {"ncclCommFinalize", 0, 1, "(ncclResult_t 1)", "E_NCCL"}};
    expect_each(all, sizeof all / sizeof all[0], 3, false, false);
}

// An argument that no GPU takes.
TEST(a_mistake_of_ours_aborts) {
    static const struct Call all[] = {
        {"cudaMemcpyAsync", 0, 1, "cudaMemcpyAsync(dst, src, bytes, ", "(cudaErrorInvalidValue)"},
        {"cudaLaunchKernel", 0, 9, "kernels/cuda/launch.c:", "launch of a kernel: CUDA says: "},
        {"cublasLtMatmul", 0, 7, "cublasLtMatmul: cuBLASLt says: ", "(CUBLAS_STATUS_INVALID_VAL"}};
    expect_each(all, sizeof all / sizeof all[0], 1, false, true);
}

// ---- memory that nobody has written ----

enum { N = 100 };

static struct Device *open_gpu(void) {
    struct Device *d;
    struct Error e = {0};
    if (device_open_cuda(&d, 0, &e))
        fail_msg("%s", e.text);
    return d;
}

// The optimizer on the host, whose master weights were never read from anywhere.
static void update_unwritten(void) {
    struct Device *gpu = open_gpu(), *cpu;
    struct Tier tier;
    struct Block block;
    struct Error e = {0};
    CHECK(!device_open_cpu(&cpu, 1, NULL, &e), "%s", e.text);
    tier_init(&tier, TIER_CPU, gpu, SIZE_MAX);
    CHECK(!tier_alloc(&tier, TAG_OPTIMIZER, "weights", N * sizeof(float), &block, &e), "%s",
          e.text);
    uint16_t *rounded = base_alloc(N * sizeof *rounded);
    cpu->kernels->cast(
        cpu->queue[QUEUE_COMPUTE],
        &(struct Cast){
            .n = N, .src_dtype = F32, .dst_dtype = BF16, .src = block.mem, .dst = rounded});
    device_sync_queue(cpu, QUEUE_COMPUTE);
}

static void copy_unwritten(void) {
    struct Device *gpu = open_gpu();
    char *from = device_alloc_host(gpu, N), *to = base_alloc(N);
    volatile size_t n = N; // so that the compiler calls memcpy, which the simulator watches
    memcpy(to, from, n);
    fputs(to[0] ? "" : "zeros", stderr);
}

TEST(unwritten_memory_is_not_read) {
    if (sim_is_real())
        skip();
    child_says(copy_unwritten, "that nobody has written: byte 0 of allocation");
    child_says(update_unwritten, "that nobody has written: byte 0 of allocation");
}

// Ranks that share a GPU read each other's buffers; between GPUs NCCL has a buffer for pieces.
TEST(pieces_are_planned_where_they_are) {
    struct RankSettings s = tiny_settings(BF16);
    s.device = DEVICE_CUDA;
    s.ranks = s.stage = 2;
    s.comm_chunk = 1 << 16;
    size_t shared = planned_is_measured(&s, "one GPU").is.tier[TIER_DEVICE].most[TAG_COMM];
    if (sim_is_real())
        return;
    sim_set_gpus(2);
    size_t apart = planned_is_measured(&s, "two GPUs").is.tier[TIER_DEVICE].most[TAG_COMM];
    sim_set_gpus(1);
    assert_int_equal(apart, shared + s.comm_chunk);
}
