// The settings of a step, and its rows: see step_kernels.h.
#include "data/flags/flags.h"
#include "tests/bench/step_kernels.h"

#include <errno.h>
#include <string.h>

void step_add(struct StepRows *rows, const struct StepRow *operation) {
    bool by_shape = !strcmp(operation->name, "matmul");
    size_t i = 0;
    for (; i < rows->n; i++) {
        const struct StepRow *r = &rows->row[i];
        if (r->queue == operation->queue && !strcmp(r->name, operation->name) &&
            (!by_shape || !strcmp(r->shape, operation->shape)))
            break;
    }
    CHECK(i < STEP_ROWS, "more than %d rows", STEP_ROWS);
    struct StepRow *r = &rows->row[i];
    if (i == rows->n) {
        rows->n++;
        *r = *operation;
        return;
    }
    if (strcmp(r->shape, operation->shape) != 0)
        r->shape[0] = 0;
    r->count += operation->count;
    r->launches += operation->launches;
    r->flops += operation->flops;
    r->bytes += operation->bytes;
    r->seconds += operation->seconds;
}

// GPT-2's vocabulary, whatever the text.
enum { VOCAB = 50257 };

int step_settings(const char *model, const char *batch, struct RankSettings *out, struct Error *e) {
    char *line[] = {"step_kernels", "--dtype",     "bf16",    "--device",    "cuda",
                    "--model",      (char *)model, "--batch", (char *)batch, "--threads=1"};
    const struct FlagPart part = {settings_table, settings_count, 0};
    struct Settings said, s;
    struct Flags flags;
    flags_init(&flags, &part, 1, &said);
    int err = flags_parse(&flags, sizeof line / sizeof line[0], line, e);
    struct SettingsUse use = {.said = flags_said(&flags), .cores = 1};
    s = said;
    if (!err)
        err = settings_resolve(&s, &said, &use, e);
    *out = (struct RankSettings){
        .model = s.rank.model,
        .batch = s.rank.batch,
        .nmicro = 1,
        .grad_dtype = BF16,
        .prefetch = s.rank.prefetch,
        .device = DEVICE_CUDA,
        .threads = 1,
        .ranks = 1,
        .device_bytes = SIZE_MAX,
    };
    out->model.vocab = VOCAB;
    flags_free(&flags);
    return err ? err : model_config_finish(&out->model, e);
}

int step_fit(struct RankSettings *s, double bytes, size_t *peak, struct Error *e) {
    for (int level = RECOMPUTE_NONE; level < NRECOMPUTE; level++) {
        struct Rank dry;
        s->recompute = (enum Recompute)level;
        int err = rank_open(&dry, s, true, e);
        *peak = dry.tier[TIER_DEVICE].peak;
        rank_close(&dry);
        if (err || (double)*peak <= bytes)
            return err;
    }
    return error_set(e, -ENOMEM, E_MEMORY_REFUSED,
                     "batch %zu: takes %.1f GB with --recompute block, and there are %.1f",
                     s->batch, (double)*peak / 1e9, bytes / 1e9);
}
