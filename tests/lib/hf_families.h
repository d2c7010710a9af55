// The models in tests/fixtures/hf: their sizes, and which of our parameters they have.
#ifndef TESTS_LIB_HF_FAMILIES_H
#define TESTS_LIB_HF_FAMILIES_H
#include "data/hf/names.h"

#define FIXTURES "tests/fixtures/hf/"

static const struct HfSizes small = {
    .channels = 64, .heads = 4, .kv_heads = 2, .head_size = 16, .ffn = 96, .vocab = 211};
static const struct HfSizes gpt2_sizes = {.channels = 64,
                                          .heads = 4,
                                          .kv_heads = 4,
                                          .head_size = 16,
                                          .ffn = 96,
                                          .vocab = 211,
                                          .positions = 24};
static const struct HfSizes qwen3_sizes = {
    .channels = 64, .heads = 4, .kv_heads = 2, .head_size = 24, .ffn = 96, .vocab = 211};

#define LLAMA                                                                                      \
    "norm1.weight attention.qkv.weight attention.proj.weight norm2.weight mlp.fc.weight "          \
    "mlp.out.weight"

// Parameters as lists of words: those of the ends, and those of each of the two blocks.
static const struct Family {
    const char *folder, *family, *ends, *block;
    const struct HfSizes *sizes;
} families[] = {
    {"gpt2", "gpt2", "wte wpe norm.weight norm.bias",
     LLAMA " norm1.bias attention.qkv.bias attention.proj.bias norm2.bias mlp.fc.bias mlp.out.bias",
     &gpt2_sizes},
    {"llama", "llama", "wte norm.weight weight", LLAMA, &small},
    {"llama3", "llama", "wte norm.weight", LLAMA, &small},
    {"mistral", "mistral", "wte norm.weight weight", LLAMA, &small},
    {"qwen2", "qwen2", "wte norm.weight", LLAMA " attention.qkv.bias", &small},
    {"qwen3", "qwen3", "wte norm.weight weight",
     LLAMA " attention.q_norm.weight attention.k_norm.weight", &qwen3_sizes},
};
enum { NFAMILY = sizeof families / sizeof *families };

#endif
