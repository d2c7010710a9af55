// The names and shapes of an adapter's tensors: see names.h.
#include "data/peft/names.h"

#include <stdlib.h>
#include <string.h>

static const char *const prefixes[] = {"base_model.model.model.layers.",
                                       "base_model.model.transformer.h."};
static const char *const matrices[] = {"lora_A", "lora_B"};

char *peft_name(const struct PeftName *name, bool gpt2) {
    const char *module = lora_target_module(name->target, gpt2);
    CHECK(module, "no target %d in %s", (int)name->target, gpt2 ? "gpt2" : "llama");
    return base_format("%s%zu.%s.%s.weight", prefixes[gpt2], name->layer, module,
                       matrices[name->matrix]);
}

// Returns the text after a prefix; NULL: the text is NULL, or does not begin so.
static const char *skip_prefix(const char *text, const char *prefix) {
    size_t n = strlen(prefix);
    return text && strncmp(text, prefix, n) == 0 ? text + n : NULL;
}

// Reads a layer's number as PEFT writes it. Returns the text behind its dot; NULL: there is none.
static const char *read_layer(const char *text, size_t *layer) {
    size_t n = text ? strspn(text, "0123456789") : 0;
    if (n < 1 || n > 9 || (n > 1 && *text == '0') || text[n] != '.')
        return NULL;
    *layer = strtoul(text, NULL, 10);
    return text + n + 1;
}

// True for ".weight", or that behind the adapter's name.
static bool is_end(const char *text) {
    const char *last = *text == '.' ? strchr(text + 1, '.') : NULL;
    return strcmp(text, ".weight") == 0 || (last && last > text + 1 && !strcmp(last, ".weight"));
}

bool peft_name_read(struct PeftName *out, const char *text, bool gpt2) {
    const char *at = read_layer(skip_prefix(text, prefixes[gpt2]), &out->layer);
    for (int t = 0; t < NLORA && at; t++) {
        const char *module = lora_target_module((enum LoraTarget)t, gpt2);
        const char *dot = module ? skip_prefix(skip_prefix(at, module), ".") : NULL;
        for (int m = LORA_A; m <= LORA_B && dot; m++) {
            const char *end = skip_prefix(dot, matrices[m]);
            if (!end || !is_end(end))
                continue;
            out->target = (enum LoraTarget)t;
            out->matrix = (enum LoraMatrix)m;
            return true;
        }
    }
    return false;
}

void peft_shape(const struct PeftName *name, bool gpt2, const struct HfSizes *s, size_t rank,
                uint64_t shape[2]) {
    size_t q = s->heads * s->head_size, kv = s->kv_heads * s->head_size;
    const size_t sides[NLORA][2] = {
        // out, in
        [LORA_Q] = {gpt2 ? q + 2 * kv : q, s->channels},
        [LORA_K] = {kv, s->channels},
        [LORA_V] = {kv, s->channels},
        [LORA_O] = {s->channels, q},
        [LORA_GATE] = {s->ffn, s->channels},
        [LORA_UP] = {s->ffn, s->channels},
        [LORA_DOWN] = {s->channels, s->ffn},
    };
    bool a = name->matrix == LORA_A;
    shape[0] = a ? rank : sides[name->target][0];
    shape[1] = a ? sides[name->target][1] : rank;
}
