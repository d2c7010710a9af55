// What auto means: device and dtype that nobody named are those of the machine, or of the
// checkpoint that a run goes on from; what was named stays.
#include "zero/engine.h"
#include "zero/rank/rank_device.h"
#include "zero/train/resume.h"
#include "kernels/cpu/matmul.h"
#include "tests/lib/scratch.h"

#include "data/flags/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct Line {
    struct Settings said, resolved;
    struct Flags flags;
    struct Error e;
    bool resumed;
};

// Resolves a line where auto means `chosen`. Returns settings_resolve's error.
static int resolve(struct Line *line, const struct Chosen *chosen, int n,
                   const char *const *words) {
    const struct FlagPart part = {settings_table, settings_count, 0};
    char *all[16] = {(char *)"train"};
    for (int i = 0; i < n; i++)
        all[i + 1] = (char *)words[i];
    flags_init(&line->flags, &part, 1, &line->said);
    int err = flags_parse(&line->flags, n + 1, all, &line->e);
    assert_int_equal(err, 0);
    line->resolved = line->said;
    struct SettingsUse use = {
        .said = flags_said(&line->flags), .resumed = line->resumed, .cores = 1, .chosen = *chosen};
    return settings_resolve(&line->resolved, &line->said, &use, &line->e);
}

#define RESOLVE(line, chosen, ...)                                                                 \
    resolve(line, chosen, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)),           \
            (const char *[]){__VA_ARGS__})

static void is(struct Line *line, enum DeviceKind device, enum Dtype dtype, enum Dtype grad) {
    const struct RankSettings *r = &line->resolved.rank;
    assert_int_equal(r->device, device);
    assert_int_equal(r->model.dtype, dtype);
    assert_int_equal(r->grad_dtype, grad);
    char *word = flags_value(&line->flags, "dtype"); // as config.json will have it
    assert_string_equal(word, dtype_name(dtype));
    free(word);
    word = flags_value(&line->flags, "device");
    assert_string_equal(word, device_kind_name(device));
    free(word);
    flags_free(&line->flags);
}

static const struct Chosen old_cpu = {.dtype = {F32, BF16}, .from = "chosen"};
static const struct Chosen new_cpu = {.dtype = {BF16, BF16}, .from = "chosen"};
static const struct Chosen gpu = {DEVICE_CUDA, {F32, BF16}, "chosen"};

static void test_auto_is_what_the_machine_has(void **state) {
    struct Line l = {0};
    (void)state;
    assert_int_equal(RESOLVE(&l, &old_cpu, "--steps", "3"), 0);
    is(&l, DEVICE_CPU, F32, F32);
    assert_int_equal(RESOLVE(&l, &new_cpu, "--dtype", "auto"), 0);
    assert_string_equal(l.resolved.rank.dtype_from, "chosen");
    assert_string_equal(l.resolved.rank.device_from, "chosen");
    is(&l, DEVICE_CPU, BF16, BF16);
    assert_int_equal(RESOLVE(&l, &new_cpu, "--global-batch", "16"), 0);
    is(&l, DEVICE_CPU, BF16, F32);
    assert_int_equal(RESOLVE(&l, &gpu, "--device=auto"), 0);
    is(&l, DEVICE_CUDA, BF16, BF16);
}

static void test_what_is_named_stays(void **state) {
    struct Line l = {0};
    (void)state;
    assert_int_equal(RESOLVE(&l, &new_cpu, "--dtype", "fp32"), 0);
    assert_null(l.resolved.rank.dtype_from);
    assert_non_null(l.resolved.rank.device_from);
    is(&l, DEVICE_CPU, F32, F32);
    assert_int_equal(RESOLVE(&l, &gpu, "--device", "cpu"), 0); // the format is the CPU's
    assert_null(l.resolved.rank.device_from);
    is(&l, DEVICE_CPU, F32, F32);
    assert_int_equal(RESOLVE(&l, &old_cpu, "--device", "cuda"), 0);
    is(&l, DEVICE_CUDA, BF16, BF16);
    assert_int_equal(RESOLVE(&l, &gpu, "--dtype", "fp16", "--loss-scale", "4"), 0);
    is(&l, DEVICE_CUDA, F16, F16);
    assert_int_equal(RESOLVE(&l, &gpu, "--kernels", "base"), 0); // those of a CPU
    is(&l, DEVICE_CPU, F32, F32);
}

