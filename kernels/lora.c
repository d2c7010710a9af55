// A table of the places of LoRA's adapters: see lora.h.
#include "kernels/lora.h"

#include <string.h>

static const char *const modules[NLORA][2] = {
    [LORA_Q] = {"self_attn.q_proj", "attn.c_attn"}, [LORA_K] = {"self_attn.k_proj", NULL},
    [LORA_V] = {"self_attn.v_proj", NULL},          [LORA_O] = {"self_attn.o_proj", "attn.c_proj"},
    [LORA_GATE] = {"mlp.gate_proj", NULL},          [LORA_UP] = {"mlp.up_proj", "mlp.c_fc"},
    [LORA_DOWN] = {"mlp.down_proj", "mlp.c_proj"},
};

const char *lora_target_module(enum LoraTarget t, bool gpt2) {
    return modules[t][gpt2];
}

const char *lora_target_name(enum LoraTarget t, bool gpt2) {
    const char *module = modules[t][gpt2];
    return module && !gpt2 ? strchr(module, '.') + 1 : module;
}

unsigned lora_targets_named(const char *name, size_t n, bool gpt2) {
    unsigned targets = 0;
    for (int t = 0; t < NLORA; t++) {
        const char *module = modules[t][gpt2];
        size_t length = module ? strlen(module) : 0;
        if (n && n <= length && memcmp(module + length - n, name, n) == 0 &&
            (n == length || module[length - n - 1] == '.'))
            targets |= 1u << t;
    }
    return targets;
}

unsigned lora_targets_all(bool gpt2) {
    unsigned targets = 0;
    for (int t = 0; t < NLORA; t++)
        targets |= (modules[t][gpt2] != NULL) << t;
    return targets;
}

bool lora_param_read(const char *name, enum LoraTarget *t, enum LoraMatrix *m) {
    static const char *const words[NLORA] = {"q", "k", "v", "o", "gate", "up", "down"};
    static const char *const ends[] = {".lora_A", ".lora_B"};
    for (int target = 0; target < NLORA; target++)
        for (int matrix = LORA_A; matrix <= LORA_B; matrix++) {
            size_t n = strlen(words[target]);
            if (strncmp(name, words[target], n) != 0 || strcmp(name + n, ends[matrix]) != 0)
                continue;
            *t = (enum LoraTarget)target;
            *m = (enum LoraMatrix)matrix;
            return true;
        }
    return false;
}
