// Memory of activations: see acts.h for what is kept when.
#include "model/acts.h"

#include "kernels/kernels.h"
#include "model/adapter.h"

#include <stdlib.h>
#include <string.h>

enum { ARENA_ALIGN = 64 };

// Tensors that each level drops, besides those of the levels before it.
static const uint32_t dropped[NRECOMPUTE] = {
    [RECOMPUTE_GELU] = BIT(ACT_MLP) | BIT(ACT_ROTATED),
    [RECOMPUTE_ATTENTION] = BIT(ACT_NORM1) | BIT(ACT_LSE) | BIT(ACT_ATT) | BIT(ACT_NORM2),
    [RECOMPUTE_MLP] = BIT(ACT_FC),
    [RECOMPUTE_BLOCK] = ~(BIT(ACT_X) | BIT(ACT_LOW)),
};

uint32_t acts_kept(enum Recompute level) {
    uint32_t kept = BIT(NACT) - 1;
    for (enum Recompute l = 0; l <= level; l++)
        kept &= ~dropped[l];
    return kept;
}

// Returns the bytes of a tensor (R', C), padded for an all_reduce over the TP ranks, which there is
// only if R' = R.
static size_t stream_bytes(const struct Acts *a, const struct ModelConfig *c) {
    size_t n = a->b_max * a->t_max / a->row_parts * c->channels;
    return tp_comm_padded(a->tp_size / a->row_parts, n) * dtype_size(c->dtype);
}

static size_t act_bytes(const struct Acts *a, const struct ModelConfig *c, enum Act tensor) {
    size_t rows = a->b_max * a->t_max, own_rows = rows / a->row_parts, size = dtype_size(c->dtype);
    switch (tensor) {
    case ACT_MEAN1:
    case ACT_MEAN2:
        return c->family->norm == NORM_LAYER ? own_rows * sizeof(float) : 0;
    case ACT_RSTD1:
    case ACT_RSTD2:
        return own_rows * sizeof(float);
    case ACT_LSE:
        return rows * c->heads * sizeof(float);
    case ACT_ROTATED:
        return c->family->qk_norm ? rows * model_qkv_width(c) * size : 0;
    case ACT_QKV:
        return rows * model_qkv_width(c) * size;
    case ACT_ATT:
        return rows * model_attention_width(c) * size;
    case ACT_FC:
        return rows * model_fc_width(c) * size;
    case ACT_MLP:
        return rows * c->ffn * size;
    case ACT_LOW:
        return rows * adapter_width(c) * size;
    default:
        return stream_bytes(a, c);
    }
}

// Hands out pieces of an arena one after the other; a piece of 0 bytes is NULL. With base NULL it
// only measures.
struct Bump {
    char *base;
    size_t used;
};

static void *alloc_piece(struct Bump *bump, size_t bytes) {
    void *piece = bump->base && bytes ? bump->base + bump->used : NULL;
    bump->used += round_up(bytes, ARENA_ALIGN);
    return piece;
}

// Allocates a piece for each tensor of a block that is kept, or for each that is not.
static void alloc_tensors(const struct Acts *a, const struct ModelConfig *c, bool kept,
                          struct Bump *bump, void *out[NACT]) {
    for (int tensor = 0; tensor < NACT; tensor++)
        if (kept == ((a->kept & BIT(tensor)) != 0))
            out[tensor] = alloc_piece(bump, act_bytes(a, c, tensor));
}

// Returns the slot of block i of all sets: of layer i % layers in set i / layers. Layers that are
// forgotten share the first: a block reads its input before it writes a tensor of the same kind.
static size_t slot_of(const struct Acts *a, size_t i) {
    size_t layer = i % a->layers, kept = a->layers - a->forgotten;
    if (!a->forgotten)
        return i % a->slots;
    return layer < a->forgotten ? 0 : 1 + i / a->layers * kept + layer - a->forgotten;
}

// Places the scratch tensors, which all layers share, and the slots, and gives each layer of each
// set both the scratch tensors and those of its slot.
static void layout_blocks(struct Acts *a, const struct ModelConfig *c, size_t slot_parts,
                          struct Bump *bump) {
    void *tensors[NACT];
    alloc_tensors(a, c, false, bump, tensors);
    size_t begin = bump->used;
    a->slot_mem = bump->base ? bump->base + begin : NULL;
    for (size_t slot = 0; slot < a->slots; slot++) {
        alloc_tensors(a, c, true, bump, tensors);
        bump->used = begin + round_up(bump->used - begin, slot_parts * ARENA_ALIGN);
        for (size_t i = 0; i < a->layers * a->sets; i++)
            if (slot_of(a, i) == slot)
                memcpy(a->blocks[i], tensors, sizeof tensors);
    }
    a->slot_bytes = a->slots ? (bump->used - begin) / a->slots : 0;
}