static const struct {
    const struct Chosen *chosen;
    const char *words, *said;
} refused[] = {
    {&new_cpu, "--loss-scale 4", "E_LOSS_SCALE bf16"},
    {&new_cpu, "--grad-dtype fp16", "E_GRAD_DTYPE --dtype bf16"},
    {&new_cpu, "--autotune", "E_GPU_ONLY --autotune"},
    {&gpu, "--device cuda --kernels base", "E_KERNELS_DEVICE --kernels base"},
    {&old_cpu, "--master-dtype split", "E_MASTER --master-dtype split"},
    {&old_cpu, "--rope-theta 1e4", "E_FAMILY_FLAG --family gpt2"},
    {&old_cpu, "--steps 3 --epochs 1", "E_STEPS_AND_EPOCHS --steps 3"},
    {&old_cpu, "--epochs 0", "E_EPOCHS --epochs 0"},
    {&old_cpu, "--steps 5 --warmup 9", "E_WARMUP --warmup 9"},
    {&old_cpu, "--clip 1e-31", "E_CLIP --clip 1e-31"},
    {&old_cpu, "--lr 1e-3 --min-lr 1", "E_MIN_LR --min-lr 1"},
    {&old_cpu, "--keep-best", "E_VALIDATION_MISSING --keep-best"},
    {&old_cpu, "--patience 2", "E_VALIDATION_MISSING --patience 2"},
    {&old_cpu, "--family llama --positions 9", "E_FAMILY_FLAG --positions 9"},
    {&old_cpu, "--dtype fp16 --loss-scale 2 --loss-scale-min 4", "E_LOSS_SCALE --loss-scale 2"},
    {&old_cpu, "--dtype fp16 --grad-dtype bf16", "E_GRAD_DTYPE --grad-dtype bf16"},
    {&old_cpu, "--show-chain head", "E_SHOW_CHAIN --show-chain head"},
    {&old_cpu, "--offload-ratio 0.5", "E_OFFLOAD_MISSING --offload-ratio 0.5"},
    {&old_cpu, "--host-mem 1000", "E_OFFLOAD_MISSING --host-mem 1000"},
    {&old_cpu, "--offload-optimizer cpu --delay-update --offload-ratio 0.5",
     "E_DELAY_UPDATE --offload-ratio 0.5"},
    {&old_cpu, "--ranks 2 --tp 2 --partition-activations --sequence-parallel",
     "E_PARTITION_ACTIVATIONS --sequence-parallel"},
    {&old_cpu, "--ranks 2 --tp 2 --partition-activations --fit auto",
     "E_PARTITION_ACTIVATIONS --fit auto"},
    {&old_cpu, "--ranks 2 --tp 2 --partition-activations --recompute mlp",
     "E_PARTITION_ACTIVATIONS --recompute mlp"},
    {&old_cpu, "--warmup-type linear", "E_WARMUP_TYPE --warmup-type linear"},
    {&old_cpu, "--global-batch 3 --batch 2", "E_GLOBAL_BATCH --global-batch 3"},
    {&old_cpu, "--ranks 3 --global-batch 8 --batch 1",
     "E_GLOBAL_BATCH --global-batch 6 or 9 would do; --ranks 1, 2, 4 or 8 would do"},
    {&old_cpu, "--ranks 3 --global-batch 2 --batch 1",
     "E_GLOBAL_BATCH ; --global-batch 3 would do; --ranks 1 or 2 would do"},
    {&old_cpu, "--ranks 6 --tp 2 --pp 2", "E_GRID ; a product of 1, 2, 3 or 6 would do"},
    {&old_cpu, "--delay-update", "E_OFFLOAD_MISSING --delay-update"},
    {&old_cpu, "--nvme-depth 4", "E_OFFLOAD_MISSING --nvme-depth"},
    {&old_cpu, "--nvme-path /", "E_OFFLOAD_MISSING --nvme-path"},
    {&old_cpu, "--nvme-block 65536", "E_OFFLOAD_MISSING --nvme-block"},
    {&old_cpu, "--check-io", "E_OFFLOAD_MISSING --check-io"},
    {&old_cpu, "--host-mem-per-rank 1000", "E_OFFLOAD_MISSING --host-mem-per-rank 1000"},
    {&old_cpu, "--check-launches", "E_GPU_ONLY --check-launches"},
    {&old_cpu, "--delay-after 3", "E_DELAY_UPDATE --delay-after 3"},
    {&old_cpu, "--offload-param nvme", "E_NVME_PATH_MISSING --nvme-path"},
    {&old_cpu, "--ranks 2000", "E_RANKS --ranks 2000"},
    {&old_cpu, "--cluster x", "E_PLAN_MISSING --cluster x"},
    {&gpu, "--ranks 2 --tp 2 --autotune", "E_TP_AUTOTUNE --tp 2"},
    {&old_cpu, "--ranks 3 --tp 2", "E_GRID --tp 2"},
    {&old_cpu, "--pp-split 1,1", "E_PP_SPLIT --pp-split 1,1"},
    {&old_cpu, "--partition-activations", "E_PARTITION_ACTIVATIONS"},
    {&old_cpu, "--ranks 4 --zero 1 --zero-shard-size 3", "E_SHARD_SIZE_RANKS --ranks 4"},
    {&old_cpu, "--ranks 4 --zero 2 --zero-hpz-partition-size 2", "E_HPZ_STAGE --zero 2"},
    {&old_cpu, "--ranks 4 --zero 3 --zero-hpz-partition-size 3", "E_HPZ_SIZE --ranks 4"},
    {&old_cpu, "--ranks 4 --zero 3 --zero-hpz-partition-size 2 --offload-param cpu",
     "E_HPZ_OFFLOAD --offload-param cpu"},
    {&old_cpu, "--ranks 2 --zero-quantized-weights", "E_QUANT_STAGE --zero 0"},
    {&old_cpu, "--ranks 2 --zero 3 --tp 2 --zero-quantized-weights", "E_TP_QUANT --tp 2"},
    {&old_cpu, "--ranks 2 --zero 1 --offload-param cpu --zero-quantized-weights",
     "E_QUANT_OFFLOAD --zero 1"},
    {&old_cpu, "--ranks 4 --zero 2 --zero-shard-size 2 --zero-quantized-gradients",
     "E_QUANT_SHARD_SIZE --zero-shard-size 2"},
    {&old_cpu, "--ranks 4 --zero 2 --node-size 3 --zero-quantized-gradients",
     "E_QUANT_NODES --node-size 3"},
};

