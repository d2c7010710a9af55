// Reads --lora-targets: see lora.h.
#include "model/lora.h"

#include <errno.h>
#include <string.h>

static const struct {
    const char *word;
    unsigned targets;
} groups[] = {
    {"attention", 1u << LORA_Q | 1u << LORA_K | 1u << LORA_V | 1u << LORA_O},
    {"mlp", 1u << LORA_GATE | 1u << LORA_UP | 1u << LORA_DOWN},
    {"all", (1u << NLORA) - 1},
    {"all-linear", (1u << NLORA) - 1},
};

static bool is_word(const char *word, size_t n, const char *text) {
    return n == strlen(text) && memcmp(word, text, n) == 0;
}

// True for a matrix of the ends: an adapter of a tied one would be two at once.
static bool is_end(const char *word, size_t n) {
    static const char *const ends[] = {"embed_tokens", "lm_head", "wte", "wpe"};
    bool found = false;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        found = found || is_word(word, n, ends[i]);
    return found;
}

static int refuse(const char *text, const char *word, size_t n, bool gpt2, struct Error *e) {
    const char *why = is_end(word, n)                      ? "is no matrix of a block; embeddings "
                                                             "and heads have no adapters here"
                      : lora_targets_named(word, n, !gpt2) ? "is of another family"
                                                           : "is no target";
    return error_set(e, -EINVAL, E_LORA,
                     "--lora-targets %.200s: '%.*s' %s; expected attention, mlp, all or %s, with "
                     "commas between",
                     text, (int)size_min(n, 60), word, why,
                     gpt2 ? "c_attn, c_proj, c_fc, attn.c_proj, mlp.c_proj"
                          : "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj");
}

int lora_read_targets(unsigned *out, const char *text, bool gpt2, struct Error *e) {
    unsigned targets = 0;
    const char *word = text;
    for (size_t n; word; word = word[n] ? word + n + 1 : NULL) {
        n = strcspn(word, ",");
        unsigned named = lora_targets_named(word, n, gpt2);
        for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
            if (is_word(word, n, groups[i].word))
                named |= groups[i].targets & lora_targets_all(gpt2);
        if (!named)
            return refuse(text, word, n, gpt2, e);
        targets |= named;
    }
    *out = targets;
    return 0;
}
