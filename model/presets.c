// The table of models. See presets.h for the columns, config.h for the families.
#include "model/presets.h"
#include "kernels/nearest.h"

#include <string.h>

enum { T = 2048 }; // most were made for more, which costs memory: set it by --seq-len

static const char llama31[] = "llama3:8:1:4:8192", llama32[] = "llama3:32:1:4:8192";

#define GPT2(name, layers, heads, channels, seq_len, vocab)                                        \
    { name, FAMILY_GPT2, layers, heads, 0, 0, channels, 0, seq_len, vocab, false, 0, 0, NULL, 0 }

// Radford et al. 2019; Touvron et al. 2023; Zhang et al. 2024 (TinyLlama); Grattafiori et al. 2024;
// Jiang et al. 2023; Ben Allal et al. 2025 (SmolLM2); Qwen team 2024, 2025. tiny is the smallest
// model that learns something in a minute.
static const struct Preset presets[] = {
    GPT2("tiny", 4, 4, 128, 64, 0),
    GPT2("gpt2", 12, 12, 768, 1024, 50257),
    GPT2("gpt2-medium", 24, 16, 1024, 1024, 50257),
    GPT2("gpt2-large", 36, 20, 1280, 1024, 50257),
    GPT2("gpt2-xl", 48, 25, 1600, 1024, 50257),
    {"llama2-7b", FAMILY_LLAMA, 32, 32, 32, 128, 4096, 11008, T, 32000, true, 1e-5, 1e4, NULL, 0},
    {"tinyllama", FAMILY_LLAMA, 22, 32, 4, 64, 2048, 5632, T, 32000, true, 1e-5, 1e4, NULL, 0},
    {"llama3-8b", FAMILY_LLAMA, 32, 32, 8, 128, 4096, 14336, T, 128256, true, 1e-5, 5e5, NULL, 0},
    {"llama3.1-8b", FAMILY_LLAMA, 32, 32, 8, 128, 4096, 14336, T, 128256, true, 1e-5, 5e5, llama31,
     0},
    {"llama3.2-1b", FAMILY_LLAMA, 16, 32, 8, 64, 2048, 8192, T, 128256, false, 1e-5, 5e5, llama32,
     0},
    {"llama3.2-3b", FAMILY_LLAMA, 28, 24, 8, 128, 3072, 8192, T, 128256, false, 1e-5, 5e5, llama32,
     0},
    {"smollm2-135m", FAMILY_LLAMA, 30, 9, 3, 64, 576, 1536, T, 49152, false, 1e-5, 1e5, NULL, 0},
    {"smollm2-360m", FAMILY_LLAMA, 32, 15, 5, 64, 960, 2560, T, 49152, false, 1e-5, 1e5, NULL, 0},
    {"smollm2-1.7b", FAMILY_LLAMA, 24, 32, 32, 64, 2048, 8192, T, 49152, false, 1e-5, 1.3e5, NULL,
     0},
    {"mistral-7b", FAMILY_MISTRAL, 32, 32, 8, 128, 4096, 14336, T, 32000, true, 1e-5, 1e4, NULL,
     4096},
    {"qwen2.5-0.5b", FAMILY_QWEN2, 24, 14, 2, 64, 896, 4864, T, 151936, false, 1e-6, 1e6, NULL, 0},
    {"qwen2.5-1.5b", FAMILY_QWEN2, 28, 12, 2, 128, 1536, 8960, T, 151936, false, 1e-6, 1e6, NULL,
     0},
    {"qwen2.5-3b", FAMILY_QWEN2, 36, 16, 2, 128, 2048, 11008, T, 151936, false, 1e-6, 1e6, NULL, 0},
    {"qwen2.5-7b", FAMILY_QWEN2, 28, 28, 4, 128, 3584, 18944, T, 152064, true, 1e-6, 1e6, NULL, 0},
    {"qwen2.5-14b", FAMILY_QWEN2, 48, 40, 8, 128, 5120, 13824, T, 152064, true, 1e-5, 1e6, NULL, 0},
    {"qwen3-0.6b", FAMILY_QWEN3, 28, 16, 8, 128, 1024, 3072, T, 151936, false, 1e-6, 1e6, NULL, 0},
    {"qwen3-1.7b", FAMILY_QWEN3, 28, 16, 8, 128, 2048, 6144, T, 151936, false, 1e-6, 1e6, NULL, 0},
    {"qwen3-4b", FAMILY_QWEN3, 36, 32, 8, 128, 2560, 9728, T, 151936, false, 1e-6, 1e6, NULL, 0},
    {"qwen3-8b", FAMILY_QWEN3, 36, 32, 8, 128, 4096, 12288, T, 151936, true, 1e-6, 1e6, NULL, 0},
};
enum { NPRESET = sizeof presets / sizeof presets[0] };

const struct Preset *preset_named(const char *name) {
    for (int i = 0; i < NPRESET; i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

const struct Preset *preset_at(size_t i) {
    return i < NPRESET ? &presets[i] : NULL;
}

const char *preset_nearest(const char *name) {
    size_t best = nearest_limit(name);
    const char *nearest = NULL;
    for (int i = 0; i < NPRESET; i++) {
        size_t distance = nearest_distance(name, presets[i].name);
        if (distance < best) {
            best = distance;
            nearest = presets[i].name;
        }
    }
    return nearest;
}

char *preset_names(void) {
    char *names = base_format("%s", presets[0].name);
    for (int i = 1; i < NPRESET; i++)
        base_append(&names, ", %s", presets[i].name);
    return names;
}
