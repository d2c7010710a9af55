// See combination.h.
#include "tests/lib/combination.h"

#include "kernels/dtype.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- drawing ----

struct Draw {
    struct Combination *c;
    uint64_t seed, drawn;
};

static size_t one_of(struct Draw *d, size_t n) {
    return rng_bits(d->seed, d->drawn++) % n;
}

static bool chance(struct Draw *d, size_t percent) {
    return one_of(d, 100) < percent;
}

static size_t pick(struct Draw *d, const size_t *list, size_t n) {
    return list[one_of(d, n)];
}
#define PICK(d, ...)                                                                               \
    pick(d, (const size_t[]){__VA_ARGS__}, sizeof((const size_t[]){__VA_ARGS__}) / sizeof(size_t))

static void put(struct Combination *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void put(struct Combination *c, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    CHECK(c->words + 1 < COMBINATION_WORDS, "%d words of a combination", c->words);
    c->word[c->words++] = base_format("%s", text);
    c->word[c->words] = NULL;
}

static void put_size(struct Combination *c, const char *name, size_t value) {
    put(c, "--%s=%zu", name, value);
}

static void put_word(struct Draw *d, const char *name, size_t percent, const char *const *words) {
    size_t n = 0;
    while (words[n])
        n++;
    if (chance(d, percent))
        put(d->c, "--%s=%s", name, words[one_of(d, n)]);
}
#define PUT_WORD(d, name, percent, ...)                                                            \
    put_word(d, name, percent, (const char *const[]){__VA_ARGS__, NULL})

static void put_switch(struct Draw *d, const char *name, size_t percent) {
    if (chance(d, percent))
        put(d->c, "--%s", name);
}

static void draw_model(struct Draw *d) {
    static const char *const patterns[] = {
        "fixed:block=16,num_local_blocks=2,num_global_blocks=1",
        ("fixed:block=16,num_local_blocks=4,num_global_blocks=1,different_layout_per_head=true,"
         "num_different_global_patterns=4"),
        "bigbird:block=16,num_random_blocks=1,different_layout_per_head=true", "local:block=16"};
    bool sparse = chance(d, 15);
    size_t heads = PICK(d, 12, 12, 4, 6), keys = heads / PICK(d, 1, 1, 2, 2, 3);
    size_t head = PICK(d, 4, 4, 6, 6, 8, 8, 8, 5);
    PUT_WORD(d, "family", 100, "gpt2", "gpt2", "llama", "mistral", "qwen2", "qwen3");
    put_size(d->c, "layers", 1 + one_of(d, 4));
    put_size(d->c, "heads", heads);
    put_size(d->c, "kv-heads", keys ? keys : 1);
    put_size(d->c, "head-size", head);
    put_size(d->c, "channels", chance(d, 90) ? heads * head : 50);
    put_size(d->c, "ffn", PICK(d, 48, 60, 96, 44));
    put_size(d->c, "seq-len", sparse ? 64 : PICK(d, 16, 17, 24, 32, 12));
    if (chance(d, 25))
        put_size(d->c, "attention-window", PICK(d, 5, 16));
    if (sparse)
        put(d->c, "--sparse-attention=%s", patterns[one_of(d, 4)]);
    PUT_WORD(d, "tie", 70, "on", "off");
    d->c->vocab = PICK(d, 61, 128, 200, 300);
}

static void draw_ranks(struct Draw *d) {
    struct Combination *c = d->c;
    size_t tp = PICK(d, 1, 1, 1, 2, 2, 3, 4, 6), data = PICK(d, 1, 2, 2, 3, 4);
    size_t stages = PICK(d, 1, 1, 1, 1, 2, 2, 3, 4);
    while (tp * data * stages > 8 && data > 1)
        data--;
    while (tp * data * stages > 8)
        stages--;
    size_t ranks = chance(d, 95) ? tp * data * stages : 5;
    data = size_max(1, ranks / tp / stages);
    put_size(c, "ranks", ranks);
    put_size(c, "tp", tp);
    if (stages > 1)
        put_size(c, "pp", stages);
    PUT_WORD(d, "zero", 95, "0", "1", "2", "3", "3");
    if (chance(d, 25))
        put_size(c, "zero-shard-size", PICK(d, 1, 2, 2, 3));
    if (chance(d, 15))
        put_size(c, "zero-hpz-partition-size", PICK(d, 1, 2, 2, 3));
    if (chance(d, 30))
        put_size(c, "node-size", PICK(d, 1, 2, 2, 3, 4));
    put_switch(d, "zero-quantized-weights", 15);
    put_switch(d, "zero-quantized-gradients", 15);
    put_switch(d, "sequence-parallel", 25);
    put_switch(d, "partition-activations", 12);
    size_t batch = 1 + one_of(d, 3), micros = PICK(d, 1, 1, 2, 3);
    put_size(c, "batch", batch);
    put_size(c, "global-batch", batch * data * micros + (chance(d, 5) ? 1 : 0));
}

static bool goes_to_disk(const struct Combination *c) {
    for (int i = 1; i < c->words; i++)
        if (strstr(c->word[i], "=nvme"))
            return true;
    return false;
}

static void draw_places(struct Draw *d) {
    bool disk = d->c->folder;
    PUT_WORD(d, "recompute", 80, "none", "gelu", "attention", "mlp", "block", "block");
    PUT_WORD(d, "offload-optimizer", 45, "none", "cpu", disk ? "nvme" : "cpu");
    PUT_WORD(d, "offload-param", 40, "none", "cpu", disk ? "nvme" : "cpu");
    PUT_WORD(d, "offload-activations", 35, "none", "cpu", disk ? "nvme" : "cpu");
    PUT_WORD(d, "offload-ratio", 10, "0.5");
    put_switch(d, "delay-update", 8);
    if (disk && (goes_to_disk(d->c) || chance(d, 3)))
        put(d->c, "--nvme-path=%s", d->c->folder);
    put_size(d->c, "prefetch", one_of(d, 3));
    PUT_WORD(d, "dtype", 100, "fp32", "bf16", "bf16", "fp16");
    PUT_WORD(d, "grad-dtype", 25, "fp32", "bf16", "fp16");
    PUT_WORD(d, "adam-dtype", 20, "fp32", "bf16");
    PUT_WORD(d, "master-dtype", 20, "fp32", "split", "bf16");
    PUT_WORD(d, "overlap", 10, "off");
}

static void draw_adapters(struct Draw *d) {
    if (!chance(d, 25))
        return;
    put_size(d->c, "lora-rank", PICK(d, 1, 3, 8, 16));
    PUT_WORD(d, "lora-targets", 50, "attention", "mlp", "all");
    PUT_WORD(d, "lora-dropout", 30, "0.1", "0.5");
    PUT_WORD(d, "base-dtype", 60, "int8", "nf4");
}

void combination_draw(struct Combination *c, uint64_t seed, const char *folder) {
    struct Draw d = {.c = c, .seed = seed};
    *c = (struct Combination){.folder = folder};
    put(c, "train");
    put(c, "--threads=1");
    put(c, "--device=cpu");
    draw_model(&d);
    draw_ranks(&d);
    draw_places(&d);
    draw_adapters(&d);
}

void combination_free(struct Combination *c) {
    for (int i = 0; i < c->words; i++)
        free(c->word[i]);
    flags_free(&c->flags);
    *c = (struct Combination){0};
}

// ---- reading ----

int combination_read(struct Combination *c) {
    const struct FlagPart part = {settings_table, settings_count, 0};
    struct World w;
    flags_free(&c->flags);
    c->said = (struct Settings){0};
    c->refused = (struct Error){0};
    flags_init(&c->flags, &part, 1, &c->said);
    int err = flags_parse(&c->flags, c->words, c->word, &c->refused);
    c->resolved = c->said;
    struct SettingsUse use = {.said = flags_said(&c->flags), .cores = 1};
    if (!err)
        err = settings_resolve(&c->resolved, &c->said, &use, &c->refused);
    w = world_of_threads(c->resolved.rank.ranks);
    return err ? err : settings_of_ranks(&c->resolved, &w, c->vocab, &c->rank, &c->refused);
}

bool combination_follow(struct Combination *c) {
    static const char listed[] = " 0123456789,or"; // "--ranks 1, 2 or 4 would do"
    const char *text = c->refused.text, *end = strstr(text, " would do"), *at = NULL;
    char flag[64];
    int value;
    for (const char *next = text; (next = strstr(next, "--")) && end && next < end; next += 2)
        at = next;
    if (!at || sscanf(at, "--%63[a-z0-9-] %d", flag, &value) != 2)
        return false;
    const char *values = at + 2 + strlen(flag);
    if (strspn(values, listed) < (size_t)(end - values))
        return false;
    put(c, "--%s=%d", flag, value);
    return true;
}

bool combination_names_flag(const struct Combination *c) {
    char flag[64];
    if (sscanf(c->refused.text, "--%63[a-z0-9-]", flag) != 1)
        return false;
    for (size_t i = 0; i < settings_count; i++)
        if (!strcmp(settings_table[i].name, flag))
            return true;
    return false;
}

const char *combination_altered(struct Combination *c) {
    struct Flags resolved = flags_over(&c->flags, &c->resolved);
    static char name[64];
    for (int i = 1; i < c->words; i++) {
        const char *equals = strchr(c->word[i], '=');
        if (strncmp(c->word[i], "--", 2) || !equals)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(equals - c->word[i]) - 2, c->word[i] + 2);
        char *was = flags_value(&c->flags, name), *is = flags_value(&resolved, name);
        bool pattern = !strcmp(name, "sparse-attention"); // whose defaults are written out
        bool same = pattern || !strcmp(was, is) || !strcmp(was, "auto") || !strcmp(was, "0");
        free(was);
        free(is);
        if (!same)
            return name;
    }
    return NULL;
}

const char *combination_text(const struct Combination *c) {
    static char text[4096];
    int at = snprintf(text, sizeof text, "vocabulary %zu:", c->vocab);
    for (int i = 1; i < c->words; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, " %s", c->word[i]);
    return text;
}
