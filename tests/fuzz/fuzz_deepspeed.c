// Fuzzes the reader of DeepSpeed's configurations: any bytes give either flags, each of them a
// value that its row allows, and a table that can be printed; or one line of complaint, and no flag
// has changed. Built and run by scripts/dev/fuzz.sh.
#include "data/flags/options.h"
#include "zero/settings/settings.h"

#include <stdlib.h>
#include <string.h>

struct Line {
    struct Settings train;
    struct Options run;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);

static const char *const blocks[] = {
    "",     "zero_optimization", "zero_optimization.offload_optimizer",
    "fp16", "optimizer",         "optimizer.params",
    "bf16", "scheduler",         "scheduler.params",
    "aio",  "autotuning",        "zero_optimization.offload_param"};
static const char *const keys[] = {"enabled",
                                   "type",
                                   "device",
                                   "stage",
                                   "lr",
                                   "betas",
                                   "train_batch_size",
                                   "train_micro_batch_size_per_gpu",
                                   "gradient_accumulation_steps",
                                   "warmup_num_steps",
                                   "total_num_steps",
                                   "warmup_type",
                                   "warmup_max_lr",
                                   "loss_scale",
                                   "initial_scale_power",
                                   "nvme_path",
                                   "cos_min_ratio",
                                   "gradient_clipping",
                                   "communication_data_type",
                                   "offload_gradients",
                                   "ratio",
                                   "block_size",
                                   "weight_decay",
                                   "cycle_min_lr"};
static const char *const values[] = {"1",
                                     "-3",
                                     "0.5",
                                     "5e8",
                                     "1e308",
                                     "12",
                                     "true",
                                     "false",
                                     "null",
                                     "\"auto\"",
                                     "\"cpu\"",
                                     "\"nvme\"",
                                     "[1, 2]",
                                     "\"log\"",
                                     "\"AdamW\"",
                                     "\"WarmupLR\"",
                                     "\"WarmupCosineLR\"",
                                     "[0.9, 0.99]",
                                     "{}",
                                     "\"fp32\"",
                                     "\"a\\n\"",
                                     "16",
                                     "1e-4",
                                     "[]"};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static unsigned draw(unsigned *state, size_t n) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 16) % (unsigned)n;
}

// A block with some members, opened and closed by its path.
static size_t put_block(char *text, size_t room, unsigned *state, const char *path) {
    size_t n = 0, open = 0;
    for (const char *at = path; *at; at += strcspn(at, "."), at += *at == '.', open++)
        n += (size_t)snprintf(text + n, room - n, "\"%.*s\": {", (int)strcspn(at, "."), at);
    for (unsigned i = 0, many = 1 + draw(state, 4); i < many; i++)
        n += (size_t)snprintf(text + n, room - n, "%s\"%s\": %s", i ? ", " : "",
                              keys[draw(state, COUNT(keys))], values[draw(state, COUNT(values))]);
    while (open--)
        n += (size_t)snprintf(text + n, room - n, "}");
    return n;
}

// Bytes alone would hardly ever spell a key, so half of the inputs are objects put together from
// words; half of these, and all others, are then damaged as the fuzzer likes.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    char text[4096] = "{";
    size_t n = 1;
    unsigned state = seed;
    if (seed % 2 == 0 || room < 8)
        return LLVMFuzzerMutate(data, size, room);
    for (unsigned i = 0, many = 1 + draw(&state, 4); i < many; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s", i ? ", " : "");
        n += put_block(text + n, sizeof text - n, &state, blocks[draw(&state, COUNT(blocks))]);
    }
    n += (size_t)snprintf(text + n, sizeof text - n, "}");
    size = size_min(n, room);
    memcpy(data, text, size);
    return seed % 4 == 1 ? size : LLVMFuzzerMutate(data, size, room);
}

// Each flag that was set reads back from its own text.
static void check_values(const struct Flags *f, const struct DeepSpeed *d) {
    for (size_t i = 0; i < d->n; i++) {
        if (!d->lines[i].flag)
            continue;
        struct Error e;
        union FlagValue v = {0};
        size_t at = flags_find(f, d->lines[i].flag);
        CHECK(at < f->n, "no flag --%s", d->lines[i].flag);
        char *text = flags_value(f, d->lines[i].flag);
        CHECK(!flag_value_parse(&f->table[at], "again", text, &v, &e), "%s", e.text);
        free(text);
    }
}

// All flags with their defaults; an input that sets one ends them.
static struct Line line;
static struct Flags flags;

static void begin(void) {
    const struct FlagPart parts[] = {{settings_table, settings_count, offsetof(struct Line, train)},
                                     {options_table, options_count, offsetof(struct Line, run)}};
    if (!flags.n)
        flags_init(&flags, parts, 2, &line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct DeepSpeed d;
    struct Error e = {0};
    begin();
    struct Line before = line;
    int code = deepspeed_read_flags_text(&flags, "fuzz.json", (const char *)data, size, 3, &d, &e);
    CHECK((code == 0) == (e.text[0] == 0), "code %d, text '%s'", code, e.text);
    CHECK(!strchr(e.text, '\n'), "two lines: '%s'", e.text);
    CHECK(!code || memcmp(&before, &line, sizeof line) == 0, "a refusal has set a flag: '%s'",
          e.text);
    if (!code) {
        FILE *out = fopen("/dev/null", "w");
        CHECK(out, "/dev/null cannot be opened");
        check_values(&flags, &d);
        deepspeed_print(&d, out);
        fclose(out);
        flags_free(&flags);
    }
    deepspeed_close(&d);
    return 0;
}
