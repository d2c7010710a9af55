// Fuzzes the readers of PEFT's adapters: any adapter_config.json is refused with one line, or has
// numbers in their ranges and is the same once written and read again; and a tensor's name is none,
// or that of one matrix. Built and run by scripts/dev/fuzz.sh.
#include "data/peft/config.h"
#include "data/peft/names.h"
#include "tests/fuzz/memory_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room); // libFuzzer's own

static const char *const keys[] = {
    "r",           "lora_alpha",   "lora_dropout", "target_modules", "bias",
    "task_type",   "use_rslora",   "rank_pattern", "fan_in_fan_out", "base_model_name_or_path",
    "layers_name", "auto_mapping", "use_dora",     "lora_bias",      "init_lora_weights",
    "revision"};
static const char *const values[] = {"8",
                                     "0.1",
                                     "1e300",
                                     "-1",
                                     "null",
                                     "false",
                                     "true",
                                     "{}",
                                     "\"none\"",
                                     "\"CAUSAL_LM\"",
                                     "[\"q_proj\", \"v_proj\"]",
                                     "[\"c_attn\", \"mlp.c_proj\"]",
                                     "\"all-linear\"",
                                     "\"gaussian\"",
                                     "[]",
                                     "1048576"};
enum { NKEY = sizeof keys / sizeof keys[0], NVALUE = sizeof values / sizeof values[0] };

// Bytes alone would hardly ever spell a key: half of the inputs are objects of such words, and half
// of these a tensor's name behind one.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    if (seed % 2 == 0 || room < 8)
        return LLVMFuzzerMutate(data, size, room);
    char text[1024];
    size_t n = (size_t)snprintf(text, sizeof text, "{\"peft_type\": \"LORA\"");
    unsigned draw = seed / 4;
    for (unsigned i = 0; i <= seed / 4 % 4; i++) {
        draw = draw * 1664525u + 1013904223u;
        n += (size_t)snprintf(text + n, sizeof text - n, ", \"%s\": %s",
                              keys[draw >> 28 & (NKEY - 1)], values[draw >> 20 & (NVALUE - 1)]);
    }
    n += (size_t)snprintf(text + n, sizeof text - n, "}");
    if (seed % 4 == 1)
        n = (size_t)snprintf(
            text, sizeof text, "base_model.model.%s%u.%s.lora_%c%s.weight",
            seed & 8 ? "transformer.h." : "model.layers.", draw >> 22,
            lora_target_module((enum LoraTarget)(seed & 16 ? LORA_Q : LORA_DOWN), seed & 8),
            seed & 32 ? 'A' : 'B', seed & 64 ? ".default" : "");
    size = size_min(n, room);
    memcpy(data, text, size);
    return seed & 128 ? size : LLVMFuzzerMutate(data, size, room);
}

static bool is_same(const struct PeftConfig *a, const struct PeftConfig *b) {
    return a->rank == b->rank && a->alpha == b->alpha && a->dropout == b->dropout &&
           a->targets == b->targets && !strcmp(a->base, b->base);
}

static void read_config(const char *path, const char *folder, bool gpt2) {
    struct PeftConfig c, again;
    struct Error e = {0};
    if (peft_config_read(&c, folder, gpt2, &e)) {
        CHECK(e.text[0] && !strchr(e.text, '\n'), "a refusal without a word, or of many lines");
        return;
    }
    CHECK(c.rank >= 1 && c.rank <= PEFT_RANK_MAX && c.alpha >= 0 && c.alpha <= 1e30f &&
              c.dropout >= 0 && c.dropout <= 1 && c.targets &&
              !(c.targets & ~lora_targets_all(gpt2)),
          "rank %zu, alpha %g, dropout %g, targets %#x", c.rank, (double)c.alpha, (double)c.dropout,
          c.targets);
    char *text = peft_config_write(&c, gpt2);
    memory_file_write(path, text, strlen(text));
    CHECK(!peft_config_read(&again, folder, gpt2, &e), "%s", e.text);
    CHECK(is_same(&c, &again), "another: %s", text);
    free(text);
}

static void read_name(const char *text, bool gpt2) {
    struct PeftName name, again;
    if (!peft_name_read(&name, text, gpt2))
        return;
    char *written = peft_name(&name, gpt2);
    CHECK(peft_name_read(&again, written, gpt2) && again.layer == name.layer &&
              again.target == name.target && again.matrix == name.matrix,
          "%s is %s", text, written);
    CHECK(strlen(written) <= strlen(text), "%s for %s", written, text);
    free(written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *folder = memory_folder_open();
    char *path = base_format("%s/adapter_config.json", folder);
    char *text = base_alloc_zeroed(size + 1);
    memcpy(text, data, size);
    for (int gpt2 = 0; gpt2 < 2; gpt2++) {
        memory_file_write(path, data, size);
        read_config(path, folder, gpt2);
        read_name(text, gpt2);
    }
    free(text);
    free(path);
    return 0;
}