static void test_what_does_not_go_together(void **state) {
    struct Line l = {0};
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char *words = base_format("%s", refused[i].words), *rest = words;
        const char *word[12];
        int n = 0;
        while (n < 12 && (word[n] = strtok_r(rest, " ", &rest)))
            n++;
        assert_error(resolve(&l, refused[i].chosen, n, word), -EINVAL, &l.e, refused[i].said);
        flags_free(&l.flags);
        free(words);
    }
    assert_int_equal(RESOLVE(&l, &new_cpu, "--grad-dtype", "bf16"), 0);
    is(&l, DEVICE_CPU, BF16, BF16);
}

// What others call a flag is the name of one flag, and of no other; so is what it was called
// before.
static void test_other_names_are_of_one_flag(void **state) {
    const struct FlagPart parts[] = {
        {settings_table, settings_count, 0},
        {options_table, options_count, sizeof(struct Settings)},
    };
    char *both = base_alloc_zeroed(sizeof(struct Settings) + sizeof(struct Options));
    struct Flags f;
    size_t names = 0, renamed = 0;
    (void)state;
    flags_init(&f, parts, 2, both);
    for (size_t i = 0; i < f.n; i++) {
        char *all = base_format("%s", f.table[i].also ? f.table[i].also : ""), *rest = all, *name;
        for (; (name = strtok_r(rest, " ", &rest)); names++) {
            assert_int_equal(flags_find(&f, name), f.n);
            assert_string_equal(flags_known_as(&f, name), f.table[i].name);
        }
        free(all);
        if (!f.table[i].was)
            continue;
        renamed++;
        assert_int_equal(flags_find(&f, f.table[i].was), i);
        for (size_t k = i + 1; k < f.n; k++)
            assert_false(f.table[k].was && strcmp(f.table[k].was, f.table[i].was) == 0);
    }
    assert_true(names > 50);
    assert_true(renamed > 0);
    assert_string_equal(flags_known_as(&f, "gradient_accumulation_steps"), "global-batch");
    assert_null(flags_known_as(&f, "learning"));
    flags_free(&f);
    free(both);
}

