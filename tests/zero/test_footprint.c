// What is predicted of the whole process is what it has in memory at the most, within a tenth: in
// each row of a table of runs, one process each, from before its ranks are opened until they have
// trained and hashed their weights. Tiny models on purpose: there the process itself, with its
// queues, threads and libraries, is most of it. tests/zero/test_plan.sh looks at ./train's own.
#include "tests/lib/child.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"
#include "zero/plan/footprint.h"
#include "zero/process/memory.h"
#include "zero/state.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 3 };

struct Row {
    size_t layers, channels, seq_len;
    int ranks, stage, threads;
    enum Dtype dtype;
    enum TierKind opt, param, act;
};

static const struct Row rows[] = {
    {2, 64, 64, 1, 0, 1, F32, 0, 0, 0},
    {2, 64, 64, 1, 0, 2, BF16, 0, 0, 0},
    {2, 64, 64, 4, 3, 1, F32, 0, 0, 0},
    {2, 64, 64, 4, 2, 2, BF16, 0, 0, 0},
    {2, 64, 64, 4, 1, 1, BF16, TIER_CPU, TIER_CPU, TIER_CPU},
    {4, 256, 128, 1, 0, 2, F32, 0, 0, 0},
    {4, 256, 128, 2, 1, 1, BF16, 0, 0, 0},
    {4, 256, 128, 4, 3, 1, F32, TIER_CPU, 0, 0},
    {4, 512, 64, 1, 0, 1, BF16, TIER_CPU, TIER_CPU, 0},
    {4, 512, 64, 2, 3, 1, F32, 0, 0, 0},
    {2, 64, 64, 2, 2, 1, BF16, TIER_NVME, TIER_NVME, TIER_NVME},
};

static struct RankSettings settings_of(const struct Row *row) {
    struct RankSettings s = tiny_settings(row->dtype);
    s.model =
        (struct ModelConfig){row->layers, 2, row->channels, row->seq_len, 256, .dtype = row->dtype};
    struct Error e;
    CHECK(!model_config_finish(&s.model, &e), "%s", e.text);
    s.nmicro = 1;
    s.grad_dtype = row->dtype;
    s.ranks = row->ranks;
    s.stage = row->stage;
    s.threads = row->threads;
    s.opt_tier = row->opt;
    s.param_tier = row->param;
    s.act_tier = row->act;
    s.nvme.folder = disk_folder;
    s.timeout_s = 60;
    return s;
}

static void train(void *context, struct Rank *r) {
    (void)context;
    for (int i = 0; i < STEPS; i++)
        tiny_step(r);
    zero_weights_hash(&r->zero);
}

static struct Forecast predict(const struct RankSettings *s, size_t process_bytes) {
    struct Forecast f;
    struct Error e = {0};
    CHECK(!footprint_predict(s, process_bytes, s->ranks, &f, &e), "%s", e.text);
    return f;
}

// Says on standard error what was predicted, and what was measured.
static void run_row(const void *row) {
    struct RankSettings s = settings_of(row);
    predict(&s, 0); // as train.c does, whose process has then loaded what a rank is opened with
    memory_peak_reset();
    struct Forecast f = predict(&s, memory_resident_bytes());
    tiny_ranks(&s, train, NULL);
    fprintf(stderr, "\nprocess: predicted %zu, of it itself %zu, measured %zu\n", f.is.all_bytes,
            f.is.process_bytes, memory_peak_bytes());
}

TEST(the_process_is_predicted) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct Row *row = &rows[i];
        if (row->opt == TIER_NVME && !tiny_has_disk())
            continue;
        int status;
        char *said = child_said(run_row, row, &status);
        size_t predicted = 0, itself = 0, measured = 0;
        const char *line = strstr(said, "process: ");
        sscanf(line ? line : "", "process: predicted %zu, of it itself %zu, measured %zu",
               &predicted, &itself, &measured);
        if (status || !measured ||
            fabs((double)predicted - (double)measured) > 0.1 * (double)measured)
            fail_msg("row %zu (%d ranks, stage %d, %s, optimizer on %s): %s", i, row->ranks,
                     row->stage, dtype_name(row->dtype), tier_name(row->opt), said);
        print_message("row %zu: %+.1f%%\n", i, 100 * ((double)predicted / (double)measured - 1));
        free(said);
    }
}

AROUND_ALL(disk_open, disk_close);