static void layout_arena(struct Acts *a, const struct ModelConfig *c, const struct ActsSpec *spec,
                         struct Bump *bump) {
    size_t slot_parts = size_max(spec->slot_parts, 1);
    size_t has_head = !spec->no_head, trains = !spec->inference;
    size_t rows = a->b_max * a->t_max, own_rows = rows / a->row_parts, size = dtype_size(c->dtype);
    size_t bytes = stream_bytes(a, c), whole = a->row_parts > 1 ? rows * c->channels * size : 0;
    size_t attention = model_qkv_width(c) + model_attention_width(c);
    layout_blocks(a, c, slot_parts, bump);
    a->delta = alloc_piece(bump, bytes);
    a->x_final = alloc_piece(bump, bytes);
    a->norm_final = alloc_piece(bump, has_head * bytes);
    a->mean_final =
        alloc_piece(bump, c->family->norm == NORM_LAYER ? has_head * own_rows * sizeof(float) : 0);
    a->rstd_final = alloc_piece(bump, has_head * own_rows * sizeof(float));
    a->dx = alloc_piece(bump, trains * bytes);
    a->dnorm = alloc_piece(bump, trains * bytes);
    a->whole = alloc_piece(bump, whole);
    a->sums = alloc_piece(bump, whole);
    a->dwide = alloc_piece(bump, trains * rows * size_max(attention, model_fc_width(c)) * size);
    size_t dropped = c->lora.rank && c->lora.dropout > 0 ? trains * rows : 0;
    size_t most = size_max(size_max(c->channels, c->ffn), model_attention_width(c));
    a->dropped = alloc_piece(bump, dropped * most * size);
    a->dlow = alloc_piece(bump, trains * rows * LORA_BESIDE * c->lora.rank * size);
    a->losses = alloc_piece(bump, rows * sizeof(float));
}

// Returns how many rows of logits exist at a time: equal chunks, as few as keep each within
// piece_bytes, or 16 rows if those are more. Where a device wants whole tiles (piece_rows), the
// last chunk takes the remainder.
static size_t chunk_rows(size_t rows, const struct ModelConfig *c, const struct ActsSpec *spec) {
    size_t row_bytes = c->vocab_padded * dtype_size(c->dtype);
    size_t most = size_max(16, spec->piece_bytes / row_bytes);
    size_t tile = most > spec->piece_rows ? spec->piece_rows : 1;
    size_t chunks = ceil_div(rows, most / tile * tile);
    return size_min(rows, round_up(ceil_div(rows, chunks), tile));
}

int acts_open(struct Acts *a, const struct ModelConfig *c, const struct ActsSpec *spec,
              struct Tier *tier, struct Error *e) {
    size_t b = spec->b, t = spec->t, slots = spec->slots, sets = size_max(spec->sets, 1);
    size_t forgotten = slots == c->layers * sets ? spec->forgotten : 0;
    CHECK(slots == c->layers * sets || (slots >= 2 && slots < c->layers * sets),
          "%zu slots for %zu layers, %zu times", slots, c->layers, sets);
    *a = (struct Acts){.b = b,
                       .t = t,
                       .b_max = b,
                       .t_max = t,
                       .kept = acts_kept(spec->level),
                       .tp_size = size_max(spec->tp_size, 1),
                       .row_parts = size_max(spec->row_parts, 1),
                       .slots = slots - sets * forgotten + (forgotten > 0),
                       .forgotten = forgotten,
                       .inference = spec->inference,
                       .generated_rows = spec->generated_rows,
                       .sets = sets,
                       .layers = c->layers};
    a->blocks = a->block = base_alloc_zeroed((sets * c->layers + 1) * sizeof *a->block);
    a->logit_rows = spec->generated_rows ? spec->generated_rows : chunk_rows(b * t, c, spec);
    struct Bump bump = {0};
    layout_arena(a, c, spec, &bump);
    int err = tier_alloc(tier, TAG_ACTIVATION, "activations", bump.used, &a->arena, e);
    if (err)
        return err;
    bump.base = a->arena.mem;
    bump.used = 0;
    layout_arena(a, c, spec, &bump);
    if (spec->no_head)
        return 0;
    // When sampling, a row of logits has a part from each TP rank.
    err = tier_alloc(tier, TAG_WORKSPACE, "logits of one row chunk",
                     size_max(a->logit_rows, a->tp_size * size_max(1, spec->generated_rows)) *
                         c->vocab_padded * dtype_size(c->dtype),
                     &a->logits_block, e);
    a->logits = a->logits_block.mem;
    if (!err && a->tp_size > 1)
        err = tier_alloc(tier, TAG_WORKSPACE, "partial results of a softmax",
                         a->tp_size * a->logit_rows * sizeof *a->softmax, &a->softmax_block, e);
    a->softmax = a->softmax_block.mem;
    return err;
}

void acts_close(struct Acts *a) {
    tier_free(&a->arena);
    tier_free(&a->logits_block);
    tier_free(&a->softmax_block);
    free(a->blocks);
    *a = (struct Acts){0};
}
