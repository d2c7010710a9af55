// The table of targets: see adapter.h.
#include "model/adapter.h"

struct AdapterTarget adapter_target(const struct ModelConfig *c, enum LoraTarget target) {
    size_t C = c->channels, q = model_attention_width(c), kv = c->kv_heads * c->head_size;
    size_t ffn = c->ffn;
    struct AdapterTarget all[NLORA] = {
        [LORA_Q] = {"q.lora_A", "q.lora_B", ADAPTER_QKV, false, {q}, C, q, 0},
        [LORA_K] = {"k.lora_A", "k.lora_B", ADAPTER_QKV, false, {kv}, C, kv, q},
        [LORA_V] = {"v.lora_A", "v.lora_B", ADAPTER_QKV, false, {kv}, C, kv, q + kv},
        [LORA_O] = {"o.lora_A", "o.lora_B", ADAPTER_PROJ, true, {C}, q, C, 0},
        [LORA_GATE] = {"gate.lora_A", "gate.lora_B", ADAPTER_FC, false, {ffn}, C, ffn, 0},
        [LORA_UP] = {"up.lora_A", "up.lora_B", ADAPTER_FC, false, {ffn}, C, ffn, ffn},
        [LORA_DOWN] = {"down.lora_A", "down.lora_B", ADAPTER_OUT, true, {C}, ffn, C, 0},
    };
    if (c->family->mlp == MLP_GELU) // there is no gate before it
        all[LORA_UP].first = 0;
    if (c->kind == FAMILY_GPT2) { // queries, keys and values are one target, PEFT's c_attn
        struct AdapterTarget *qkv = &all[LORA_Q];
        qkv->rows[1] = qkv->rows[2] = kv;
        qkv->out += 2 * kv;
    }
    return all[target];
}

int adapter_targets(const struct ModelConfig *c, enum AdapterProduct product,
                    enum LoraTarget target[LORA_BESIDE]) {
    int n = 0;
    for (int t = 0; t < NLORA; t++)
        if (lora_has(&c->lora, (enum LoraTarget)t) &&
            adapter_target(c, (enum LoraTarget)t).product == product)
            target[n++] = (enum LoraTarget)t;
    return n;
}

size_t adapter_width_before(const struct ModelConfig *c, enum AdapterProduct product) {
    enum LoraTarget target[LORA_BESIDE];
    int n = 0;
    for (int p = 0; p < (int)product; p++)
        n += adapter_targets(c, (enum AdapterProduct)p, target);
    return (size_t)n * c->lora.rank;
}

size_t adapter_width(const struct ModelConfig *c) {
    return adapter_width_before(c, NPRODUCT);
}

double adapter_work(const struct ModelConfig *c, enum AdapterProduct product, bool both) {
    enum LoraTarget target[LORA_BESIDE];
    double work = 0;
    for (int i = 0, n = adapter_targets(c, product, target); i < n; i++) {
        struct AdapterTarget t = adapter_target(c, target[i]);
        work += 2 * (double)c->lora.rank * (double)((both ? t.in : 0) + t.out);
    }
    return work;
}
