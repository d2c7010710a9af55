// The names of parameters in Hugging Face's folders: see names.h.
#include "data/hf/names.h"

#include <string.h>

enum Size { NONE, C, Q, KV, QKV, HS, F, V, P };

// A tensor, and the parameter of which it is a part. The rows of a parameter follow each other, in
// the order in which they are stacked. # is the layer's number.
struct NameRow {
    const char *param;
    const char *name;
    enum Size rows, cols; // cols NONE: a vector
    bool transposed;
};

#define GPT2_BLOCK "transformer.h.#."
static const struct NameRow gpt2_rows[] = {
    {"wte", "transformer.wte.weight", V, C, false},
    {"wpe", "transformer.wpe.weight", P, C, false},
    {"norm1.weight", GPT2_BLOCK "ln_1.weight", C, NONE, false},
    {"norm1.bias", GPT2_BLOCK "ln_1.bias", C, NONE, false},
    {"attention.qkv.weight", GPT2_BLOCK "attn.c_attn.weight", QKV, C, true},
    {"attention.qkv.bias", GPT2_BLOCK "attn.c_attn.bias", QKV, NONE, false},
    {"attention.proj.weight", GPT2_BLOCK "attn.c_proj.weight", C, Q, true},
    {"attention.proj.bias", GPT2_BLOCK "attn.c_proj.bias", C, NONE, false},
    {"norm2.weight", GPT2_BLOCK "ln_2.weight", C, NONE, false},
    {"norm2.bias", GPT2_BLOCK "ln_2.bias", C, NONE, false},
    {"mlp.fc.weight", GPT2_BLOCK "mlp.c_fc.weight", F, C, true},
    {"mlp.fc.bias", GPT2_BLOCK "mlp.c_fc.bias", F, NONE, false},
    {"mlp.out.weight", GPT2_BLOCK "mlp.c_proj.weight", C, F, true},
    {"mlp.out.bias", GPT2_BLOCK "mlp.c_proj.bias", C, NONE, false},
    {"norm.weight", "transformer.ln_f.weight", C, NONE, false},
    {"norm.bias", "transformer.ln_f.bias", C, NONE, false},
    {"weight", "lm_head.weight", V, C, false},
    {NULL, NULL, NONE, NONE, false},
};

// Llama's names are those of Mistral and Qwen, too; each model has some of the biases and norms of
// queries and keys, or none.
#define BLOCK "model.layers.#."
static const struct NameRow llama_rows[] = {
    {"wte", "model.embed_tokens.weight", V, C, false},
    {"norm1.weight", BLOCK "input_layernorm.weight", C, NONE, false},
    {"attention.qkv.weight", BLOCK "self_attn.q_proj.weight", Q, C, false},
    {"attention.qkv.weight", BLOCK "self_attn.k_proj.weight", KV, C, false},
    {"attention.qkv.weight", BLOCK "self_attn.v_proj.weight", KV, C, false},
    {"attention.qkv.bias", BLOCK "self_attn.q_proj.bias", Q, NONE, false},
    {"attention.qkv.bias", BLOCK "self_attn.k_proj.bias", KV, NONE, false},
    {"attention.qkv.bias", BLOCK "self_attn.v_proj.bias", KV, NONE, false},
    {"attention.q_norm.weight", BLOCK "self_attn.q_norm.weight", HS, NONE, false},
    {"attention.k_norm.weight", BLOCK "self_attn.k_norm.weight", HS, NONE, false},
    {"attention.proj.weight", BLOCK "self_attn.o_proj.weight", C, Q, false},
    {"attention.proj.bias", BLOCK "self_attn.o_proj.bias", C, NONE, false},
    {"norm2.weight", BLOCK "post_attention_layernorm.weight", C, NONE, false},
    {"mlp.fc.weight", BLOCK "mlp.gate_proj.weight", F, C, false},
    {"mlp.fc.weight", BLOCK "mlp.up_proj.weight", F, C, false},
    {"mlp.fc.bias", BLOCK "mlp.gate_proj.bias", F, NONE, false},
    {"mlp.fc.bias", BLOCK "mlp.up_proj.bias", F, NONE, false},
    {"mlp.out.weight", BLOCK "mlp.down_proj.weight", C, F, false},
    {"mlp.out.bias", BLOCK "mlp.down_proj.bias", C, NONE, false},
    {"norm.weight", "model.norm.weight", C, NONE, false},
    {"weight", "lm_head.weight", V, C, false},
    {NULL, NULL, NONE, NONE, false},
};

static size_t axis_length(enum Size size, const struct HfSizes *s) {
    const size_t lengths[] = {[NONE] = 0,
                              [C] = s->channels,
                              [Q] = s->heads * s->head_size,
                              [KV] = s->kv_heads * s->head_size,
                              [QKV] = (s->heads + 2 * s->kv_heads) * s->head_size,
                              [HS] = s->head_size,
                              [F] = s->ffn,
                              [V] = s->vocab,
                              [P] = s->positions};
    return lengths[size];
}

static void fill_name(char *name, size_t room, const char *pattern, int layer) {
    const char *mark = strchr(pattern, '#');
    int n = mark ? snprintf(name, room, "%.*s%d%s", (int)(mark - pattern), pattern, layer, mark + 1)
                 : snprintf(name, room, "%s", pattern);
    CHECK(n > 0 && (size_t)n < room, "the name %s of layer %d is too long", pattern, layer);
}

size_t hf_pieces(const char *family, const char *param, int layer, const struct HfSizes *sizes,
                 struct HfPiece pieces[HF_PIECES_MAX]) {
    size_t n = 0, row = 0;
    for (const struct NameRow *r = strcmp(family, "gpt2") ? llama_rows : gpt2_rows; r->param; r++) {
        if (strcmp(r->param, param))
            continue;
        CHECK(n < HF_PIECES_MAX, "%s has more than %d pieces", param, HF_PIECES_MAX);
        struct HfPiece *p = &pieces[n++];
        *p = (struct HfPiece){.row = row,
                              .rows = axis_length(r->rows, sizes),
                              .cols = axis_length(r->cols, sizes),
                              .transposed = r->transposed};
        fill_name(p->name, sizeof p->name, r->name, layer);
        row += p->rows;
    }
    return n;
}