static void test_there_are_four_stages(void **state) {
    (void)state;
    assert_non_null(zero_stage(3));
    assert_null(zero_stage(4));
}

// What this machine has: the oracle, and kernels that are none, multiply nothing natively.
static void test_kernels_that_use_bf16(void **state) {
    (void)state;
    assert_false(device_has_bf16_cpu("oracle"));
    assert_false(device_has_bf16_cpu("sse9"));
    // oneDNN makes use of it under any table, the loops of one table without oneDNN.
    bool dnnl = matmul_backend_name() != NULL, units = matmul_cpu_has_bf16();
    assert_int_equal(device_has_bf16_cpu("base"), dnnl && units);
    assert_int_equal(device_has_bf16_cpu("avx512bf16"), units);
    assert_int_equal(device_has_bf16_cpu(NULL), units);
    struct World w = world_of_threads(1);
    struct Line l = {0};
    assert_int_equal(RESOLVE(&l, &old_cpu, "--ranks", "3"), 0);
    struct SettingsUse use = {.said = flags_said(&l.flags)};
    struct RankSettings s = {.device = DEVICE_CPU, .ranks = 3, .kernels = "oracle"};
    struct Error e;
    assert_int_equal(rank_device_join(&s, &w, 8, &use, &e), 0);
    assert_true(w.size == 3 && use.cores == 2 && use.chosen.device == DEVICE_CPU);
    assert_int_equal(use.chosen.dtype[DEVICE_CPU], F32);
    assert_int_equal(use.chosen.dtype[DEVICE_CUDA], BF16);
    s.kernels = NULL;
    assert_int_equal(rank_device_join(&s, &w, 8, &use, &e), 0);
    assert_int_equal(use.chosen.dtype[DEVICE_CPU], device_has_bf16_cpu(NULL) ? BF16 : F32);
    flags_free(&l.flags);
}

// ---- a checkpoint ----

// Advice leaves master weights as they are where the user chose, or a checkpoint has them so.
static void test_whose_masters_advice_may_change(void **state) {
    struct Line l = {0}, resumed = {.resumed = true};
    (void)state;
    assert_int_equal(RESOLVE(&l, &old_cpu, "--dtype", "bf16"), 0);
    assert_true(l.resolved.rank.master_open);
    flags_free(&l.flags);
    assert_int_equal(RESOLVE(&l, &old_cpu, "--dtype", "fp32"), 0);
    assert_false(l.resolved.rank.master_open);
    flags_free(&l.flags);
    assert_int_equal(RESOLVE(&l, &old_cpu, "--dtype", "bf16", "--master-dtype", "fp32"), 0);
    assert_false(l.resolved.rank.master_open);
    flags_free(&l.flags);
    assert_int_equal(RESOLVE(&resumed, &old_cpu, "--dtype", "bf16"), 0);
    assert_false(resumed.resolved.rank.master_open);
    flags_free(&resumed.flags);
}

// The head of a checkpoint alone: there are no groups behind it.
static void write_checkpoint(const char *out, unsigned step, const char *identity) {
    char *folder = base_format("%s/checkpoints/step-%08u", out, step);
    char *command = base_format("mkdir -p %s", folder), *path = checkpoint_rank_path(folder, 0);
    struct CheckpointHead head = {.step = step,
                                  .size = 1,
                                  .grid = {{1, 1, 1, 1}},
                                  .loss_scale = {1, 1, 0},
                                  .identity = (char *)identity};
    struct CheckpointWriter *w;
    struct Error e = {0};
    assert_int_equal(system(command), 0);
    assert_int_equal(checkpoint_file_create(&w, path, &head, &e), 0);
    assert_int_equal(checkpoint_file_finish(w, &e), 0);
    free(path);
    free(command);
    free(folder);
}

static void look(const char *out, const char *which, struct SettingsUse *use) {
    const struct World alone = world_of_threads(1);
    struct Resume r = {.asked = {.out = out, .which = which, .world = &alone}};
    resume_peek(&r, use);
}

static void test_a_resume_keeps_what_it_had(void **state) {
    char *out = scratch_make(), *first = base_format("%s/checkpoints/step-00000003", out);
    struct SettingsUse use = {.chosen = gpu};
    (void)state;
    look(out, NULL, &use);
    assert_true(!use.resumed && use.chosen.device == DEVICE_CUDA);
    look(out, "auto", &use); // there is none yet
    assert_true(use.resumed && use.chosen.device == DEVICE_CUDA);
    write_checkpoint(out, 3, "vocabulary 7\n--kernels avx2\n--grad-dtype bf16\n--dtype fp32\n");
    write_checkpoint(out, 5, "vocabulary 7\n--device cuda\n--dtype fp16\n");
    look(out, "auto", &use);
    assert_int_equal(use.chosen.device, DEVICE_CUDA);
    assert_true(use.chosen.dtype[DEVICE_CPU] == F16 && use.chosen.dtype[DEVICE_CUDA] == F16);
    assert_string_equal(use.chosen.from, "the checkpoint's");
    look(out, first, &use);
    assert_int_equal(use.chosen.device, DEVICE_CPU);
    assert_true(use.chosen.dtype[DEVICE_CPU] == F32 && use.chosen.dtype[DEVICE_CUDA] == F32);
    char *newest = base_format("%s/checkpoints/step-00000005/rank-0000.state", out);
    assert_int_equal(truncate(newest, 40), 0); // the run goes on from the one before it
    use.chosen = gpu;
    look(out, "auto", &use);
    assert_int_equal(use.chosen.dtype[DEVICE_CUDA], F32);
    free(newest);
    use.chosen = new_cpu;
    look(out, "/no/such", &use);
    assert_int_equal(use.chosen.dtype[DEVICE_CPU], BF16);
    free(first);
    scratch_remove(out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_is_what_the_machine_has),
        cmocka_unit_test(test_what_is_named_stays),
        cmocka_unit_test(test_what_does_not_go_together),
        cmocka_unit_test(test_other_names_are_of_one_flag),
        cmocka_unit_test(test_there_are_four_stages),
        cmocka_unit_test(test_kernels_that_use_bf16),
        cmocka_unit_test(test_whose_masters_advice_may_change),
        cmocka_unit_test(test_a_resume_keeps_what_it_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
